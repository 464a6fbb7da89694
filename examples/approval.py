"""A tool that needs approval: the turn ends with the call open, and the answer continues the same reply.

    python examples/approval.py

Prints:

    waits: stamp {"text": "hello"}
    the reply: output-available
"""

from __future__ import annotations

import asyncio
import json

import threadline


async def main() -> None:
    async with threadline.open(":memory:") as tl:
        # The built-in agent `rehearsal` has a tool that asks first.
        thread = await tl.as_user("ada").create_thread(agent_id="rehearsal")
        await thread.ask("stamp hello").ended()
        for call in await thread.pending():
            print("waits:", call.name, json.dumps(call.input))
            await thread.respond({call.id: True})
        newest = (await thread.messages())[-1]
        print("the reply:", *[part.state for part in newest.parts if isinstance(part, threadline.ToolPart)])


asyncio.run(main())
