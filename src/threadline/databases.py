"""The database that the settings name: opens its store. PostgreSQL is imported when it is used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from threadline.core.errors import ExtraMissing, SettingsInvalid, StoreUnavailable
from threadline.ports import Clock, Store
from threadline.settings import Settings
from threadline.stores.sqlite.store import SqliteStore


async def open_store(settings: Settings, clock: Clock | None = None, *, read_only: bool = False) -> Store:
    """Without a clock, times are the system's, and on PostgreSQL the server's for what processes compare."""
    url = settings.database
    if is_postgres(url):
        with needs_postgres():
            from threadline.stores.postgres.store import PostgresStore  # noqa: PLC0415 - an extra
        replica, timeouts = settings.database_replica or None, settings.timeouts
        return await PostgresStore.open(
            url, clock=clock, limits=settings.limits, timeouts=timeouts, replica_dsn=replica
        )
    if settings.database_replica:
        raise SettingsInvalid("`database` must be postgresql://… beside `database_replica`, got a SQLite file")
    return await SqliteStore.open(
        sqlite_path(url),
        clock=clock,
        limits=settings.limits,
        read_only=read_only,
        lock_seconds=settings.timeouts.file_lock_seconds,
    )


@contextmanager
def needs_postgres() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as exc:
        raise ExtraMissing("postgres", "PostgreSQL") from exc


def is_postgres(url: str) -> bool:
    return url.startswith(("postgresql://", "postgres://"))


def sqlite_path(url: str) -> str:
    """The file that a database setting names. SettingsInvalid for an address of another kind, StoreUnavailable if its
    folder cannot be created."""
    path = url.removeprefix("sqlite:///")
    if "://" in path:
        # The rest of it may hold a password.
        scheme = path.partition("://")[0]
        raise SettingsInvalid(f"{scheme}:// is no database of Threadline's: give a path, ':memory:' or postgresql://…")
    if path == ":memory:":
        return path
    file = Path(path).expanduser()
    try:
        # Conversations are private: other users of the machine may not look into a folder that is created for them.
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise StoreUnavailable(f"{file.parent} cannot be created: {exc.strerror}") from exc
    return str(file)
