"""Named queries: SQL lives in `.sql` files, one `-- name: verb_noun` line before each statement.

A file that names a query twice, or holds SQL before the first name, does not load.
"""

from __future__ import annotations

import re
from importlib.resources import files

_NAME = re.compile(r"^-- name: ([a-z0-9_]+)$", re.MULTILINE)


def load_queries(package: str, filename: str = "queries.sql") -> dict[str, str]:
    source = files(package).joinpath(filename).read_text(encoding="utf-8")
    head, *rest = _NAME.split(source)
    if any(line.strip() and not line.startswith("--") for line in head.splitlines()):
        raise ValueError(f"{package}/{filename} has SQL before its first '-- name:' line")
    queries: dict[str, str] = {}
    for name, body in zip(rest[::2], rest[1::2], strict=True):
        if name in queries:
            raise ValueError(f"{package}/{filename} names {name!r} twice")
        queries[name] = body.strip()
    return queries
