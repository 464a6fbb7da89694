"""Google ADK: `ThreadlineSessionService` stores the sessions of a runner, `agent` makes an agent or an app of the Agent
Development Kit an agent here.

runner = Runner(agent=root_agent, app_name="trips", session_service=adk.ThreadlineSessionService(tl))
threadline.open(…, agents={"helper": adk.agent(root_agent)})
"""

from __future__ import annotations

from threadline.core.errors import ExtraMissing

try:
    import google.adk as _installed
except ImportError as exc:
    raise ExtraMissing("adk", "the Google ADK adapter") from exc

from threadline.adapters.adk.agent_adapter import agent
from threadline.adapters.adk.session_service import ThreadlineSessionService

del _installed

__all__ = ["ThreadlineSessionService", "agent"]
