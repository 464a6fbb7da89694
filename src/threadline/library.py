"""The gateway in process: `UserView` is everything one user may reach, `ThreadHandle` is one of their threads.

The contracts are the docstrings of `threadline.ports.gateway`. Each method calls one use case and decides nothing.
"""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Unpack

from threadline.core.approvals import Answer, Pending
from threadline.core.arguments import as_answers, as_client_tools, as_question, new_messages, new_thread, thread_changes
from threadline.core.client_tools import ClientTool
from threadline.core.errors import InvalidInput, NotFound
from threadline.core.messages import Message, NewMessage
from threadline.core.thread_filters import ThreadFilterFields
from threadline.core.threads import (
    Appended,
    ExpectedHead,
    Hit,
    NamedThreadFields,
    Page,
    SavedPoint,
    Scope,
    Thread,
    ThreadFields,
    ThreadHits,
    ThreadUpdate,
    Timeline,
)
from threadline.core.transfer import ExportFormat
from threadline.core.turn_commits import Accepted
from threadline.core.turns import Policy, Summary, Surface, TurnInfo, turn_info
from threadline.core.usage import UsageFilter, UsageRow
from threadline.core.values import ValueChange
from threadline.ports import Approver, Gateway, GatewayThread
from threadline.replies import Defer, Reply, UserServices, stop_turns
from threadline.threads.contexts import Contexts
from threadline.threads.transfer import export, lines_of
from threadline.threads.values import Values
from threadline.turns.acceptance import TurnRequest
from threadline.turns.approvals import AnswerRequest


class ThreadHandle(GatewayThread):
    def __init__(self, services: UserServices, info: Thread) -> None:
        self._services = services
        self._threads = services.threads
        self.info = info

    async def refresh(self) -> Thread:
        self.info = await self._threads.read(self.id)
        return self.info

    @property
    def values(self) -> Values:
        return self._services.values("thread", self.id)

    async def append(
        self,
        *messages: NewMessage | str,
        key: str | None = None,
        expected_count: int | None = None,
        expected_timeline: str | None = None,
        after: int | str | None = None,
        values: Sequence[ValueChange] = (),
    ) -> Appended:
        appended = await self._threads.append(
            self.id,
            new_messages(messages),
            key=key,
            expected_count=expected_count,
            expected_timeline=expected_timeline,
            after=after,
            values=await self._services.value_encoder.writes(self._services.scope, values, self.id),
        )
        self.info = appended.thread.apply_to(self.info)
        return appended

    def ask(
        self,
        question: str | NewMessage,
        *,
        agent: str | None = None,
        model: str | None = None,
        key: str | None = None,
        surface: Surface | None = None,
        policy: Policy | None = None,
        approver: Approver | None = None,
        replaces: str | None = None,
        client_tools: Sequence[ClientTool] = (),
    ) -> Reply:
        """As in the protocol. `surface` overrides the surface of the user's view for this turn."""
        request = TurnRequest(
            message=as_question(question),
            surface=surface or self._services.surface,
            thread_id=self.id,
            agent_id=agent,
            model=model,
            key=key,
            policy=policy,
            replaces=replaces,
            client_tools=as_client_tools(client_tools),
        )
        return Reply(self._services, partial(self._services.accept, request), approver or Defer())

    async def pending(self) -> list[Pending]:
        return await self._services.approvals.pending(self._services.scope, self.id)

    def respond(
        self,
        answers: Mapping[str, Answer | bool],
        *,
        surface: Surface | None = None,
        approver: Approver | None = None,
    ) -> Reply:
        """As in the protocol. `surface` overrides the surface of the user's view for this turn."""
        request = AnswerRequest(self.id, as_answers(answers), surface or self._services.surface)
        return Reply(self._services, partial(self._services.respond, request), approver or Defer())

    async def messages(
        self,
        *,
        first: int = 0,
        last: int | None = None,
        newest: int | None = None,
        around: int | str | None = None,
        within: int = 25,
        timeline: str | None = None,
    ) -> list[Message]:
        return await self._threads.messages(
            self.id, first=first, last=last, newest=newest, around=around, within=within, timeline_id=timeline
        )

    async def message(self, message_id: str) -> Message:
        found = await self._threads.message(self.id, message_id)
        if found is None:
            raise NotFound("message", message_id)
        return found

    def stream(self) -> AsyncIterator[Message]:
        return self._threads.stream(self.id)

    async def last_turns(self, turns: int = 12) -> list[Message]:
        return await self._threads.last_turns(self.id, turns)

    async def turns(self, *, limit: int = 100) -> list[TurnInfo]:
        return [turn_info(turn) for turn in await self._threads.turns(self.id, limit=limit)]

    async def branch(self, *, at: int | str | None = None, **fields: Unpack[ThreadFields]) -> ThreadHandle:
        return ThreadHandle(self._services, await self._threads.branch(self.id, new_thread(fields), at=at))

    async def save(self, name: str, *, at: int | str | None = None) -> SavedPoint:
        return await self._threads.save(self.id, name, at=at)

    async def load(self, name: str, *, key: str | None = None, **expected: Unpack[ExpectedHead]) -> None:
        self.info = await self._threads.load(self.id, name, key=key, **expected)

    async def undo(self, *, key: str | None = None, **expected: Unpack[ExpectedHead]) -> None:
        self.info = await self._threads.undo(self.id, key=key, **expected)

    async def rewind(self, at: int | str, *, before: bool = False, **expected: Unpack[ExpectedHead]) -> None:
        self.info = await self._threads.rewind(self.id, at, before=before, **expected)

    async def switch(self, timeline_id: str, **expected: Unpack[ExpectedHead]) -> None:
        self.info = await self._threads.switch(self.id, timeline_id, **expected)

    async def timelines(self) -> list[Timeline]:
        return await self._threads.timelines(self.id)

    async def update(self, **changes: Unpack[ThreadUpdate]) -> None:
        self.info = await self._threads.update(self.id, thread_changes(changes))

    async def compact(self, *, budget: int | None = None) -> Summary | None:
        return await self._services.compaction.compact(self._services.scope, self.id, budget=budget)

    async def summary(self) -> Summary | None:
        return await self._services.compaction.summary(self._services.scope, self.id)

    async def set_summary(self, text: str) -> Summary:
        return await self._services.compaction.set_summary(self._services.scope, self.id, text)

    async def make_home(self) -> None:
        services = self._services
        self.info = await services.store.transact(services.scope, partial(services.homes.choose, thread_id=self.id))

    async def stop(self, turn_id: str | None = None) -> bool:
        await self._threads.read(self.id)
        active = await self._threads.active_turns(self.id)
        if turn_id is not None:
            active = [turn for turn in active if turn.id == turn_id]
        services = self._services
        return await stop_turns(services.runner, services.streams, services.scope, active) > 0

    def export(self, format: ExportFormat = "jsonl") -> AsyncIterator[bytes]:
        return export(self._threads, self.id, format)

    async def delete(self) -> None:
        try:
            active = await self._threads.active_turns(self.id)
        except NotFound:
            active = []
        await self._threads.delete(self.id)
        # Their replies could not be stored: the thread is gone.
        await stop_turns(self._services.runner, self._services.streams, self._services.scope, active)

    async def purge(self) -> None:
        await self._threads.purge(self.id)


class UserView(Gateway):
    def __init__(self, services: UserServices) -> None:
        self._services = services
        self._threads = services.threads

    @property
    def contexts(self) -> Contexts:
        return self._services.contexts

    @property
    def values(self) -> Values:
        return self._services.values("user", self.scope.user_id)

    @property
    def tenant_values(self) -> Values:
        return self._services.values("tenant", "")

    @property
    def scope(self) -> Scope:
        return self._services.scope

    async def create_thread(self, **fields: Unpack[ThreadFields]) -> ThreadHandle:
        return self._handle(await self._threads.create(new_thread(fields)))

    async def open_thread(self, key: str, **fields: Unpack[NamedThreadFields]) -> ThreadHandle:
        return self._handle(await self._threads.get_or_create(key, new_thread(fields)))

    async def thread(self, thread_id: str) -> ThreadHandle:
        return self._handle(await self._threads.find(thread_id))

    async def home_thread(self) -> ThreadHandle | None:
        home = await self._services.homes.find(self._services.store.scoped(self.scope))
        return None if home is None else self._handle(home)

    async def threads(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        offset: int = 0,
        archived: bool | None = False,
        deleted: bool = False,
        **matching: Unpack[ThreadFilterFields],
    ) -> Page[Thread]:
        return await self._threads.page(
            limit=limit, cursor=cursor, offset=offset, archived=archived, deleted=deleted, **matching
        )

    async def all_threads(
        self,
        *,
        user: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
        archived: bool | None = False,
        deleted: bool = False,
        **matching: Unpack[ThreadFilterFields],
    ) -> Page[Thread]:
        return await self._threads.page_of_all(
            user=user, limit=limit, cursor=cursor, archived=archived, deleted=deleted, **matching
        )

    async def restore_thread(self, thread_id: str) -> ThreadHandle:
        return self._handle(await self._threads.restore(thread_id))

    async def prune(self, *, older_than: dt.timedelta = dt.timedelta(0)) -> int:
        return await self._threads.prune(older_than=older_than)

    async def search(
        self, query: str, *, limit: int = 20, offset: int = 0, **matching: Unpack[ThreadFilterFields]
    ) -> list[Hit]:
        return await self._threads.search(query, limit=limit, offset=offset, **matching)

    async def search_threads(
        self,
        query: str,
        *,
        limit: int = 20,
        cursor: str | None = None,
        passages: int = 3,
        **matching: Unpack[ThreadFilterFields],
    ) -> Page[ThreadHits]:
        return await self._threads.search_threads(query, limit=limit, cursor=cursor, passages=passages, **matching)

    async def saved_points(self) -> list[SavedPoint]:
        return await self._threads.saved_points()

    async def forget_saved_point(self, name: str) -> bool:
        return await self._threads.forget_saved_point(name)

    async def usage(self, **query: Unpack[UsageFilter]) -> list[UsageRow]:
        return await self._services.usage.read(**query)

    async def import_threads(self, lines: bytes) -> list[Thread]:
        if not isinstance(lines, bytes):
            raise InvalidInput(f"`lines` must be bytes, got {type(lines).__name__}")
        importer = self._services.importer
        done = await importer.run(lines_of(io.BytesIO(lines), importer.longest_line))
        return [each.thread for each in done]

    async def turn(self, turn_id: str) -> TurnInfo:
        return turn_info(await self._services.turns.find(self.scope, turn_id))

    def reply(self, turn_id: str) -> Reply:
        async def find() -> Accepted:
            turn = await self._services.turns.find(self.scope, turn_id)
            return Accepted(turn, await self._threads.read(turn.thread_id), replayed=True)

        return Reply(self._services, find, Defer())

    def _handle(self, thread: Thread) -> ThreadHandle:
        return ThreadHandle(self._services, thread)
