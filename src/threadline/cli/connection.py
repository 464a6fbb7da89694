"""Opens Threadline for a command: settings from the options, the scope of the user, the scope of an administrator."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from threadline import bootstrap
from threadline import settings as settings_
from threadline.bootstrap import Threadline
from threadline.core.threads import Scope
from threadline.settings import Settings


def load_settings(args: argparse.Namespace) -> Settings:
    overrides = {name: getattr(args, name, None) for name in ("database", "tenant", "user")}
    return settings_.load(Path(args.settings) if args.settings else None, overrides=overrides)


@asynccontextmanager
async def open_threadline(args: argparse.Namespace) -> AsyncIterator[Threadline]:
    async with bootstrap.open(settings=load_settings(args)) as threadline:
        yield threadline


def user_scope(threadline: Threadline) -> Scope:
    return Scope(threadline.settings.tenant, threadline.settings.user)


def admin_scope(threadline: Threadline) -> Scope:
    """Anyone who can open the database can change every row in it, so the terminal asks for no further proof."""
    return Scope(threadline.settings.tenant, threadline.settings.user, "admin")
