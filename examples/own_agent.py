"""An agent of your own: any function that takes the prompt and yields text. The turn is stored exactly once.

    python examples/own_agent.py

Prints:

    streamed: 2 words, I counted
    the same turn: True
    stored: 2 messages
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import threadline


async def count(question: str) -> AsyncIterator[str]:
    yield f"{len(question.split())} words, "
    yield "I counted"


async def main() -> None:
    async with threadline.open(":memory:", agents={"count": count}) as tl:
        thread = await tl.as_user("ada").create_thread(agent_id="count")
        reply = thread.ask("hello there", key="1")
        print("streamed:", "".join([piece async for piece in reply.text()]))
        # A client that lost the answer asks again with the same key.
        again = await thread.ask("hello there", key="1")
        print("the same turn:", again.id == (await reply).id)
        print("stored:", len(await thread.messages()), "messages")


asyncio.run(main())
