"""OpenAI Agents SDK: `agent` makes an `agents.Agent` an agent here.

threadline.open(…, agents={"helper": threadline.adapters.openai_agents.agent(my_agent)})
"""

from __future__ import annotations

from threadline.core.errors import ExtraMissing

try:
    import agents as _installed
except ImportError as exc:
    raise ExtraMissing("openai-agents", "the OpenAI Agents adapter") from exc

from threadline.adapters.openai_agents.agent_adapter import agent

del _installed

__all__ = ["agent"]
