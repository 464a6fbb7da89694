"""People on Matrix: real matrix-nio clients that talk to the bot and see what their client would show."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from typing import Any, Self

import nio

from tests.matrix.synapse import Synapse

PATIENCE = 30.0
WHOLE = {"room": {"timeline": {"limit": 100}}}
"""Of more than ten events at once, which a busy machine gathers, a client is otherwise told the last ten."""


class Shown:
    """A message as a client shows it now: after its edits."""

    def __init__(self, event: dict[str, Any]) -> None:
        self.event_id: str = event["event_id"]
        self.sender: str = event["sender"]
        self.content: dict[str, Any] = event["content"]
        self.relation: dict[str, Any] = event["content"].get("m.relates_to", {})
        self.edits = 0

    @property
    def text(self) -> str:
        return str(self.content.get("body", ""))

    def __repr__(self) -> str:
        return f"<{self.sender}: {self.text}>"


class MatrixUser:
    """Someone with a client that syncs all the time. What it is told is kept room by room."""

    def __init__(self, synapse: Synapse, name: str, *, folder: str = "") -> None:
        self.password = secrets.token_hex(8)
        self.id = synapse.register(name, self.password)
        config = nio.AsyncClientConfig(store_sync_tokens=False, encryption_enabled=bool(folder))
        self.client: Any = nio.AsyncClient(synapse.url, self.id, store_path=folder, config=config)
        self.rooms: dict[str, dict[str, Shown]] = {}
        self.invited: dict[str, dict[str, Any]] = {}
        self.state: dict[str, dict[tuple[str, str], dict[str, Any]]] = {}
        self.redacted: set[str] = set()
        self.typing: list[tuple[str, list[str]]] = []
        self._changed = asyncio.Condition()
        self._syncing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.client.login(self.password)
        self._syncing = asyncio.create_task(self._sync())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._syncing is not None
        self._syncing.cancel()
        await asyncio.gather(self._syncing, return_exceptions=True)
        await self.client.close()

    async def _sync(self) -> None:
        while True:
            answer = await self.client.sync(timeout=10_000, sync_filter=WHOLE, full_state=None)
            if not isinstance(answer, nio.SyncResponse):
                await asyncio.sleep(0.2)
                continue
            async with self._changed:
                self._take(answer)
                self._changed.notify_all()
            with contextlib.suppress(nio.LocalProtocolError):
                await self._exchange_keys()

    async def _exchange_keys(self) -> None:
        if self.client.olm:
            if self.client.should_upload_keys:
                await self.client.keys_upload()
            if self.client.should_query_keys:
                await self.client.keys_query()

    def _take(self, answer: Any) -> None:
        for room_id in answer.rooms.invite:
            self.invited[room_id] = {}
        for room_id, info in answer.rooms.join.items():
            self.invited.pop(room_id, None)
            for event in [*info.state, *info.timeline.events]:
                self._show(room_id, event.source)
            for event in info.ephemeral:
                if isinstance(event, nio.TypingNoticeEvent):
                    self.typing.append((room_id, list(event.users)))

    def _show(self, room_id: str, event: dict[str, Any]) -> None:
        if "state_key" in event:
            self.state.setdefault(room_id, {})[event["type"], event["state_key"]] = event["content"]
        if event["type"] == "m.room.redaction":
            self.redacted.add(event.get("redacts") or event["content"]["redacts"])
        if event["type"] == "m.room.encrypted":
            event = {**event, "content": {"body": "(encrypted)"}}
        elif event["type"] != "m.room.message":
            return
        messages = self.rooms.setdefault(room_id, {})
        relation = event["content"].get("m.relates_to", {})
        if relation.get("rel_type") == "m.replace":
            shown = messages[relation["event_id"]]
            shown.content, shown.edits = event["content"]["m.new_content"], shown.edits + 1
        else:
            messages.setdefault(event["event_id"], Shown(event))

    async def until(self, seen: Callable[[], Any], what: str = "") -> Any:
        """What `seen` gives, as soon as it gives something."""
        async with self._changed:
            try:
                await asyncio.wait_for(self._changed.wait_for(seen), PATIENCE)
            except TimeoutError:
                sees = str(self.rooms)[-3000:]
                raise AssertionError(f"{what or 'that'} did not happen; {self.id} sees …{sees}") from None
            return seen()

    def told(self, room_id: str, by: str) -> list[Shown]:
        return [shown for shown in self.rooms.get(room_id, {}).values() if shown.sender == by]

    async def create_room(self, *invited: str, encrypted: bool = False, **more: Any) -> str:
        state = [nio.EnableEncryptionBuilder().as_dict()] if encrypted else []
        answer = await self.client.room_create(invite=list(invited), initial_state=state, **more)
        assert isinstance(answer, nio.RoomCreateResponse), answer
        room_id: str = answer.room_id
        await self.until(lambda: room_id in self.client.rooms)
        return room_id

    async def join(self, room_id: str) -> None:
        answer = await self.client.join(room_id)
        assert isinstance(answer, nio.JoinResponse), answer
        await self.until(lambda: room_id in self.client.rooms)

    async def say(self, room_id: str, text: str, **more: Any) -> str:
        content = {"msgtype": "m.text", "body": text, **more}
        answer = await self.client.room_send(room_id, "m.room.message", content, ignore_unverified_devices=True)
        assert isinstance(answer, nio.RoomSendResponse), answer
        event_id: str = answer.event_id
        return event_id

    async def hear(self, room_id: str, by: str, text: str) -> Shown:
        """The first message by someone that says this, in part or whole."""

        def found() -> Shown | None:
            return next((shown for shown in self.told(room_id, by) if text in shown.text), None)

        shown: Shown = await self.until(found, f"{text!r} by {by}")
        return shown

    async def ask(self, room_id: str, by: str, text: str) -> Shown:
        """Says something and waits for the next message by someone."""
        before = len(self.told(room_id, by))
        await self.say(room_id, text)
        shown: list[Shown] = await self.until(lambda: self.told(room_id, by)[before:], f"an answer to {text!r}")
        return shown[0]
