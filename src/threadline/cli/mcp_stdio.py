"""`threadline mcp`: threads as tools and resources of an MCP server on standard input and output."""

from __future__ import annotations

import argparse
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from threadline.core.errors import InvalidInput
from threadline.mcp_server.protocol import serve_stdio
from threadline.ports import Gateway


class _Opened(NamedTuple):
    gateway: Gateway
    can_write: bool


async def serve(args: argparse.Namespace) -> None:
    if args.token and args.server is None:
        raise InvalidInput("--token needs --server")
    if args.server is not None and args.database:
        raise InvalidInput("--database cannot be used with --server: the service has its own")
    opening = _open_local(args) if args.server is None else _open_service(args)
    async with opening as (gateway, can_write):
        await serve_stdio(gateway, can_write=can_write and not args.read_only)


@asynccontextmanager
async def _open_local(args: argparse.Namespace) -> AsyncIterator[_Opened]:
    # Imported here: a gateway to a service needs no store.
    from threadline.cli.connection import open_threadline  # noqa: PLC0415

    async with open_threadline(args, must_write=not args.read_only) as tl:
        yield _Opened(tl.as_user(role="viewer" if args.read_only else "member"), True)


@asynccontextmanager
async def _open_service(args: argparse.Namespace) -> AsyncIterator[_Opened]:
    from threadline.client import connect  # noqa: PLC0415 - an extra

    async with connect(args.server, token=args.token or os.environ.get("THREADLINE_TOKEN")) as client:
        # Also tells at once, and not with the first call, that the token is wrong.
        me = await client.me()
        yield _Opened(client, me.role != "viewer")
