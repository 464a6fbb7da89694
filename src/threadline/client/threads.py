"""A thread of a service in the hand, with the verbs that the library's has.

A thread is named by its state key, which is chosen here, so that a first message that is sent twice begins one thread.
`info` is the thread as the last call left it; before the first message there is none.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import quote

from threadline.api_types import (
    SavedPointInfo,
    ThreadHistory,
    ThreadInfo,
    TimelinesResponse,
    TurnInfo,
    TurnsResponse,
)
from threadline.client.conversion import to_saved_point, to_timeline
from threadline.client.replies import Prepare, RemoteReply, answer_body, replay, stop
from threadline.client.transport import Transport
from threadline.client.values import Known, UiMessage, messages_of, read
from threadline.core.approvals import ApprovalDecision, Pending, list_pending
from threadline.core.errors import DuplicateId, InvalidInput, NotFound
from threadline.core.events import Event, ToolCall
from threadline.core.ids import check_state_key, new_id, new_state_key
from threadline.core.parts import ToolPart
from threadline.core.threads import SavedPoint, Timeline
from threadline.ports import Approver

THREADS = "/api/v1/ai/threads"
_PAGE = 500


class RemoteThread:
    """One thread. Two handles on the same thread are fine: the service keeps the order."""

    def __init__(
        self, transport: Transport, state_key: str, info: ThreadInfo | None = None, *, agent_id: str | None = None
    ) -> None:
        self._transport = transport
        self.state_key = check_state_key(state_key)
        self.info = info
        self._agent_id = agent_id

    def __repr__(self) -> str:
        return f"<thread {self.state_key} of a service>"

    @property
    def id(self) -> str:
        """What it is found under again."""
        return self.state_key

    async def begin(self, *, title: str | None = None) -> ThreadInfo:
        """Makes the thread before anything is asked. One that is there already stays as it is."""
        given = {"stateKey": self.state_key, "title": title, "agentId": self._agent_id}
        try:
            self.info = read(await self._transport.call("POST", THREADS, _present(given)), ThreadInfo)
        except DuplicateId:
            return await self.refresh()
        return self.info

    def ask(
        self,
        question: str,
        *,
        agent: str | None = None,
        key: str | None = None,
        policy: str | None = None,
        approver: Approver | None = None,
        message_id: str | None = None,
        instead_of: str | None = None,
    ) -> RemoteReply:
        """A turn: await the reply, or iterate over its events while it is written. Every attempt has the same key, so
        that it is stored once: whoever asks again with the key that they gave reads the same turn from its beginning.
        The question is stored under `message_id`, in the place of the earlier question `instead_of`. Without an
        `approver`, a tool that needs approval leaves it pending, for `respond`."""
        message = _present({"id": message_id, "role": "user", "parts": [{"type": "text", "text": question}]})
        given = {"agentId": agent or self._agent_id, "policy": policy, "messageId": instead_of}
        body = {"id": self.state_key, "message": message, **_present(given)}

        async def prepare() -> Mapping[str, Any]:
            return body

        return self._reply(prepare, key=key, approver=approver)

    async def pending(self) -> list[Pending]:
        """The approvals that the last reply waits for."""
        newest = await self.last_turns(1) if await self._exists() else []
        return list_pending(newest[-1].parts) if newest else []

    def respond(
        self, answers: Mapping[str, ApprovalDecision | bool], *, approver: Approver | None = None
    ) -> RemoteReply:
        """Answers every pending approval, by its id; the same reply goes on. InvalidInput for one nobody asked for."""
        given = {key: ApprovalDecision(said) if isinstance(said, bool) else said for key, said in answers.items()}

        async def prepare() -> Mapping[str, Any]:
            newest = await self.last_turns(1)
            calls = [
                (part.approval.id, ToolCall(part.call_id, part.name, part.input_value()))
                for part in (newest[-1].parts if newest else ())
                if isinstance(part, ToolPart) and part.approval is not None and part.approval.id in given
            ]
            if len(calls) != len(given) or not calls:
                raise InvalidInput("an approval is answered that nobody asked for here")
            return answer_body(self.state_key, newest[-1].id, calls, given)

        return self._reply(prepare, approver=approver)

    async def refresh(self) -> ThreadInfo:
        """Reads the thread again. NotFound before its first message, and once it is deleted."""
        self.info = await self._history(tail=1)
        return self.info

    async def messages(self, *, first: int = 0, last: int | None = None) -> list[UiMessage]:
        return messages_of(await self._history(first=first, last=last))

    async def stream(self) -> AsyncIterator[UiMessage]:
        """The whole history, page by page."""
        count = (await self.refresh()).message_count
        for first in range(0, count, _PAGE):
            for message in await self.messages(first=first, last=min(first + _PAGE, count) - 1):
                yield message

    async def last_turns(self, turns: int = 12) -> list[UiMessage]:
        """The newest messages that begin with the `turns`-th last one of the user's; all if there are fewer."""
        if turns < 1:
            raise InvalidInput("ask for one turn or more")
        tail = 2 * turns
        while True:
            history = await self._history(tail=tail)
            found = messages_of(history)
            asked = [number for number, message in enumerate(found) if message.role == "user"]
            if len(asked) >= turns:
                return found[asked[-turns] :]
            if history.first_seq == 0:
                return found
            tail *= 4

    async def branch(
        self, *, at: int | str | None = None, title: str | None = None, state_key: str | None = None
    ) -> RemoteThread:
        """A new thread that begins as this one up to `at` (a seq or a message id; default: all of it)."""
        key = state_key or new_state_key()
        given = {"at": at, "title": title, "stateKey": key}
        try:
            info = read(await self._post("branch", given), ThreadInfo)
        except DuplicateId:
            if state_key is not None:
                raise
            # The key was made up here, so it is an earlier attempt, whose answer was lost, that took it.
            return await RemoteThread(self._transport, key).found()
        return RemoteThread(self._transport, key, info)

    async def save(self, name: str, *, at: int | str | None = None) -> SavedPoint:
        given = {"stateKey": self.state_key, **({} if at is None else {"at": at})}
        answer = await self._transport.call("PUT", f"/api/v1/ai/saves/{quote(name, safe='')}", given)
        return to_saved_point(read(answer, SavedPointInfo))

    async def load(self, name: str, *, key: str | None = None) -> None:
        """Goes on from the saved point, once for each key."""
        self.info = read(await self._post("load", {"name": name}, key=key or new_id()), ThreadInfo)

    async def undo(self, *, key: str | None = None) -> None:
        """Goes back to before the last user message, once for each key; `switch` takes it back."""
        self.info = read(await self._post("undo", key=key or new_id()), ThreadInfo)

    async def switch(self, timeline_id: str) -> None:
        self.info = read(await self._post("switch", {"timelineId": timeline_id}), ThreadInfo)

    async def timelines(self) -> list[Timeline]:
        answer = read(await self._transport.call("GET", f"{self._path}/timelines"), TimelinesResponse)
        thread_id = (self.info or await self.refresh()).id
        return [to_timeline(each, thread_id) for each in answer.timelines]

    async def turns(self, *, limit: int = 100) -> list[TurnInfo]:
        """Newest first, whichever timeline they were on."""
        answer = await self._transport.call("GET", f"{self._path}/turns", query={"limit": limit})
        return read(answer, TurnsResponse).turns

    async def update(
        self,
        *,
        title: str | None = None,
        archived: bool | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        given = {"title": title, "archived": archived, "metadata": metadata}
        self.info = read(await self._transport.call("PATCH", self._path, _present(given)), ThreadInfo)

    async def delete(self) -> None:
        await self._transport.call("DELETE", self._path)

    async def replay(self, turn_id: str) -> AsyncIterator[Event]:
        """What a turn of this thread says, from its beginning until it has ended, however long ago it began."""
        async for event in replay(self._transport, self.state_key, turn_id, self._lookup):
            yield event

    async def stop(self, turn_id: str | None = None) -> bool:
        """Ends what runs on it, or only this turn; what was shown is kept. False if nothing was running."""
        return await stop(self._transport, self.state_key, turn_id)

    async def export(self, format: str = "jsonl") -> AsyncIterator[bytes]:
        """The thread as `jsonl`, `json` or `markdown`, piece by piece."""
        async with self._transport.open("GET", f"{self._path}/export", query={"format": format}) as answer:
            async for piece in answer.aiter_bytes():
                yield piece

    async def found(self) -> RemoteThread:
        """Itself, read anew. NotFound."""
        await self.refresh()
        return self

    @property
    def _path(self) -> str:
        return f"{THREADS}/{self.state_key}"

    def _reply(self, prepare: Prepare, *, key: str | None = None, approver: Approver | None = None) -> RemoteReply:
        return RemoteReply(self._transport, self.state_key, prepare, self._lookup, key=key, approver=approver)

    async def _lookup(self, message_id: str) -> UiMessage | None:
        """A message of the last turns: what was just answered, also where something else was said by now."""
        return next((each for each in await self.last_turns(3) if each.id == message_id), None)

    async def _exists(self) -> bool:
        answer = await self._transport.call("GET", self._path, query={"tail": 1})
        return read(answer, Known).id is not None

    async def _history(self, **query: int | None) -> ThreadHistory:
        answer = await self._transport.call("GET", self._path, query=query)
        if read(answer, Known).id is None:
            raise NotFound("thread", self.state_key)
        self.info = read(answer, ThreadInfo)
        return read(answer, ThreadHistory)

    async def _post(self, verb: str, body: Mapping[str, Any] | None = None, *, key: str | None = None) -> bytes:
        headers = {} if key is None else {"idempotency-key": key}
        return await self._transport.call("POST", f"{self._path}/{verb}", _present(body or {}), headers=headers)


def _present(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}
