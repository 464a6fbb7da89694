"""What turns cost: tokens that agents report, by day and model, and a budget that refuses further turns.

    python examples/usage_report.py

Prints:

    1 turn, 12 tokens in, 3 out
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import threadline
from threadline import events


async def metered(question: str) -> AsyncIterator[str | events.Event]:
    yield "fine"
    yield events.Usage(input_tokens=12, output_tokens=3)


async def main() -> None:
    async with threadline.open(":memory:", agents={"metered": metered}) as tl:
        ada = tl.as_user("ada")
        thread = await ada.create_thread(agent_id="metered")
        await thread.ask("how are you?")
        for row in await ada.usage(by=["model"]):
            print(f"{row.turns} turn, {row.input_tokens} tokens in, {row.output_tokens} out")


asyncio.run(main())
