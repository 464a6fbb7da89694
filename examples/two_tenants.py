"""Tenants and users: what is not theirs is not found, and nothing tells that it exists.

    python examples/two_tenants.py

Prints:

    ada of acme: 1 thread
    bob of acme: 0 threads
    ada of globex: not found
"""

from __future__ import annotations

import asyncio

import threadline


async def main() -> None:
    async with threadline.open(":memory:") as tl:
        ada = tl.as_user("ada", tenant="acme")
        plans = await ada.create_thread(state_key="plans", title="Plans")
        print("ada of acme:", len(await ada.threads()), "thread")
        print("bob of acme:", len(await tl.as_user("bob", tenant="acme").threads()), "threads")
        try:
            await tl.as_user("ada", tenant="globex").thread(plans.id)
        except threadline.NotFound:
            print("ada of globex: not found")


asyncio.run(main())
