"""Threadline keeps the conversations between people and AI agents.

    import threadline

    async with threadline.open("chats.sqlite3") as tl:
        me = tl.as_user("ada")
        thread = await me.create_thread(title="Lisbon")
        await thread.append("Where should we stay?", threadline.assistant("Alfama."))

What is listed in `__all__` is the public API; everything else may change.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from threadline.blocking import open_blocking
    from threadline.bootstrap import Threadline, open
    from threadline.library import ThreadHandle, UserView
    from threadline.replies import Reply

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
    "Reply",
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
    "open_blocking",
    "tool",
    "user",
]

# What opens a database is imported when it is first used: whoever needs only the values does not pay for the stores.
_LATE = {
    "Reply": "threadline.replies",
    "ThreadHandle": "threadline.library",
    "Threadline": "threadline.bootstrap",
    "UserView": "threadline.library",
    "open": "threadline.bootstrap",
    "open_blocking": "threadline.blocking",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module 'threadline' has no attribute {name!r}")
    return getattr(import_module(_LATE[name]), name)


def __dir__() -> list[str]:
    return __all__
