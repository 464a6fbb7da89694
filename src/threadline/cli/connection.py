"""Opens Threadline for a command: settings from the options, the scope of the user, the scope of an administrator."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from threadline import bootstrap
from threadline import settings as settings_
from threadline.bootstrap import Threadline
from threadline.core.errors import StoreFailed, StoreFull, StoreReadOnly
from threadline.core.threads import Scope
from threadline.settings import Settings


def load_settings(args: argparse.Namespace) -> Settings:
    """The settings of a command. If their agents name Python code, its folders become the last ones of the import path:
    a file in them cannot take the place of an installed module."""
    overrides = {name: getattr(args, name, None) for name in ("database", "tenant", "user")}
    path = Path(args.settings) if args.settings else None
    settings = settings_.load(path, overrides=overrides)
    if any(
        agent.tools or "tools" in agent.settings or agent.provider == "function" for agent in settings.agents.values()
    ):
        sys.path += [str(folder) for folder in settings_.code_folders(path) if str(folder) not in sys.path]
    return settings


@asynccontextmanager
async def open_threadline(args: argparse.Namespace, *, must_write: bool = True) -> AsyncIterator[Threadline]:
    """Opens the database of the settings. A command that writes nothing also reads one that cannot be written."""
    settings = load_settings(args)

    async def open_database() -> Threadline:
        return await bootstrap.open(settings=settings)

    threadline = await open_database() if must_write else (await open_readable(open_database, settings))[0]
    async with threadline:
        if not must_write:
            await _end_abandoned(threadline)
        yield threadline


async def _end_abandoned(threadline: Threadline) -> None:
    """Ends turns that a killed terminal left, so that their partial replies are read with their mark. Turns of other
    surfaces are left to the service, which may run them again."""
    scope = user_scope(threadline)
    # What cannot be written is read as it is.
    with contextlib.suppress(StoreFailed):
        await threadline.recovery.recover(scope, surface="cli")


async def open_readable(
    open_database: Callable[[], Awaitable[Threadline]], settings: Settings
) -> tuple[Threadline, StoreFailed | None]:
    """The database; where it cannot be written, opened read-only, with the reason."""
    try:
        return await open_database(), None
    except (StoreReadOnly, StoreFull) as exc:
        return await bootstrap.open(settings=settings, read_only=True), exc


def user_scope(threadline: Threadline) -> Scope:
    return Scope(threadline.settings.tenant, threadline.settings.user)


def admin_scope(threadline: Threadline) -> Scope:
    """Anyone who can open the database can change every row in it, so the terminal asks for no further proof."""
    return Scope(threadline.settings.tenant, threadline.settings.user, "admin")
