"""Threadline stores conversations between people and AI agents in SQLite or PostgreSQL.

    import threadline

    async with threadline.open("chats.sqlite3") as tl:
        me = tl.as_user("ada")
        thread = await me.open_thread("lisbon", title="Lisbon")
        await thread.append("Where should we stay?", threadline.assistant("Alfama."))

`__all__` is the public API; everything else may change. Each name is imported when it is first used, so that
`import threadline` is fast and optional dependencies are loaded only by those who use them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from threadline.version import __version__

if TYPE_CHECKING:
    from threadline.agents.anthropic import AnthropicModel
    from threadline.agents.loop import LoopAgent
    from threadline.agents.openai import OpenAIModel
    from threadline.agents.tools import Tool, tool
    from threadline.bootstrap import Threadline, open
    from threadline.client import Client, RetryPolicy, connect
    from threadline.core import events
    from threadline.core.approvals import ApprovalDecision, Pending, ToolOutput
    from threadline.core.channels import ContextSnapshot
    from threadline.core.client_tools import ClientTool
    from threadline.core.errors import (
        AgentFailed,
        BudgetExceeded,
        Conflict,
        DuplicateId,
        ExtraMissing,
        HeadMoved,
        InvalidInput,
        KeyReused,
        LimitExceeded,
        NotFound,
        Refused,
        ServiceUnavailable,
        SettingsInvalid,
        StoreFailed,
        ThreadlineError,
        TurnRunning,
        ValueChanged,
    )
    from threadline.core.messages import Message, NewMessage, assistant, new_message, user
    from threadline.core.parts import (
        DataPart,
        FilePart,
        Part,
        ReasoningPart,
        SourceDocumentPart,
        SourceUrlPart,
        TextPart,
        ToolPart,
        tool_part,
    )
    from threadline.core.prompts import Prompt, PromptMessage
    from threadline.core.thread_filters import ThreadFilterFields
    from threadline.core.threads import (
        Appended,
        Hit,
        Page,
        Point,
        SavedPoint,
        Scope,
        Thread,
        ThreadFields,
        ThreadHits,
        ThreadUpdate,
        Timeline,
    )
    from threadline.core.turns import Summary, TurnInfo
    from threadline.core.usage import UsageRow
    from threadline.core.values import DeleteValue, PutValue, StoredValue
    from threadline.library import ThreadHandle, UserView
    from threadline.ports import (
        Admission,
        Approver,
        Gateway,
        GatewayReply,
        GatewayThread,
        GatewayValues,
        Spending,
        SpendingRefusal,
        Verdict,
    )
    from threadline.replies import Defer, DenyAll, Reply
    from threadline.service.app import build_app, lifespan
    from threadline.settings import Settings
    from threadline.sync_api import (
        SyncClient,
        SyncGateway,
        SyncThread,
        SyncThreadline,
        connect_sync,
        open_sync,
    )
    from threadline.sync_values import SyncReply, SyncValues

__all__ = [
    "Admission",
    "AgentFailed",
    "AnthropicModel",
    "Appended",
    "ApprovalDecision",
    "Approver",
    "BudgetExceeded",
    "Client",
    "ClientTool",
    "Conflict",
    "ContextSnapshot",
    "DataPart",
    "Defer",
    "DeleteValue",
    "DenyAll",
    "DuplicateId",
    "ExtraMissing",
    "FilePart",
    "Gateway",
    "GatewayReply",
    "GatewayThread",
    "GatewayValues",
    "HeadMoved",
    "Hit",
    "InvalidInput",
    "KeyReused",
    "LimitExceeded",
    "LoopAgent",
    "Message",
    "NewMessage",
    "NotFound",
    "OpenAIModel",
    "Page",
    "Part",
    "Pending",
    "Point",
    "Prompt",
    "PromptMessage",
    "PutValue",
    "ReasoningPart",
    "Refused",
    "Reply",
    "RetryPolicy",
    "SavedPoint",
    "Scope",
    "ServiceUnavailable",
    "Settings",
    "SettingsInvalid",
    "SourceDocumentPart",
    "SourceUrlPart",
    "Spending",
    "SpendingRefusal",
    "StoreFailed",
    "StoredValue",
    "Summary",
    "SyncClient",
    "SyncGateway",
    "SyncReply",
    "SyncThread",
    "SyncThreadline",
    "SyncValues",
    "TextPart",
    "Thread",
    "ThreadFields",
    "ThreadFilterFields",
    "ThreadHandle",
    "ThreadHits",
    "ThreadUpdate",
    "Threadline",
    "ThreadlineError",
    "Timeline",
    "Tool",
    "ToolOutput",
    "ToolPart",
    "TurnInfo",
    "TurnRunning",
    "UsageRow",
    "UserView",
    "ValueChanged",
    "Verdict",
    "__version__",
    "assistant",
    "build_app",
    "connect",
    "connect_sync",
    "events",
    "lifespan",
    "new_message",
    "open",
    "open_sync",
    "tool",
    "tool_part",
    "user",
]

_HOMES = {
    "threadline.agents.anthropic": ("AnthropicModel",),
    "threadline.agents.loop": ("LoopAgent",),
    "threadline.agents.openai": ("OpenAIModel",),
    "threadline.agents.tools": (
        "Tool",
        "tool",
    ),
    "threadline.bootstrap": (
        "Threadline",
        "open",
    ),
    "threadline.client": (
        "Client",
        "RetryPolicy",
        "connect",
    ),
    "threadline.core.approvals": (
        "ApprovalDecision",
        "Pending",
        "ToolOutput",
    ),
    "threadline.core.client_tools": ("ClientTool",),
    "threadline.core.channels": ("ContextSnapshot",),
    "threadline.core.errors": (
        "AgentFailed",
        "BudgetExceeded",
        "Conflict",
        "DuplicateId",
        "ExtraMissing",
        "HeadMoved",
        "InvalidInput",
        "KeyReused",
        "LimitExceeded",
        "NotFound",
        "Refused",
        "ServiceUnavailable",
        "SettingsInvalid",
        "StoreFailed",
        "ThreadlineError",
        "TurnRunning",
        "ValueChanged",
    ),
    "threadline.core.messages": (
        "Message",
        "NewMessage",
        "assistant",
        "new_message",
        "user",
    ),
    "threadline.core.parts": (
        "DataPart",
        "FilePart",
        "Part",
        "ReasoningPart",
        "SourceDocumentPart",
        "SourceUrlPart",
        "TextPart",
        "ToolPart",
        "tool_part",
    ),
    "threadline.core.prompts": (
        "Prompt",
        "PromptMessage",
    ),
    "threadline.core.thread_filters": ("ThreadFilterFields",),
    "threadline.core.threads": (
        "Appended",
        "Hit",
        "ThreadHits",
        "Page",
        "Point",
        "SavedPoint",
        "Scope",
        "Thread",
        "ThreadFields",
        "ThreadUpdate",
        "Timeline",
    ),
    "threadline.core.turns": (
        "Summary",
        "TurnInfo",
    ),
    "threadline.core.usage": ("UsageRow",),
    "threadline.core.values": (
        "DeleteValue",
        "PutValue",
        "StoredValue",
    ),
    "threadline.library": (
        "ThreadHandle",
        "UserView",
    ),
    "threadline.ports": (
        "Admission",
        "Approver",
        "Gateway",
        "GatewayReply",
        "GatewayThread",
        "GatewayValues",
        "Spending",
        "SpendingRefusal",
        "Verdict",
    ),
    "threadline.replies": (
        "Defer",
        "DenyAll",
        "Reply",
    ),
    "threadline.service.app": (
        "build_app",
        "lifespan",
    ),
    "threadline.settings": ("Settings",),
    "threadline.sync_api": (
        "SyncClient",
        "SyncGateway",
        "SyncThread",
        "SyncThreadline",
        "connect_sync",
        "open_sync",
    ),
    "threadline.sync_values": ("SyncReply", "SyncValues"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "events":
        found = import_module("threadline.core.events")
    elif name in _HOME_OF:
        found = getattr(import_module(_HOME_OF[name]), name)
    else:
        raise AttributeError(f"module 'threadline' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
