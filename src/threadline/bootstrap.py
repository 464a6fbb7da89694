"""The composition root: settings in, a running Threadline out. The only file that knows every adapter.

PostgreSQL is imported when it is chosen, so that the library on SQLite never pays for it.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from threadline import settings as settings_
from threadline.clock import SystemClock
from threadline.core.errors import ExtraMissing, SettingsInvalid
from threadline.core.guarding import PatternGuard
from threadline.core.masking import SecretMasker
from threadline.core.sealing import Sealer
from threadline.core.threads import Scope, UserRole
from threadline.library import UserView
from threadline.ports import Clock, Guard, Masker, Store
from threadline.settings import Settings
from threadline.stores.sqlite.store import SqliteStore
from threadline.usecases.contexts import Contexts
from threadline.usecases.threads import Threads


class Threadline:
    """A running Threadline: one store, and the rules that guard what goes into it."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        clock: Clock,
        masker: Masker | None = None,
        guard: Guard | None = None,
    ) -> None:
        self.store = store
        self.settings = settings
        self.clock = clock
        self.sealer = Sealer(settings.limits, masker)
        self.guard = guard

    def threads(self, scope: Scope) -> Threads:
        return Threads(self.store, self.sealer, self.clock, scope)

    def contexts(self, scope: Scope) -> Contexts:
        return Contexts(self.store, self.sealer, self.guard, scope)

    def as_user(self, user: str | None = None, *, tenant: str | None = None, role: UserRole = "member") -> UserView:
        """Everything one user may reach. There is no way to any data without saying who asks."""
        scope = Scope(tenant or self.settings.tenant, user or self.settings.user, role)
        return UserView(self.threads(scope), self.contexts(scope))

    async def close(self) -> None:
        await self.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Opening:
    """What `open` gives: await it, or enter it with `async with`."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._opened: Threadline | None = None

    def __await__(self) -> Generator[Any, None, Threadline]:
        return self._open().__await__()

    async def __aenter__(self) -> Threadline:
        self._opened = await self._open()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._opened is not None
        await self._opened.close()

    async def _open(self) -> Threadline:
        store = await open_store(self._settings, self._clock)
        return Threadline(
            store,
            self._settings,
            clock=self._clock,
            masker=_masker(self._settings),
            guard=_guard(self._settings),
        )


def open(
    database: str | Path | None = None, *, settings: Settings | None = None, clock: Clock | None = None
) -> Opening:
    """Opens a database: a path or `:memory:` for SQLite, `postgresql://…` for PostgreSQL.

    Without one, the settings say which (`threadline.toml`, `THREADLINE_DATABASE`), and without those it is a file
    in the user's own data folder."""
    if settings is None:
        settings = settings_.load(overrides={"database": None if database is None else str(database)})
    elif database is not None:
        settings = msgspec.structs.replace(settings, database=str(database))
    return Opening(settings, clock or SystemClock())


async def open_store(settings: Settings, clock: Clock) -> Store:
    url = settings.database
    if url.startswith(("postgresql://", "postgres://")):
        try:
            from threadline.stores.postgres.store import PostgresStore  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as exc:
            raise ExtraMissing("postgres", "PostgreSQL") from exc
        return await PostgresStore.open(url, clock=clock, limits=settings.limits)
    return await SqliteStore.open(sqlite_path(url), clock=clock, limits=settings.limits)


def sqlite_path(url: str) -> str:
    """The file that a database setting names. SettingsInvalid for an address nobody here can open."""
    path = url.removeprefix("sqlite:///") if url.startswith("sqlite:///") else url
    if "://" in path:
        raise SettingsInvalid(f"{url!r} is no database: give a path, ':memory:' or postgresql://…")
    if path != ":memory:":
        Path(path).expanduser().parent.mkdir(parents=True, exist_ok=True)
        return str(Path(path).expanduser())
    return path


def _masker(settings: Settings) -> Masker | None:
    if not settings.masking.enabled:
        return None
    return SecretMasker()


def _guard(settings: Settings) -> Guard | None:
    if not settings.guard.patterns:
        return None
    return PatternGuard(settings.guard.patterns, settings.guard.message)
