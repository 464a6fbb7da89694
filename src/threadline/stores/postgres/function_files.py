"""The SQL functions of the schema: one file per subject in `functions/`, applied again whenever a file changes.

The database stores the checksum of each file that was applied. If one differs, all functions are dropped and created
from the files in one transaction, so that none remains that no file defines. Composite types are in `types.sql` and are
replaced only when that file changes, because connections of running programs keep the types' ids.

A program that is older than the database keeps the newer functions: `oldest compatible` of the migrations decides
whether it may use them. So a release that changes what a function takes or returns adds a migration that raises it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import NamedTuple

import asyncpg

from threadline.stores.sql import load_queries

_SQL = load_queries(__package__, "queries/migrate.sql")
_TYPES = "types"


class FunctionFile(NamedTuple):
    subject: str
    sql: str
    checksum: str


def load_function_files(package: str, folder: str = "functions") -> tuple[FunctionFile, ...]:
    found = []
    for entry in files(package).joinpath(folder).iterdir():
        if entry.name.endswith(".sql"):
            sql = entry.read_text(encoding="utf-8").replace("\r\n", "\n")
            found.append(FunctionFile(entry.name.removesuffix(".sql"), sql, hashlib.sha256(sql.encode()).hexdigest()))
    # Signatures name types, so these come first; bodies are resolved when they run and need no order.
    found.sort(key=lambda file: (file.subject != _TYPES, file.subject))
    return tuple(found)


FUNCTION_FILES = load_function_files(__package__)


async def find_changed(connection: asyncpg.Connection) -> tuple[str, ...]:
    """The subjects whose file is not the one that was applied to this database, those without a file included."""
    stored = {}
    if await connection.fetchval(_SQL["has_function_files"]):
        stored = {row["subject"]: row["checksum"] for row in await connection.fetch(_SQL["read_function_files"])}
    known = {file.subject: file.checksum for file in FUNCTION_FILES}
    return tuple(sorted(subject for subject in known | stored if known.get(subject) != stored.get(subject)))


async def apply_all(connection: asyncpg.Connection, changed: Sequence[str]) -> None:
    """Replaces every function, and the types if their file changed, in one transaction."""
    async with connection.transaction():
        await connection.execute(_SQL["become_migrator"])
        await connection.execute(_SQL["drop_functions"])
        if _TYPES in changed:
            await connection.execute(_SQL["drop_types"])
        for file in FUNCTION_FILES:
            if file.subject != _TYPES or _TYPES in changed:
                await connection.execute(file.sql)
        await connection.execute(_SQL["forget_function_files"])
        await connection.executemany(
            _SQL["write_function_file"], [(file.subject, file.checksum) for file in FUNCTION_FILES]
        )
