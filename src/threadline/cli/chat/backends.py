"""Where a chat's threads live: in a database here, or with a service elsewhere (`remote.py`). The chat knows no other
difference; what only one of them can do, the other refuses in a sentence.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from threadline.bootstrap import Threadline
from threadline.cli.chat.unsaved import Unsaved, Wishes
from threadline.core.approvals import ApprovalDecision, Pending
from threadline.core.events import Event
from threadline.core.parts import Part
from threadline.core.threads import Page, SavedPoint, Scope
from threadline.core.transfer import ExportFormat
from threadline.core.turns import TurnStatus
from threadline.library import ThreadHandle
from threadline.ports import Approver
from threadline.replies import Reply
from threadline.threads.transfer import export


class Info(Protocol):
    """A thread as it is listed."""

    @property
    def id(self) -> str: ...
    @property
    def state_key(self) -> str: ...
    @property
    def title(self) -> str | None: ...
    @property
    def agent_id(self) -> str | None: ...
    @property
    def model(self) -> str | None: ...
    @property
    def message_count(self) -> int: ...
    @property
    def token_count(self) -> int: ...
    @property
    def updated_at(self) -> Any: ...


class Said(Protocol):
    """A message as it is shown."""

    @property
    def role(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def parts(self) -> tuple[Part, ...]: ...


class Ending(Protocol):
    @property
    def status(self) -> TurnStatus: ...


class ChatReply(Protocol):
    def __aiter__(self) -> AsyncIterator[Event]: ...
    def accept(self) -> Awaitable[object]: ...
    def ended(self) -> Awaitable[Ending]: ...
    def stop(self) -> Awaitable[bool]: ...


class ChatThread(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def info(self) -> Info | None: ...
    async def refresh(self) -> Info: ...
    async def pending(self) -> list[Pending]: ...
    async def last_turns(self, turns: int = 12) -> Sequence[Said]: ...
    async def save(self, name: str) -> SavedPoint: ...
    async def load(self, name: str) -> None: ...
    async def undo(self) -> None: ...


class Contexts(Protocol):
    async def set(self, agent_id: str, context: str) -> object: ...
    async def get(self, agent_id: str) -> Any: ...
    async def clear(self, agent_id: str) -> bool: ...


class Host(Protocol):
    agent: str
    """Who answers where nobody is named."""

    @property
    def contexts(self) -> Contexts: ...
    def name(self, thread: Info) -> str:
        """What a person types to find the thread again."""
        ...

    def way_back(self, thread: ChatThread) -> str:
        """The command that goes on with it."""
        ...

    async def begin(self, wishes: Wishes, agent_id: str, title: str | None = None) -> ChatThread: ...
    async def forget(self, thread: ChatThread) -> None:
        """A thread that was begun for a message which was then refused."""
        ...

    async def find(self, name: str) -> ChatThread: ...
    async def threads(self, limit: int) -> Page[Any]: ...
    async def saved_points(self) -> list[SavedPoint]: ...
    async def branch(self, thread: ChatThread, title: str | None) -> ChatThread: ...
    async def change(self, thread: ChatThread, *, title: str | None = None, model: str | None = None) -> None: ...
    async def compact(self, thread: ChatThread) -> int | None:
        """Up to which seq it is summed up; None if it is short enough."""
        ...

    def ask(self, thread: ChatThread, text: str, agent: str | None, approver: Approver) -> ChatReply: ...
    def respond(self, thread: ChatThread, answers: Mapping[str, ApprovalDecision], approver: Approver) -> ChatReply: ...
    async def waits(self, thread: ChatThread, reply: ChatReply) -> bool:
        """Whether an earlier turn of the thread has to end before this one begins."""
        ...

    def unsaved(self, text: str, wishes: Wishes) -> AsyncIterator[Event]: ...
    def export(self, thread: ChatThread, form: ExportFormat) -> AsyncIterator[bytes]: ...


class LocalHost:
    """A database here."""

    def __init__(self, threadline: Threadline, scope: Scope, approver: Approver) -> None:
        self._threadline = threadline
        self._scope = scope
        self._view = threadline.as_user()
        self._unsaved = Unsaved(threadline, scope, approver)
        self.agent = threadline.settings.agent
        self.contexts = self._view.contexts

    def name(self, thread: Info) -> str:
        return thread.id

    def way_back(self, thread: ChatThread) -> str:
        return f"threadline chat --resume {thread.id}"

    async def begin(self, wishes: Wishes, agent_id: str, title: str | None = None) -> ThreadHandle:
        return await self._view.create_thread(
            title=title,
            agent_id=agent_id,
            model=wishes.model,
            system_prompt=wishes.system,
            working_dir=_working_dir(),
        )

    async def forget(self, thread: ChatThread) -> None:
        await _local(thread).purge()

    async def find(self, name: str) -> ThreadHandle:
        return await self._view.thread(name)

    async def threads(self, limit: int) -> Page[Any]:
        return await self._view.threads(limit=limit)

    async def saved_points(self) -> list[SavedPoint]:
        return await self._view.saved_points()

    async def branch(self, thread: ChatThread, title: str | None) -> ThreadHandle:
        return await _local(thread).branch(title=title)

    async def change(self, thread: ChatThread, *, title: str | None = None, model: str | None = None) -> None:
        given: dict[str, Any] = {"title": title, "model": model}
        await _local(thread).update(**{name: value for name, value in given.items() if value is not None})

    async def compact(self, thread: ChatThread) -> int | None:
        summary = await self._threadline.compaction.compact(self._scope, thread.id)
        return None if summary is None else summary.point.seq

    def ask(self, thread: ChatThread, text: str, agent: str | None, approver: Approver) -> ChatReply:
        return _local(thread).ask(text, agent=agent, surface="cli", approver=approver)

    def respond(self, thread: ChatThread, answers: Mapping[str, ApprovalDecision], approver: Approver) -> ChatReply:
        return _local(thread).respond(answers, surface="cli", approver=approver)

    async def waits(self, thread: ChatThread, reply: ChatReply) -> bool:
        assert isinstance(reply, Reply)
        turn = await reply.accept()
        return (await self._threadline.turns.find(self._scope, turn.id)).status == "accepted"

    def unsaved(self, text: str, wishes: Wishes) -> AsyncIterator[Event]:
        return self._unsaved.answer(text, wishes)

    def export(self, thread: ChatThread, form: ExportFormat) -> AsyncIterator[bytes]:
        return export(self._threadline.threads(self._scope), thread.id, form)


def _working_dir() -> str | None:
    try:
        return str(Path.cwd())
    except FileNotFoundError:  # somebody has removed it
        return None


def _local(thread: ChatThread) -> ThreadHandle:
    assert isinstance(thread, ThreadHandle)
    return thread
