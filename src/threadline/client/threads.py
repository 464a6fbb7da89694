"""A thread of a service. The contract is `threadline.ports.GatewayThread`."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Unpack
from urllib.parse import quote

import msgspec

from threadline import api_types as api
from threadline.client.replies import CHAT, Prepare, RemoteReply, Request, answer_body
from threadline.client.stored_values import RemoteValues, change_bodies
from threadline.client.transport import Transport
from threadline.client.values import (
    MaybeThread,
    read,
    to_message,
    to_saved_point,
    to_summary,
    to_thread,
    to_timeline,
    to_turn,
)
from threadline.core import parts as parts_
from threadline.core.approvals import Answer, Pending, list_pending
from threadline.core.arguments import (
    as_answers,
    as_client_tools,
    as_question,
    check_int,
    check_point,
    check_str,
    new_messages,
    new_thread,
    thread_changes,
)
from threadline.core.client_tools import ClientTool
from threadline.core.errors import DuplicateId, InvalidInput, NotFound
from threadline.core.events import ToolCall
from threadline.core.ids import check_id, check_name, new_id
from threadline.core.messages import Message, NewMessage
from threadline.core.parts import ToolPart
from threadline.core.threads import (
    Appended,
    ExpectedHead,
    NewThread,
    SavedPoint,
    Thread,
    ThreadChanges,
    ThreadFields,
    ThreadState,
    ThreadUpdate,
    Timeline,
)
from threadline.core.transfer import ExportFormat
from threadline.core.turns import Policy, Summary, TurnInfo
from threadline.core.values import ValueChange
from threadline.ports import Approver, GatewayThread

THREADS = "/api/v1/ai/threads"
HOME = "/api/v1/me/home"
_PAGE = 500
_JSON = {"content-type": "application/json"}


class RemoteThread(GatewayThread):
    def __init__(self, transport: Transport, info: Thread) -> None:
        self._transport = transport
        self.info = info

    async def refresh(self) -> Thread:
        self.info = await read_thread(self._transport, self.id)
        return self.info

    @property
    def values(self) -> RemoteValues:
        return RemoteValues(self._transport, "thread", self.id)

    async def append(
        self,
        *messages: NewMessage | str,
        key: str | None = None,
        expected_count: int | None = None,
        expected_timeline: str | None = None,
        after: int | str | None = None,
        values: Sequence[ValueChange] = (),
    ) -> Appended:
        body = {
            "messages": [_message_body(message) for message in new_messages(messages)],
            **_head_body(expected_count, expected_timeline),
            **_present({"after": check_point(after, "after"), "values": change_bodies(values) or None}),
        }
        headers = {**_JSON, "idempotency-key": new_id() if key is None else check_id("key", key)}
        answer = await self._transport.call(
            "POST", f"{self._path}/messages", headers=headers, content=msgspec.json.encode(body)
        )
        done = read(answer, api.AppendResponse)
        state = ThreadState(**msgspec.structs.asdict(done.thread))
        self.info = state.apply_to(self.info)
        return Appended(
            self.id,
            done.timeline_id,
            done.first_seq,
            done.message_ids,
            done.message_count,
            state,
            done.replayed,
            done.value_versions,
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
    ) -> RemoteReply:
        message = as_question(question)
        parts = message.parts if isinstance(message.parts, bytes) else parts_.encode(message.parts)
        given = {"agentId": agent, "model": model, "policy": policy, "messageId": replaces}
        sent = _present({"id": message.id, "role": message.role, "parts": msgspec.json.decode(parts)})
        body = {"threadId": self.id, "message": sent, **_present(given)}
        if declared := as_client_tools(client_tools):
            body["clientTools"] = {
                each.name: {"description": each.description, "parameters": each.schema} for each in declared
            }
        request_key = new_id() if key is None else check_id("key", key)

        async def prepare() -> Request:
            return Request(self.id, body, request_key)

        return self._reply(prepare, approver)

    async def pending(self) -> list[Pending]:
        newest = await self.messages(newest=1)
        return list_pending(newest[-1].parts) if newest and newest[-1].incomplete is None else []

    def respond(self, answers: Mapping[str, Answer | bool], *, approver: Approver | None = None) -> RemoteReply:
        given = as_answers(answers)

        async def prepare() -> Request:
            newest = await self.messages(newest=1)
            calls = [
                (part.call_id if part.approval is None else part.approval.id, part)
                for part in (newest[-1].parts if newest else ())
                if isinstance(part, ToolPart)
            ]
            named = [(id, ToolCall(part.call_id, part.name, part.input_value())) for id, part in calls if id in given]
            if len(named) != len(given) or not named:
                raise InvalidInput("`answers` must name the calls that the last reply waits for")
            return Request(self.id, answer_body(self.id, newest[-1].id, named, given), new_id())

        return self._reply(prepare, approver)

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
        if isinstance(around, int):
            check_int("around", around, 0)
        window = {} if around is None else {"around": check_point(around, "around"), "within": within}
        return await self._messages(first=first or None, last=last, newest=newest, timeline=timeline, **window)

    async def message(self, message_id: str) -> Message:
        path = f"{self._path}/messages/{check_id('message', message_id)}"
        return to_message(read(await self._transport.call("GET", path), api.StoredMessage))

    async def stream(self) -> AsyncIterator[Message]:
        thread = await self.refresh()
        for first in range(0, thread.message_count, _PAGE):
            last = min(first + _PAGE, thread.message_count) - 1
            for message in await self.messages(first=first, last=last, timeline=thread.timeline_id):
                yield message

    async def last_turns(self, turns: int = 12) -> list[Message]:
        return await self._messages(turns=check_int("turns", turns, 1))

    async def turns(self, *, limit: int = 100) -> list[TurnInfo]:
        answer = await self._transport.call("GET", f"{self._path}/turns", query={"limit": limit})
        return [to_turn(turn) for turn in read(answer, api.TurnsResponse).turns]

    async def branch(self, *, at: int | str | None = None, **fields: Unpack[ThreadFields]) -> RemoteThread:
        body = {**thread_body(new_thread(fields)), **_present({"at": check_point(at)})}
        return await create(self._transport, f"{self._path}/branch", body, is_new_id=fields.get("id") is None)

    async def save(self, name: str, *, at: int | str | None = None) -> SavedPoint:
        body = {"stateKey": self.id, **_present({"at": check_point(at)})}
        path = f"/api/v1/ai/saves/{quote(check_name('saved point', name), safe='')}"
        return to_saved_point(read(await self._transport.call("PUT", path, body), api.SavedPointInfo))

    async def load(self, name: str, *, key: str | None = None, **expected: Unpack[ExpectedHead]) -> None:
        await self._move("load", {"name": check_name("saved point", name), **_head_body(**expected)}, key=key)

    async def undo(self, *, key: str | None = None, **expected: Unpack[ExpectedHead]) -> None:
        await self._move("undo", _head_body(**expected) or None, key=key)

    async def rewind(self, at: int | str, *, before: bool = False, **expected: Unpack[ExpectedHead]) -> None:
        await self._move("rewind", {"at": check_point(at), "before": before, **_head_body(**expected)})

    async def switch(self, timeline_id: str, **expected: Unpack[ExpectedHead]) -> None:
        await self._move("switch", {"timelineId": check_id("timeline", timeline_id), **_head_body(**expected)})

    async def timelines(self) -> list[Timeline]:
        answer = await self._transport.call("GET", f"{self._path}/timelines")
        return [to_timeline(each, self.id) for each in read(answer, api.TimelinesResponse).timelines]

    async def update(self, **changes: Unpack[ThreadUpdate]) -> None:
        body = _changes_body(thread_changes(changes))
        self.info = to_thread(read(await self._transport.call("PATCH", self._path, body), api.ThreadInfo))

    async def compact(self, *, budget: int | None = None) -> Summary | None:
        answer = await self._transport.call("POST", f"{self._path}/compact", _present({"budget": budget}))
        return to_summary(read(answer, api.SummaryResponse))

    async def summary(self) -> Summary | None:
        return to_summary(read(await self._transport.call("GET", f"{self._path}/summary"), api.SummaryResponse))

    async def set_summary(self, text: str) -> Summary:
        body = {"text": check_str("text", text)}
        stored = to_summary(read(await self._transport.call("PUT", f"{self._path}/summary", body), api.SummaryResponse))
        assert stored is not None
        return stored

    async def stop(self, turn_id: str | None = None) -> bool:
        answer = await self._transport.call("POST", f"{CHAT}/{self.id}/stop", _present({"turnId": turn_id}))
        return read(answer, api.StopResponse).stopped > 0

    async def make_home(self) -> None:
        answer = await self._transport.call("PUT", HOME, {"thread": self.id})
        home = read(answer, api.HomeResponse).thread
        self.info = self.info if home is None else to_thread(home)

    async def export(self, format: ExportFormat = "jsonl") -> AsyncIterator[bytes]:
        async with self._transport.open("GET", f"{self._path}/export", query={"format": format}) as answer:
            async for piece in answer.aiter_bytes():
                yield piece

    async def delete(self) -> None:
        await self._transport.call("DELETE", self._path)

    async def purge(self) -> None:
        await self._transport.call("DELETE", f"{self._path}/purge")

    @property
    def _path(self) -> str:
        return f"{THREADS}/{self.id}"

    def _reply(self, prepare: Prepare, approver: Approver | None) -> RemoteReply:
        return RemoteReply(self._transport, prepare, approver)

    async def _messages(self, **query: Any) -> list[Message]:
        answer = await self._transport.call("GET", f"{self._path}/messages", query=query)
        return [to_message(each) for each in read(answer, api.MessagesResponse).messages]

    async def _move(self, verb: str, body: Mapping[str, Any] | None = None, *, key: str | None = None) -> None:
        # With a key of its own a move whose response was lost is repeated without moving twice.
        headers = {"idempotency-key": new_id() if key is None else check_id("key", key)}
        answer = await self._transport.call("POST", f"{self._path}/{verb}", body, headers=headers)
        self.info = to_thread(read(answer, api.ThreadInfo))


async def read_thread(transport: Transport, name: str) -> Thread:
    """By id or state key. NotFound."""
    answer = await transport.call("GET", f"{THREADS}/{name}", query={"tail": 1})
    if read(answer, MaybeThread).id is None:
        raise NotFound("thread", name)
    return to_thread(read(answer, api.ThreadInfo))


async def create(transport: Transport, path: str, body: dict[str, Any], *, is_new_id: bool) -> RemoteThread:
    """Creates a thread, once. With `is_new_id` the id is made up here, so a DuplicateId for it means that an earlier
    attempt, whose response was lost, created the thread."""
    body = {**body, "id": new_id()} if is_new_id else body
    try:
        return RemoteThread(transport, to_thread(read(await transport.call("POST", path, body), api.ThreadInfo)))
    except DuplicateId:
        if not is_new_id:
            raise
        try:
            return RemoteThread(transport, await read_thread(transport, body["id"]))
        except NotFound:
            # The state key is taken by another thread.
            pass
        raise


def thread_body(new: NewThread) -> dict[str, Any]:
    given = {_camel(name): getattr(new, name) for name in NewThread.__struct_fields__ if name != "title_by_person"}
    return {name: value for name, value in given.items() if value not in (None, {})}


def _changes_body(changes: ThreadChanges) -> dict[str, Any]:
    given = {_camel(name): getattr(changes, name) for name in ThreadChanges.__struct_fields__}
    return {name: value for name, value in given.items() if value is not msgspec.UNSET}


def _message_body(message: NewMessage) -> dict[str, Any]:
    parts = message.parts if isinstance(message.parts, bytes) else parts_.encode(message.parts)
    given = {"id": message.id, "metadata": message.metadata, "createdAt": message.created_at}
    return {"role": message.role, "parts": msgspec.Raw(parts), **_present(given)}


def _head_body(expected_count: int | None = None, expected_timeline: str | None = None) -> dict[str, Any]:
    if expected_count is not None:
        check_int("expected_count", expected_count, 0)
    if expected_timeline is not None:
        check_id("timeline", expected_timeline)
    return _present({"expectedCount": expected_count, "expectedTimeline": expected_timeline})


def _camel(name: str) -> str:
    return re.sub(r"_(\w)", lambda found: found[1].upper(), name)


def _present(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}
