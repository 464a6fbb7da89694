"""`threadline bridge`: makes an OpenAI-compatible server an agent for whoever dispatches over HTTP."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal

from threadline.agents.bridge import Bridge
from threadline.agents.bridge_server import serve_bridge


async def bridge(args: argparse.Namespace) -> None:
    """Serves until it is interrupted. Keys come from the environment, so that no list of processes shows them."""
    key = os.environ.get("THREADLINE_BRIDGE_UPSTREAM_KEY")
    token = os.environ.get("THREADLINE_BRIDGE_TOKEN")
    made = Bridge(args.upstream, model=args.model, api_key=key)
    async with serve_bridge(made, host=args.host, port=args.port, token=token) as address:
        print(f"Serving {args.upstream} at {address} (Ctrl-C ends it)", flush=True)
        ended = asyncio.Event()
        for name in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(name, ended.set)
        await ended.wait()
