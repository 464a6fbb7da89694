"""A chat with a service elsewhere, which decides what is kept and how it is answered."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from threadline.cli.chat.backends import ChatReply, ChatThread, Info
from threadline.cli.chat.unsaved import Wishes
from threadline.client import Client, RemoteReply, RemoteThread
from threadline.core.approvals import ApprovalDecision
from threadline.core.errors import InvalidInput
from threadline.core.events import Event
from threadline.core.threads import Page, SavedPoint
from threadline.core.transfer import ExportFormat
from threadline.ports import Approver


class RemoteHost:
    """See `Host`."""

    agent = "rehearsal"

    def __init__(self, client: Client, url: str) -> None:
        self._client = client
        self._url = url
        self.contexts = client.contexts

    def name(self, thread: Info) -> str:
        return thread.state_key

    def way_back(self, thread: ChatThread) -> str:
        return f"threadline chat --server {self._url} --resume {thread.id}"

    async def begin(self, wishes: Wishes, agent_id: str, title: str | None = None) -> RemoteThread:
        return await self._client.create_thread(agent_id=wishes.agent, title=title)

    async def forget(self, thread: ChatThread) -> None:
        await _remote(thread).purge()

    async def find(self, name: str) -> RemoteThread:
        return await self._client.thread(name)

    async def threads(self, limit: int) -> Page[Any]:
        return await self._client.threads(limit=limit)

    async def saved_points(self) -> list[SavedPoint]:
        return await self._client.saved_points()

    async def branch(self, thread: ChatThread, title: str | None) -> RemoteThread:
        return await _remote(thread).branch(title=title)

    async def change(self, thread: ChatThread, *, title: str | None = None, model: str | None = None) -> None:
        if model is not None:
            raise InvalidInput("the service decides which model answers")
        await _remote(thread).update(title=title)

    async def compact(self, thread: ChatThread) -> int | None:
        raise InvalidInput("the service decides what its agents are shown")

    def ask(self, thread: ChatThread, text: str, agent: str | None, approver: Approver) -> ChatReply:
        return _remote(thread).ask(text, agent=agent, policy="queue", approver=approver)

    def respond(self, thread: ChatThread, answers: Mapping[str, ApprovalDecision], approver: Approver) -> ChatReply:
        return _remote(thread).respond(answers, approver=approver)

    async def waits(self, thread: ChatThread, reply: ChatReply) -> bool:
        assert isinstance(reply, RemoteReply)
        return (await reply.turn()).status == "accepted"

    def unsaved(self, text: str, wishes: Wishes) -> AsyncIterator[Event]:
        raise InvalidInput("without the service there is no answer")

    def export(self, thread: ChatThread, form: ExportFormat) -> AsyncIterator[bytes]:
        return _remote(thread).export(form)


def _remote(thread: ChatThread) -> RemoteThread:
    assert isinstance(thread, RemoteThread)
    return thread
