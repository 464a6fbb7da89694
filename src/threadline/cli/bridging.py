"""`threadline bridge`: serves dispatch payloads from an OpenAI-compatible server until it is stopped.

Secrets come from the environment, never from the command line, where other users of the machine can read them:
`BRIDGE_UPSTREAM_KEY` is the server's key, `BRIDGE_TOKEN` what callers have to show.
"""

from __future__ import annotations

import argparse
import asyncio
import os

from threadline.agents.bridge import Bridge
from threadline.agents.bridge_server import serving
from threadline.cli.showing import shown


async def bridge(args: argparse.Namespace) -> None:
    made = Bridge(args.upstream, model=args.model, api_key=os.environ.get("BRIDGE_UPSTREAM_KEY") or None)
    token = os.environ.get("BRIDGE_TOKEN") or None
    async with serving(made, host=args.host, port=args.port, token=token) as address:
        print(f"Serving {address}, asking {shown(args.upstream)}. Stop with Ctrl-C.", flush=True)
        await asyncio.Event().wait()
