"""LangGraph: `ThreadlineSaver` stores the threads of a graph, `agent` makes a graph an agent here.

graph = builder.compile(checkpointer=ThreadlineSaver(tl.as_user("ada")))
threadline.open(…, agents={"helper": langgraph.agent(builder.compile())})
"""

from __future__ import annotations

from threadline.core.errors import ExtraMissing

try:
    import langgraph.checkpoint.base as _installed
except ImportError as exc:
    raise ExtraMissing("langgraph", "the LangGraph adapter") from exc

from threadline.adapters.langgraph.agent_adapter import agent
from threadline.adapters.langgraph.checkpointer import ThreadlineSaver

del _installed

__all__ = ["ThreadlineSaver", "agent"]
