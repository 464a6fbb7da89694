"""LangGraph: `ThreadlineSaver` stores the threads of a graph, `ThreadlineStore` its long-term memory; `agent` makes a
graph an agent here.

graph = builder.compile(checkpointer=ThreadlineSaver(tl.as_user("ada")), store=ThreadlineStore(tl.as_user("ada")))
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
from threadline.adapters.langgraph.store import ThreadlineStore

del _installed

__all__ = ["ThreadlineSaver", "ThreadlineStore", "agent"]
