"""Google ADK: `agent` makes an agent or an app of the Agent Development Kit an agent here.

threadline.open(…, agents={"helper": adk.agent(root_agent)})
"""

from __future__ import annotations

from threadline.core.errors import ExtraMissing

try:
    import google.adk as _installed
except ImportError as exc:
    raise ExtraMissing("adk", "the Google ADK adapter") from exc

from threadline.adapters.adk.agent_adapter import agent

del _installed

__all__ = ["agent"]
