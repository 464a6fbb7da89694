"""Store a conversation, read it in another process, and search it.

    python examples/first_thread.py

Prints:

    1 user: Where should we stay?
    2 assistant: Alfama: old, steep and quiet.
    found: Alfama
"""

from __future__ import annotations

import asyncio

import threadline


async def main() -> None:
    async with threadline.open("first_thread.sqlite3") as tl:
        thread = await tl.as_user("ada").open_thread("lisbon", title="A trip to Lisbon")
        # The key makes this safe to repeat: a second run stores nothing.
        await thread.append(
            "Where should we stay?", threadline.assistant("Alfama: old, steep and quiet."), key="first-question"
        )
    async with threadline.open("first_thread.sqlite3") as tl:
        ada = tl.as_user("ada")
        thread = await ada.thread("lisbon")
        for number, message in enumerate(await thread.messages(), start=1):
            print(number, f"{message.role}: {message.text}")
        for hit in await ada.search("alfama"):
            print("found:", hit.snippet.split(":")[0].strip("[]«»"))


asyncio.run(main())
