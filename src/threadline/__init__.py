"""Threadline keeps the conversations between people and AI agents.

    import threadline

    async with threadline.open("chats.sqlite3") as tl:
        me = tl.as_user("ada")
        thread = await me.create_thread(title="Lisbon")
        await thread.append("Where should we stay?", threadline.assistant("Alfama."))

What is listed in `__all__` is the public API; everything else may change.
"""

from __future__ import annotations

from threadline.bootstrap import Threadline, open
from threadline.core.errors import (
    AgentFailed,
    Conflict,
    DuplicateId,
    HeadMoved,
    InvalidInput,
    KeyReused,
    LimitExceeded,
    NotFound,
    Refused,
    StoreFailed,
    ThreadlineError,
    TurnRunning,
)
from threadline.core.messages import Message, NewMessage, assistant, new_message, user
from threadline.core.parts import Part, TextPart, ToolPart, tool
from threadline.core.threads import Hit, Page, Point, SavedPoint, Scope, Thread, Timeline
from threadline.library import ThreadHandle, UserView

__version__ = "0.1.0"

__all__ = [
    "AgentFailed",
    "Conflict",
    "DuplicateId",
    "HeadMoved",
    "Hit",
    "InvalidInput",
    "KeyReused",
    "LimitExceeded",
    "Message",
    "NewMessage",
    "NotFound",
    "Page",
    "Part",
    "Point",
    "Refused",
    "SavedPoint",
    "Scope",
    "StoreFailed",
    "TextPart",
    "Thread",
    "ThreadHandle",
    "Threadline",
    "ThreadlineError",
    "Timeline",
    "ToolPart",
    "TurnRunning",
    "UserView",
    "assistant",
    "new_message",
    "open",
    "tool",
    "user",
]
