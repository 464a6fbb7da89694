"""From a command's options to an open Threadline, and to the user it acts for."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from threadline import settings as settings_
from threadline.bootstrap import Threadline
from threadline.bootstrap import open as open_threadline
from threadline.core.threads import Scope
from threadline.settings import Settings


def settings_of(args: argparse.Namespace) -> Settings:
    overrides = {name: getattr(args, name, None) for name in ("database", "tenant", "user")}
    return settings_.load(Path(args.settings) if args.settings else None, overrides=overrides)


@asynccontextmanager
async def opened(args: argparse.Namespace) -> AsyncIterator[Threadline]:
    async with open_threadline(settings=settings_of(args)) as threadline:
        yield threadline


def scope_of(threadline: Threadline) -> Scope:
    return Scope(threadline.settings.tenant, threadline.settings.user)
