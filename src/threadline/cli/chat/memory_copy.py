"""A chat's copy in memory, where a local chat continues while its database fails.

While the database works, `remember` copies what the agent is shown: the thread with its newest turns and its summary,
the pinned context, the agent. When the database fails, `open` puts that into a database in memory, and the chat goes
through the same gateway and the same turn path there. Once the database works again, `save` stores what was added;
messages keep their ids, so a repeated `save` stores nothing twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import msgspec

from threadline import bootstrap
from threadline.agents.tools import Tool
from threadline.bootstrap import Threadline
from threadline.cli.connection import user_scope
from threadline.core.channels import Agent as AgentRow
from threadline.core.context import SUMMARY_HEAD
from threadline.core.errors import GuardRefused, NotFound, StoreUnavailable
from threadline.core.messages import Message, NewMessage, new_message
from threadline.core.parts import Part
from threadline.core.threads import Thread, ThreadFields, ThreadUpdate
from threadline.core.turns import Summary, TurnEnd, TurnInfo, TurnStatus, reply_id
from threadline.library import ThreadHandle, UserView
from threadline.ports.gateway import GatewayThread
from threadline.settings import Settings
from threadline.turns.acceptance import Ending

# More turns than the window of a prompt usually holds.
_TURNS = 200
_THREADS = 100
# Each question of an unsaved chat tries to save first: a database that is still locked delays it by no more than this.
_SAVE_SECONDS = 2.0


class _Copied(NamedTuple):
    """A thread and its messages after the summary."""

    info: Thread
    messages: tuple[Message, ...]
    summary: Summary | None


class Saved(NamedTuple):
    """What `save` stored: the number of messages, and the chat on the database again."""

    messages: int
    gateway: UserView
    thread: ThreadHandle | None


class MemoryCopy:
    def __init__(
        self,
        settings: Settings,
        open_database: Callable[[], Awaitable[Threadline]],
        database: Threadline | None,
        *,
        can_write: bool,
        tools: Sequence[Tool] = (),
    ) -> None:
        """`database` is None if it could not be opened. If it cannot be written either, `save` opens it again. Its
        opener closes it, this object closes what it opened itself."""
        self._can_write = can_write
        self._settings = settings
        self._tools = tools
        self._open_database = open_database
        self._database = database
        self._opened = contextlib.AsyncExitStack()
        self._memory: Threadline | None = None
        self._copied: _Copied | None = None
        self._agents: dict[str, AgentRow] = {}
        self._pinned: dict[str, str] = {}
        self._cut_off: dict[str, str] = {}
        """Turns that are stored without their end: the id of the question by the id of the turn."""
        self._replies_saved: set[str] = set()
        """Replies in memory that ended such a turn: they are stored under the id of that turn's reply."""

    async def close(self) -> None:
        if self._memory is not None:
            await self._memory.close()
        await self._opened.aclose()

    async def remember(self, thread: GatewayThread | None, agent_id: str) -> None:
        """Copies the thread as it is now. StoreFailed keeps the earlier copy."""
        if self._database is None or self._memory is not None:
            return
        session = self._database.store.scoped(user_scope(self._database))
        agent, pinned = await session.agent(agent_id), await session.context(agent_id)
        self._agents = {} if agent is None else {agent_id: agent}
        self._pinned = {} if pinned is None else {agent_id: pinned.context}
        if thread is None:
            self._copied = None
        else:
            summary = await session.summary(thread.id)
            covered = -1 if summary is None else summary.point.seq
            messages = [message for message in await thread.last_turns(_TURNS) if message.seq > covered]
            self._copied = _Copied(thread.info, tuple(messages), summary)

    async def open(self, thread: GatewayThread | None) -> tuple[UserView, ThreadHandle | None]:
        """The gateway in memory, and the thread on it as it was remembered. A thread that is not remembered was created
        just now and is empty."""
        self._memory = memory = await bootstrap.open(
            settings=msgspec.structs.replace(self._settings, database=":memory:"), tools=self._tools
        )
        scope, view = user_scope(memory), memory.as_user(surface="cli")
        for row in self._agents.values():
            await memory.store.scoped(scope).put_agent(row)
        for agent_id, text in self._pinned.items():
            # A guard that was configured after the text was pinned may refuse it.
            with contextlib.suppress(GuardRefused):
                await view.contexts.set(agent_id, text)
        if thread is None:
            return view, None
        copied = self._copied if self._copied is not None and self._copied.info.id == thread.id else None
        handle = await view.create_thread(**_fields(thread.info))
        if copied is not None and (messages := _shown(copied)):
            await handle.append(*messages)
        return view, handle

    async def adopt(
        self, thread: GatewayThread, question: NewMessage, turn: TurnInfo, status: TurnStatus, parts: tuple[Part, ...]
    ) -> None:
        """Adds a turn that is stored without its end. Without parts nothing was answered yet: the question is asked
        again in memory, which adds it."""
        assert question.id is not None  # the session gives every question an id
        self._cut_off[turn.id] = question.id
        if parts:
            metadata = {} if status == "executed" else {"status": status}
            await thread.append(question, NewMessage("assistant", parts, id=reply_id(turn.id), metadata=metadata))

    async def save(self, thread: GatewayThread | None) -> Saved:
        """Stores what was said in memory, and closes the database in memory. StoreFailed: the chat stays in memory."""
        try:
            async with asyncio.timeout(_SAVE_SECONDS):
                return await self._save(thread)
        except TimeoutError as exc:
            raise StoreUnavailable("the database does not answer") from exc

    async def _save(self, thread: GatewayThread | None) -> Saved:
        assert self._memory is not None
        if self._database is None or not self._can_write:
            self._database = await self._opened.enter_async_context(await self._open_database())
            self._can_write = True
        view, stored = self._memory.as_user(surface="cli"), self._database.as_user(surface="cli")
        count = 0
        for info in (await view.threads(limit=_THREADS, archived=None)).items:
            count += await self._save_thread(await view.thread(info.id), stored)
        await self._save_pinned(view, stored)
        found = None if thread is None else await stored.thread(thread.id)
        memory, self._memory = self._memory, None
        self._cut_off, self._replies_saved = {}, set()
        await memory.close()
        return Saved(count, stored, found)

    async def count_unsaved(self) -> int:
        """How many messages are in memory only."""
        if self._memory is None:
            return 0
        known = {message.id for message in self._copied.messages} if self._copied is not None else set()
        known |= {*self._cut_off.values(), *self._replies_saved}
        view, count = self._memory.as_user(surface="cli"), 0
        for info in (await view.threads(limit=_THREADS, archived=None)).items:
            messages = await (await view.thread(info.id)).messages()
            count += sum(message.id not in known and message.role != "system" for message in messages)
        return count

    async def _save_thread(self, handle: ThreadHandle, stored: UserView) -> int:
        history = [message async for message in handle.stream() if message.role != "system"]
        try:
            target = await stored.thread(handle.id)
        except NotFound:
            if not history:
                return 0
            target = await stored.create_thread(**_fields(handle.info))
        await self._end_cut_off(history)
        present = {message.id for message in await target.messages(newest=len(history) + _TURNS)} | self._replies_saved
        await self._save_undo(target, history)
        missing = [_again(message) for message in history if message.id not in present]
        if missing:
            await target.append(*missing)
        await _save_changes(target, handle.info)
        return len(missing)

    async def _end_cut_off(self, history: list[Message]) -> None:
        """Ends turns whose end could not be stored, with the reply that the chat has shown."""
        assert self._database is not None
        scope = user_scope(self._database)
        for question, reply in itertools.pairwise(history):
            turn_id = next((turn for turn, asked in self._cut_off.items() if asked == question.id), None)
            if turn_id is None or reply.role != "assistant" or reply.id in self._replies_saved:
                continue
            turn = await self._database.turns.find(scope, turn_id)
            if turn.is_active:
                again = NewMessage("assistant", reply.parts_json, id=reply_id(turn_id), metadata=reply.metadata)
                end = TurnEnd(reply.metadata.get("status", "executed"))
                await self._database.turns.finish(scope, turn, Ending(end, again, []))
                self._replies_saved.add(reply.id)

    async def _save_undo(self, target: ThreadHandle, history: list[Message]) -> None:
        """Rewinds the stored thread if a turn of it was undone in memory."""
        if self._copied is None or self._copied.info.id != target.id or not self._copied.messages:
            return
        left = {message.id for message in history}
        kept = [message for message in self._copied.messages if message.id in left]
        if len(kept) < len(self._copied.messages) and (await target.messages(newest=1))[-1].id not in left:
            await target.rewind(kept[-1].id if kept else self._copied.messages[0].id, before=not kept)

    async def _save_pinned(self, view: UserView, stored: UserView) -> None:
        for agent_id in {*self._pinned, self._settings.agent}:
            try:
                text = (await view.contexts.get(agent_id)).context
            except NotFound:
                if agent_id in self._pinned:
                    await stored.contexts.clear(agent_id)
                continue
            if text != self._pinned.get(agent_id):
                await stored.contexts.set(agent_id, text)


def _fields(info: Thread) -> ThreadFields:
    return ThreadFields(
        id=info.id,
        state_key=info.state_key,
        title=info.title,
        agent_id=info.agent_id,
        model=info.model,
        system_prompt=info.system_prompt,
        working_dir=info.working_dir,
        metadata=info.metadata,
    )


def _shown(copied: _Copied) -> list[NewMessage]:
    """The messages an agent is shown. A summary becomes a system message: the copy has none of what it covers."""
    summary = [] if copied.summary is None else [new_message("system", SUMMARY_HEAD + copied.summary.text)]
    return [*summary, *(_again(message) for message in copied.messages)]


def _again(message: Message) -> NewMessage:
    return NewMessage(
        message.role, message.parts_json, message.id, metadata=message.metadata, created_at=message.created_at
    )


async def _save_changes(target: ThreadHandle, info: Thread) -> None:
    changes: ThreadUpdate = {}
    if info.model != target.model:
        changes["model"] = info.model
    if info.title != target.title and info.title is not None:
        changes["title"] = info.title
    if changes:
        await target.update(**changes)
