"""Pydantic AI: `agent` makes a `pydantic_ai.Agent` an agent here.

threadline.open(…, agents={"helper": pydantic_ai.agent(my_agent)})
"""

from __future__ import annotations

from threadline.core.errors import ExtraMissing

try:
    import pydantic_ai as _installed
except ImportError as exc:
    raise ExtraMissing("pydantic-ai", "the Pydantic AI adapter") from exc

from threadline.adapters.pydantic_ai.agent_adapter import agent

del _installed

__all__ = ["agent"]
