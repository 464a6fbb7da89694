"""The library as a developer meets it: Threadline, as one user sees it, and a thread in the hand.

A `UserView` is everything one user of one tenant may reach. A `ThreadHandle` is one thread of theirs; `info` is the
thread as the last call left it. Nothing here decides anything: each method is one use case.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any

from threadline.core.approvals import ApprovalDecision, Pending
from threadline.core.messages import Message, NewMessage, user
from threadline.core.threads import (
    Appended,
    Hit,
    NewThread,
    Page,
    SavedPoint,
    Scope,
    Thread,
    ThreadChanges,
    Timeline,
)
from threadline.core.turns import Policy, Surface
from threadline.ports import Approver
from threadline.replies import Answering, DenyAll, Reply
from threadline.threads.contexts import Contexts
from threadline.turns.acceptance import TurnRequest
from threadline.turns.approvals import AnswerRequest


class ThreadHandle:
    """One thread. Two handles on the same thread are fine: the store keeps the order."""

    def __init__(self, answering: Answering, info: Thread) -> None:
        self._answering = answering
        self._threads = answering.threads
        self.info = info

    def __repr__(self) -> str:
        return f"<thread {self.id} {self.info.title!r}, {self.info.message_count} messages>"

    @property
    def id(self) -> str:
        return self.info.id

    async def append(
        self, *messages: NewMessage | str, key: str | None = None, expected_count: int | None = None
    ) -> Appended:
        """Adds messages at the end, all or none; a plain string is a user message. With the same `key`, or the same
        message ids, a repeat stores nothing and gives the first answer again."""
        given = [user(message) if isinstance(message, str) else message for message in messages]
        appended = await self._threads.append(self.id, given, key=key, expected_count=expected_count)
        await self.refresh()
        return appended

    def ask(
        self,
        question: str | NewMessage,
        *,
        agent: str | None = None,
        key: str | None = None,
        surface: Surface = "api",
        policy: Policy | None = None,
        approver: Approver | None = None,
    ) -> Reply:
        """A turn: await the reply, or iterate over its events while it is written. With the same `key`, a repeat
        stores nothing and gives the same reply. `approver` decides about tools that need approval (default: no); with
        `Defer()` the turn ends with the request, for `respond`."""
        request = TurnRequest(
            message=user(question) if isinstance(question, str) else question,
            surface=surface,
            thread_id=self.id,
            agent_id=agent,
            key=key,
            policy=policy,
        )
        return Reply(self._answering, partial(self._answering.accept, request), approver or DenyAll())

    async def pending(self) -> list[Pending]:
        """The approvals that the last reply waits for."""
        return await self._answering.approvals.pending(self._answering.scope, self.id)

    def respond(
        self,
        answers: Mapping[str, ApprovalDecision | bool],
        *,
        surface: Surface = "api",
        approver: Approver | None = None,
    ) -> Reply:
        """Answers every pending approval, by its id, in a turn that goes on with the same reply. A repeat of the same
        answers gives the same reply; other ones are a Conflict. `approver` decides about what is asked from here on."""
        given = {key: ApprovalDecision(said) if isinstance(said, bool) else said for key, said in answers.items()}
        request = AnswerRequest(self.id, given, surface)
        accept = partial(self._answering.approvals.accept, self._answering.scope, request)
        return Reply(self._answering, accept, approver or DenyAll())

    async def refresh(self) -> Thread:
        """Reads the thread again; `info` is the thread as it is now."""
        self.info = await self._threads.find(self.id)
        return self.info

    async def messages(self, *, first: int = 0, last: int | None = None) -> list[Message]:
        return await self._threads.messages(self.id, first=first, last=last)

    def stream(self) -> AsyncIterator[Message]:
        """The whole history, page by page: for threads too long to hold in memory."""
        return self._threads.stream(self.id)

    async def last_turns(self, turns: int = 12) -> list[Message]:
        return await self._threads.last_turns(self.id, turns)

    async def branch(self, *, at: int | str | None = None, title: str | None = None, **fields: Any) -> ThreadHandle:
        """A new thread that begins as this one up to `at` (a seq or a message id; default: all of it)."""
        new = NewThread(title=title, **fields)
        return ThreadHandle(self._answering, await self._threads.branch(self.id, new, at=at))

    async def save(self, name: str, *, at: int | str | None = None) -> SavedPoint:
        return await self._threads.save(self.id, name, at=at)

    async def load(self, name: str) -> None:
        self.info = await self._threads.load(self.id, name)

    async def undo(self) -> None:
        """Goes back to before the last user message; `switch` takes it back."""
        self.info = await self._threads.undo(self.id)

    async def rewind(self, at: int | str, *, before: bool = False) -> None:
        """Goes on from a message (or from just before it), as editing and regenerating do."""
        self.info = await self._threads.rewind(self.id, at, before=before)

    async def switch(self, timeline_id: str) -> None:
        self.info = await self._threads.switch(self.id, timeline_id)

    async def timelines(self) -> list[Timeline]:
        return await self._threads.timelines(self.id)

    async def update(self, **changes: Any) -> None:
        """`title`, `agent_id`, `model`, `system_prompt`, `working_dir`, `metadata`, `archived`."""
        self.info = await self._threads.update(self.id, ThreadChanges(**changes))

    async def delete(self) -> None:
        """Hides the thread; `UserView.restore_thread` brings it back."""
        await self._threads.delete(self.id)

    async def purge(self) -> None:
        """Removes it for good, with every message that no branch or saved point still shows."""
        await self._threads.purge(self.id)


class UserView:
    """Threadline as one user sees it."""

    def __init__(self, answering: Answering, contexts: Contexts) -> None:
        self._answering = answering
        self._threads = answering.threads
        self.contexts = contexts

    @property
    def scope(self) -> Scope:
        return self._threads.scope

    async def create_thread(self, *, title: str | None = None, **fields: Any) -> ThreadHandle:
        """Fields: `id`, `state_key`, `agent_id`, `model`, `system_prompt`, `working_dir`, `metadata`."""
        return ThreadHandle(self._answering, await self._threads.create(NewThread(title=title, **fields)))

    async def thread(self, thread_id: str) -> ThreadHandle:
        """By id or state key. NotFound."""
        return ThreadHandle(self._answering, await self._threads.find(thread_id))

    async def threads(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        offset: int = 0,
        archived: bool | None = False,
        deleted: bool = False,
    ) -> Page[Thread]:
        """Latest activity first."""
        return await self._threads.page(limit=limit, cursor=cursor, offset=offset, archived=archived, deleted=deleted)

    async def restore_thread(self, thread_id: str) -> ThreadHandle:
        return ThreadHandle(self._answering, await self._threads.restore(thread_id))

    async def prune(self, *, older_than: dt.timedelta = dt.timedelta(0)) -> int:
        """Removes threads that never held a message. How many."""
        return await self._threads.prune(older_than=older_than)

    async def search(self, query: str, *, limit: int = 20, offset: int = 0) -> list[Hit]:
        """Messages that hold all the words."""
        return await self._threads.search(query, limit=limit, offset=offset)

    async def saved_points(self) -> list[SavedPoint]:
        return await self._threads.saved_points()

    async def forget_saved_point(self, name: str) -> bool:
        return await self._threads.forget_saved_point(name)
