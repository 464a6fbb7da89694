"""Threadline keeps the conversations between people and AI agents.

    import threadline

    async with threadline.open("chats.sqlite3") as tl:
        me = tl.as_user("ada")
        thread = await me.create_thread(title="Lisbon")
        await thread.append("Where should we stay?", threadline.assistant("Alfama."))

What is listed in `__all__` is the public API; everything else may change. Each name is imported when it is first used:
`import threadline` costs next to nothing, and nobody pays for what they do not use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from threadline.version import __version__

if TYPE_CHECKING:
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
    from threadline.core.parts import Part, TextPart, ToolPart, tool_part
    from threadline.core.threads import Hit, Page, Point, SavedPoint, Scope, Thread, Timeline
    from threadline.library import ThreadHandle, UserView
    from threadline.replies import Defer, Reply
    from threadline.sync_api import open_sync

__all__ = [
    "AgentFailed",
    "Conflict",
    "Defer",
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
    "__version__",
    "assistant",
    "new_message",
    "open",
    "open_sync",
    "tool_part",
    "user",
]

_HOMES = {
    "threadline.sync_api": ("open_sync",),
    "threadline.bootstrap": (
        "Threadline",
        "open",
    ),
    "threadline.core.errors": (
        "AgentFailed",
        "Conflict",
        "DuplicateId",
        "HeadMoved",
        "InvalidInput",
        "KeyReused",
        "LimitExceeded",
        "NotFound",
        "Refused",
        "StoreFailed",
        "ThreadlineError",
        "TurnRunning",
    ),
    "threadline.core.messages": (
        "Message",
        "NewMessage",
        "assistant",
        "new_message",
        "user",
    ),
    "threadline.core.parts": (
        "Part",
        "TextPart",
        "ToolPart",
        "tool_part",
    ),
    "threadline.core.threads": (
        "Hit",
        "Page",
        "Point",
        "SavedPoint",
        "Scope",
        "Thread",
        "Timeline",
    ),
    "threadline.library": (
        "ThreadHandle",
        "UserView",
    ),
    "threadline.replies": (
        "Defer",
        "Reply",
    ),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'threadline' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
    return found


def __dir__() -> list[str]:
    return __all__
