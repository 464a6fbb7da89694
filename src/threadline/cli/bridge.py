"""`threadline bridge`: serves the dispatch protocol in front of an OpenAI-compatible server."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal

from threadline.agents.bridge import Bridge
from threadline.agents.bridge_server import serve_bridge


async def bridge(args: argparse.Namespace) -> None:
    """Serves until SIGINT or SIGTERM. Keys come from the environment: arguments are visible in process lists."""
    key = os.environ.get("THREADLINE_BRIDGE_UPSTREAM_KEY")
    token = os.environ.get("THREADLINE_BRIDGE_TOKEN")
    served = Bridge(args.upstream, model=args.model, api_key=key)
    async with serve_bridge(served, host=args.host, port=args.port, token=token) as address:
        print(f"Serving {args.upstream} at {address} (Ctrl-C to stop)", flush=True)
        stopped = asyncio.Event()
        for name in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(name, stopped.set)
        await stopped.wait()
