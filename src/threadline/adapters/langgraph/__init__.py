"""LangGraph: `ThreadlineSaver` stores the threads of a graph.

graph = builder.compile(checkpointer=ThreadlineSaver(tl.as_user("ada")))
"""

from __future__ import annotations

from threadline.core.errors import ExtraMissing

try:
    import langgraph.checkpoint.base as _installed
except ImportError as exc:
    raise ExtraMissing("langgraph", "the LangGraph adapter") from exc

from threadline.adapters.langgraph.checkpointer import ThreadlineSaver

del _installed

__all__ = ["ThreadlineSaver"]
