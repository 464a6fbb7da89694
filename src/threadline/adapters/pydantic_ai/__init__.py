"""Pydantic AI: `save_messages` and `load_messages` keep a message history in a thread, `agent` makes a
`pydantic_ai.Agent` an agent here.

result = await my_agent.run("Hello", message_history=await pydantic_ai.load_messages(thread))
await pydantic_ai.save_messages(thread, result.new_messages())
threadline.open(…, agents={"helper": pydantic_ai.agent(my_agent)})
"""

from __future__ import annotations

from threadline.core.errors import ExtraMissing

try:
    import pydantic_ai as _installed
except ImportError as exc:
    raise ExtraMissing("pydantic-ai", "the Pydantic AI adapter") from exc

from threadline.adapters.pydantic_ai.agent_adapter import agent
from threadline.adapters.pydantic_ai.history import load_messages, save_messages

del _installed

__all__ = ["agent", "load_messages", "save_messages"]
