"""Branch, save, load and undo: each is one small row, however long the thread is.

    python examples/branches.py

Prints:

    undone: 2 messages
    branch: Lisbon in winter, 4 messages
    loaded: 4 messages
    versions: 3
"""

from __future__ import annotations

import asyncio

import threadline
from threadline import assistant


async def main() -> None:
    async with threadline.open(":memory:") as tl:
        thread = await tl.as_user("ada").create_thread(title="Lisbon")
        await thread.append("Where should we stay?", assistant("Alfama."))
        await thread.append("When should we go?", assistant("In May."))
        await thread.save("in May")

        await thread.undo()
        print("undone:", thread.message_count, "messages")

        winter = await thread.branch(title="Lisbon in winter")
        await winter.append("What if we go in winter?", assistant("Take a coat."))
        print(f"branch: {winter.title}, {winter.message_count} messages")

        await thread.append("Is it far?", assistant("No."))
        await thread.load("in May")
        print("loaded:", thread.message_count, "messages")
        print("versions:", len(await thread.timelines()))


asyncio.run(main())
