"""OpenAI Agents SDK: `ThreadlineSession` stores the session of a runner, `agent` makes an `agents.Agent` an agent here.

await Runner.run(my_agent, "Hello", session=openai_agents.ThreadlineSession("trip:1", tl.as_user("ada")))
threadline.open(…, agents={"helper": openai_agents.agent(my_agent)})
"""

from __future__ import annotations

from threadline.core.errors import ExtraMissing

try:
    import agents as _installed
except ImportError as exc:
    raise ExtraMissing("openai-agents", "the OpenAI Agents adapter") from exc

from threadline.adapters.openai_agents.agent_adapter import agent
from threadline.adapters.openai_agents.session import ThreadlineSession

del _installed

__all__ = ["ThreadlineSession", "agent"]
