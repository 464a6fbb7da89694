"""The gateway without `await`, for scripts: the same calls with the same arguments, on a library or a service.

`open_sync` and `connect_sync` run an event loop in a thread of their own. Each method waits for the asynchronous one of
the same name. `tests/library/test_sync_api.py` compares every signature with the gateway protocols.
"""

from __future__ import annotations

import datetime as dt
from asyncio import AbstractEventLoop
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self, TypeVar, Unpack

from threadline import bootstrap
from threadline.bootstrap import OpenOptions, Threadline
from threadline.core.approvals import Answer, Pending
from threadline.core.channels import ContextSnapshot
from threadline.core.client_tools import ClientTool
from threadline.core.messages import Message, NewMessage
from threadline.core.thread_filters import ThreadFilterFields
from threadline.core.threads import (
    Appended,
    ExpectedHead,
    Hit,
    NamedThreadFields,
    Page,
    SavedPoint,
    Thread,
    ThreadFields,
    ThreadHits,
    ThreadUpdate,
    Timeline,
    UserRole,
)
from threadline.core.transfer import ExportFormat
from threadline.core.turns import Policy, Summary, Surface, TurnInfo
from threadline.core.usage import UsageFilter, UsageRow
from threadline.core.values import ValueChange
from threadline.ports import Approver, Gateway, GatewayContexts, GatewayThread
from threadline.ports.thread_attributes import ThreadAttributes
from threadline.sync_values import LoopThread, SyncReply, SyncValues

if TYPE_CHECKING:
    from threadline.client import Client, RetryPolicy

T = TypeVar("T")


class SyncThread(ThreadAttributes):
    """One thread. See `threadline.ports.GatewayThread`."""

    def __init__(self, loop: LoopThread, thread: GatewayThread) -> None:
        self._loop = loop
        self._thread = thread

    @property
    def info(self) -> Thread:  # type: ignore[override]  # read-only here: the asynchronous thread replaces it
        return self._thread.info

    def refresh(self) -> Thread:
        return self._loop.wait(self._thread.refresh())

    @property
    def values(self) -> SyncValues:
        return SyncValues(self._loop, self._thread.values)

    def append(
        self,
        *messages: NewMessage | str,
        key: str | None = None,
        expected_count: int | None = None,
        expected_timeline: str | None = None,
        after: int | str | None = None,
        values: Sequence[ValueChange] = (),
    ) -> Appended:
        return self._loop.wait(
            self._thread.append(
                *messages,
                key=key,
                expected_count=expected_count,
                expected_timeline=expected_timeline,
                after=after,
                values=values,
            )
        )

    def ask(
        self,
        question: str | NewMessage,
        *,
        agent: str | None = None,
        model: str | None = None,
        key: str | None = None,
        policy: Policy | None = None,
        approver: Approver | None = None,
        replaces: str | None = None,
        client_tools: Sequence[ClientTool] = (),
    ) -> SyncReply:
        reply = self._thread.ask(
            question,
            agent=agent,
            model=model,
            key=key,
            policy=policy,
            approver=approver,
            replaces=replaces,
            client_tools=client_tools,
        )
        return SyncReply(self._loop, reply)

    def pending(self) -> list[Pending]:
        return self._loop.wait(self._thread.pending())

    def respond(self, answers: Mapping[str, Answer | bool], *, approver: Approver | None = None) -> SyncReply:
        return SyncReply(self._loop, self._thread.respond(answers, approver=approver))

    def messages(
        self,
        *,
        first: int = 0,
        last: int | None = None,
        newest: int | None = None,
        around: int | str | None = None,
        within: int = 25,
        timeline: str | None = None,
    ) -> list[Message]:
        return self._loop.wait(
            self._thread.messages(
                first=first, last=last, newest=newest, around=around, within=within, timeline=timeline
            )
        )

    def message(self, message_id: str) -> Message:
        return self._loop.wait(self._thread.message(message_id))

    def stream(self) -> Iterator[Message]:
        return self._loop.iterate(self._thread.stream)

    def last_turns(self, turns: int = 12) -> list[Message]:
        return self._loop.wait(self._thread.last_turns(turns))

    def turns(self, *, limit: int = 100) -> list[TurnInfo]:
        return self._loop.wait(self._thread.turns(limit=limit))

    def branch(self, *, at: int | str | None = None, **fields: Unpack[ThreadFields]) -> SyncThread:
        return SyncThread(self._loop, self._loop.wait(self._thread.branch(at=at, **fields)))

    def save(self, name: str, *, at: int | str | None = None) -> SavedPoint:
        return self._loop.wait(self._thread.save(name, at=at))

    def load(self, name: str, *, key: str | None = None, **expected: Unpack[ExpectedHead]) -> None:
        self._loop.wait(self._thread.load(name, key=key, **expected))

    def undo(self, *, key: str | None = None, **expected: Unpack[ExpectedHead]) -> None:
        self._loop.wait(self._thread.undo(key=key, **expected))

    def rewind(self, at: int | str, *, before: bool = False, **expected: Unpack[ExpectedHead]) -> None:
        self._loop.wait(self._thread.rewind(at, before=before, **expected))

    def switch(self, timeline_id: str, **expected: Unpack[ExpectedHead]) -> None:
        self._loop.wait(self._thread.switch(timeline_id, **expected))

    def timelines(self) -> list[Timeline]:
        return self._loop.wait(self._thread.timelines())

    def update(self, **changes: Unpack[ThreadUpdate]) -> None:
        self._loop.wait(self._thread.update(**changes))

    def compact(self, *, budget: int | None = None) -> Summary | None:
        return self._loop.wait(self._thread.compact(budget=budget))

    def summary(self) -> Summary | None:
        return self._loop.wait(self._thread.summary())

    def set_summary(self, text: str) -> Summary:
        return self._loop.wait(self._thread.set_summary(text))

    def make_home(self) -> None:
        self._loop.wait(self._thread.make_home())

    def stop(self, turn_id: str | None = None) -> bool:
        return self._loop.wait(self._thread.stop(turn_id))

    def export(self, format: ExportFormat = "jsonl") -> Iterator[bytes]:
        return self._loop.iterate(lambda: self._thread.export(format))

    def delete(self) -> None:
        self._loop.wait(self._thread.delete())

    def purge(self) -> None:
        self._loop.wait(self._thread.purge())


class SyncContexts:
    def __init__(self, loop: LoopThread, contexts: GatewayContexts) -> None:
        self._loop = loop
        self._contexts = contexts

    def set(self, agent_id: str, context: str) -> ContextSnapshot:
        return self._loop.wait(self._contexts.set(agent_id, context))

    def get(self, agent_id: str) -> ContextSnapshot:
        return self._loop.wait(self._contexts.get(agent_id))

    def clear(self, agent_id: str) -> bool:
        return self._loop.wait(self._contexts.clear(agent_id))


class SyncGateway:
    """Everything one user may reach. See `threadline.ports.Gateway`."""

    def __init__(self, loop: LoopThread, gateway: Gateway) -> None:
        self._loop, self._gateway = loop, gateway

    def asynchronous(self) -> tuple[Gateway, AbstractEventLoop]:
        """The gateway behind this one and the event loop that it runs on; for adapters of asynchronous frameworks."""
        return self._gateway, self._loop.event_loop

    @property
    def contexts(self) -> SyncContexts:
        return SyncContexts(self._loop, self._gateway.contexts)

    @property
    def values(self) -> SyncValues:
        return SyncValues(self._loop, self._gateway.values)

    @property
    def tenant_values(self) -> SyncValues:
        return SyncValues(self._loop, self._gateway.tenant_values)

    def create_thread(self, **fields: Unpack[ThreadFields]) -> SyncThread:
        return SyncThread(self._loop, self._loop.wait(self._gateway.create_thread(**fields)))

    def open_thread(self, key: str, **fields: Unpack[NamedThreadFields]) -> SyncThread:
        return SyncThread(self._loop, self._loop.wait(self._gateway.open_thread(key, **fields)))

    def thread(self, thread_id: str) -> SyncThread:
        return SyncThread(self._loop, self._loop.wait(self._gateway.thread(thread_id)))

    def home_thread(self) -> SyncThread | None:
        home = self._loop.wait(self._gateway.home_thread())
        return None if home is None else SyncThread(self._loop, home)

    def threads(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        offset: int = 0,
        archived: bool | None = False,
        deleted: bool = False,
        **matching: Unpack[ThreadFilterFields],
    ) -> Page[Thread]:
        return self._loop.wait(
            self._gateway.threads(
                limit=limit, cursor=cursor, offset=offset, archived=archived, deleted=deleted, **matching
            )
        )

    def all_threads(
        self,
        *,
        user: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
        archived: bool | None = False,
        deleted: bool = False,
        **matching: Unpack[ThreadFilterFields],
    ) -> Page[Thread]:
        return self._loop.wait(
            self._gateway.all_threads(
                user=user, limit=limit, cursor=cursor, archived=archived, deleted=deleted, **matching
            )
        )

    def restore_thread(self, thread_id: str) -> SyncThread:
        return SyncThread(self._loop, self._loop.wait(self._gateway.restore_thread(thread_id)))

    def prune(self, *, older_than: dt.timedelta = dt.timedelta(0)) -> int:
        return self._loop.wait(self._gateway.prune(older_than=older_than))

    def search(
        self, query: str, *, limit: int = 20, offset: int = 0, **matching: Unpack[ThreadFilterFields]
    ) -> list[Hit]:
        return self._loop.wait(self._gateway.search(query, limit=limit, offset=offset, **matching))

    def search_threads(
        self,
        query: str,
        *,
        limit: int = 20,
        cursor: str | None = None,
        passages: int = 3,
        **matching: Unpack[ThreadFilterFields],
    ) -> Page[ThreadHits]:
        found = self._gateway.search_threads(query, limit=limit, cursor=cursor, passages=passages, **matching)
        return self._loop.wait(found)

    def saved_points(self) -> list[SavedPoint]:
        return self._loop.wait(self._gateway.saved_points())

    def forget_saved_point(self, name: str) -> bool:
        return self._loop.wait(self._gateway.forget_saved_point(name))

    def usage(self, **query: Unpack[UsageFilter]) -> list[UsageRow]:
        return self._loop.wait(self._gateway.usage(**query))

    def import_threads(self, lines: bytes) -> list[Thread]:
        return self._loop.wait(self._gateway.import_threads(lines))

    def turn(self, turn_id: str) -> TurnInfo:
        return self._loop.wait(self._gateway.turn(turn_id))

    def reply(self, turn_id: str) -> SyncReply:
        return SyncReply(self._loop, self._gateway.reply(turn_id))


class SyncClient(SyncGateway):
    """A service. Use it with `with`, or call `close`."""

    def __init__(self, loop: LoopThread, client: Client) -> None:
        super().__init__(loop, client)
        self._client = client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._loop.wait(self._client.close())
        self._loop.stop()

    def acting_for(self, user_id: str, surface: Literal["matrix"] | None = "matrix") -> SyncGateway:
        """The same service as this user sees it; for tokens that act for users."""
        return SyncGateway(self._loop, self._client.acting_for(user_id, surface))


class SyncThreadline:
    """An open database. Use it with `with`, or call `close`."""

    def __init__(self, loop: LoopThread, threadline: Threadline) -> None:
        self._loop = loop
        self._threadline = threadline

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._loop.wait(self._threadline.close())
        self._loop.stop()

    def as_user(
        self,
        user: str | None = None,
        *,
        tenant: str | None = None,
        role: UserRole = "member",
        surface: Surface = "api",
    ) -> SyncGateway:
        return SyncGateway(self._loop, self._threadline.as_user(user, tenant=tenant, role=role, surface=surface))


def open_sync(database: str | Path | None = None, **options: Unpack[OpenOptions]) -> SyncThreadline:
    """`threadline.open` without `await`."""
    loop = LoopThread()

    async def opening() -> Threadline:
        return await bootstrap.open(database, **options)

    try:
        return SyncThreadline(loop, loop.wait(opening()))
    except BaseException:
        loop.stop()
        raise


def connect_sync(url: str, *, token: str | None = None, retry: RetryPolicy | None = None) -> SyncClient:
    """`threadline.connect` without `await`."""
    from threadline.client import connect  # noqa: PLC0415 - an extra

    return SyncClient(LoopThread(), connect(url, token=token, retry=retry))
