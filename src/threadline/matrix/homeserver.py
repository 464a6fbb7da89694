"""The homeserver client of the bot: the only module that talks to a homeserver, with matrix-nio.

Errors that matrix-nio returns or raises become two exceptions: the server is away, and a retry may help; or it refused,
and a retry does not help. Events are the plain dictionaries of the wire format, decrypted where possible.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

import aiohttp
import nio
from nio.crypto import InboundGroupSession

from threadline.core.errors import ServiceUnavailable, SettingsInvalid, StoreFailed
from threadline.matrix.device import Device, DeviceFolder
from threadline.matrix.events_in import Content, RawEvent
from threadline.messaging import delivery_worker
from threadline.settings import MatrixSettings

T = TypeVar("T")

# Events per request when a gap is filled: most gaps need one request.
_PAGE = 100
_TIMELINE = {"room": {"timeline": {"limit": 20}, "state": {"lazy_load_members": False}}}
# Clients show the notice this long after the bot is gone; it is renewed sooner (`reply_stream`).
_TYPING_MS = 30_000


class HomeserverAway(Exception):
    """It cannot be reached, or is busy. A retry may succeed. `is_outage`: other requests would fail as well."""

    def __init__(self, reason: str, *, is_outage: bool = True) -> None:
        super().__init__(reason)
        self.is_outage = is_outage


class HomeserverRefused(Exception):
    """It refused the request. A retry fails as well."""

    def __init__(self, code: str, message: str, session: str | None = None) -> None:
        super().__init__(f"{message} ({code})" if message else code)
        self.code = code
        self.session = session
        """Set if the homeserver wants the user to authenticate again for this request."""


async def retry_until_up(call: Callable[[], Awaitable[T]]) -> T:
    """Repeats the call while the homeserver, the database or the service is down. Other errors are raised."""
    return await delivery_worker.retry_until_up(call, (StoreFailed, ServiceUnavailable, HomeserverAway))


class RoomBatch(NamedTuple):
    """What a sync brought for one room: events in order. `before` is where those it left out end, if it did."""

    room_id: str
    state: list[RawEvent]
    events: list[RawEvent]
    before: str | None


class Batch(NamedTuple):
    position: str
    rooms: list[RoomBatch]
    invites: dict[str, str]
    """Room ids, and who invited."""
    has_keys: bool
    """Whether keys came with it, so that what was unreadable may be readable now."""
    to_device: list[RawEvent]


class RoomKey(NamedTuple):
    """The key of some messages in a room, as a key backup holds it."""

    room_id: str
    session_id: str
    sender_key: str
    signing_key: str
    exported: str
    forwarding_chain: tuple[str, ...] = ()
    first_index: int = 0


class Homeserver:
    def __init__(self, settings: MatrixSettings, folder: DeviceFolder) -> None:
        if not settings.homeserver or not settings.user:
            raise SettingsInvalid("the Matrix bot needs `homeserver` and `user` in the section [matrix]")
        address = urlsplit(settings.homeserver)
        if address.scheme not in {"http", "https"} or not address.hostname:
            raise SettingsInvalid(
                f"`homeserver` must be an address such as https://matrix.example.org, got {settings.homeserver!r}"
            )
        if not settings.user.startswith("@") or ":" not in settings.user:
            raise SettingsInvalid(f"`user` must be a full id such as @bot:example.org, got {settings.user!r}")
        self._settings = settings
        self._folder = folder
        self._device = folder.device()
        if self._device is not None and self._device.user_id != settings.user:
            raise SettingsInvalid(f"{folder.path} holds the device of {self._device.user_id}, not of {settings.user}")
        config = nio.AsyncClientConfig(max_timeouts=0, max_limit_exceeded=100, store_sync_tokens=False)
        self._client: Any = nio.AsyncClient(
            settings.homeserver.rstrip("/"), settings.user, store_path=str(folder.path), config=config
        )
        self.user_id = settings.user

    async def log_in(self) -> None:
        """With the token of the settings, or the device's, or the password. HomeserverRefused if none works."""
        if self._settings.token:
            await self._take_token(self._settings.token)
            return
        if self._device is not None and self._device.token:
            self._client.restore_login(self.user_id, self._device.device_id, self._device.token)
            try:
                await self._ask(self._client.whoami())
                return
            except HomeserverRefused:
                if not self._settings.password:
                    raise
        await self._log_in_with_password()

    async def _take_token(self, token: str) -> None:
        self._client.access_token = token
        who = await self._ask(self._client.whoami())
        if who.user_id != self.user_id:
            raise SettingsInvalid(f"the token is {who.user_id}'s, not {self.user_id}'s")
        self._client.restore_login(who.user_id, who.device_id or secrets.token_hex(5).upper(), token)
        self._folder.store_device(Device(self._settings.homeserver, who.user_id, self._client.device_id))

    async def _log_in_with_password(self) -> None:
        if not self._settings.password:
            raise SettingsInvalid("set THREADLINE_MATRIX__PASSWORD or THREADLINE_MATRIX__TOKEN")
        self._client.access_token = ""
        # The same device id as before: its keys are still here, and people have seen it.
        self._client.device_id = self._device.device_id if self._device else None
        answer = await self._ask(self._client.login(self._settings.password, self._settings.device_name))
        self._device = Device(self._settings.homeserver, answer.user_id, answer.device_id, answer.access_token)
        self._folder.store_device(self._device)

    async def close(self) -> None:
        await self._client.close()

    async def sync(self, since: str | None, *, wait_seconds: float, full_state: bool = False) -> Batch:
        """The events since then; waits for some up to `wait_seconds`. Uploads and queries keys first."""
        await self.maintain_keys()
        if self._client.olm:
            # nio would cancel verifications that use what it does not know: see `verification`.
            self._client.olm.handle_key_verification = lambda event: None
        wait = 0 if full_state else int(wait_seconds * 1000)
        # nio starts at its own position, which is ahead of ours when a batch is requested again. It also ignores a
        # response that ends at its position: of a homeserver where nothing happened since, the state of every room.
        self._client.next_batch = "" if full_state else since or ""
        answer = await self._ask(
            self._client.sync(timeout=wait, sync_filter=_TIMELINE, since=since, full_state=full_state or None)
        )
        return self._batch(answer)

    async def maintain_keys(self) -> None:
        """Uploads, queries and claims the keys that are missing."""
        if not self._client.olm:
            return
        with contextlib.suppress(HomeserverRefused):
            if self._client.should_upload_keys:
                await self._ask(self._client.keys_upload())
            if self._client.should_query_keys:
                await self._ask(self._client.keys_query())
            if self._client.should_claim_keys:
                await self._ask(self._client.keys_claim(self._client.get_users_for_key_claiming()))
        await self._settled(self._client.send_to_device_messages())

    def _batch(self, answer: Any) -> Batch:
        rooms = [
            RoomBatch(
                room_id,
                [event.source for event in info.state],
                [event.source for event in info.timeline.events],
                info.timeline.prev_batch if info.timeline.limited else None,
            )
            for room_id, info in answer.rooms.join.items()
        ]
        invites = {room_id: self._inviter(info) for room_id, info in answer.rooms.invite.items()}
        to_device = [event.source for event in answer.to_device_events]
        return Batch(answer.next_batch, rooms, invites, bool(to_device), to_device)

    def _inviter(self, info: Any) -> str:
        mine = (event for event in info.invite_state if getattr(event, "state_key", None) == self.user_id)
        return next((event.sender for event in mine if getattr(event, "membership", None) == "invite"), "")

    async def events_between(self, room_id: str, before: str, since: str) -> list[RawEvent]:
        """The events that a sync left out of a room because there were too many, in order."""
        found: list[RawEvent] = []
        start: str | None = before
        while start is not None:
            page = await self._ask(self._client.room_messages(room_id, start, end=since, limit=_PAGE))
            found += [event.source for event in page.chunk]
            start = page.end if page.chunk and page.end != start else None
        return found[::-1]

    async def event(self, room_id: str, event_id: str) -> RawEvent:
        """One event again, decrypted if its key is known by now."""
        found = (await self._ask(self._client.room_get_event(room_id, event_id))).event
        if isinstance(found, nio.MegolmEvent):
            found.room_id = room_id
            with contextlib.suppress(nio.EncryptionError):
                found = self._client.decrypt_event(found)
        source: RawEvent = found.source
        return source

    async def ask_for_key(self, room_id: str, event: RawEvent) -> None:
        """Requests the key of an unreadable message from the sender's devices; they may not respond."""
        megolm = nio.MegolmEvent.from_dict(event)
        megolm.room_id = room_id
        with contextlib.suppress(nio.LocalProtocolError, HomeserverRefused):
            await self._ask(self._client.request_room_key(megolm))

    @property
    def device_id(self) -> str:
        device_id: str = self._client.device_id
        return device_id

    def identity_keys(self) -> dict[str, str]:
        """The device's public keys, as the homeserver lists them."""
        keys = self._client.olm.account.identity_keys
        return {f"{kind}:{self.device_id}": keys[kind] for kind in ("curve25519", "ed25519")}

    def room_keys(self, *, without: Collection[str]) -> list[RoomKey]:
        """The keys of messages that this device can read, without the named ones."""
        return [
            RoomKey(
                each.room_id,
                each.id,
                each.sender_key,
                each.ed25519,
                each.export_session(each.first_known_index),
                tuple(each.forwarding_chain),
                each.first_known_index,
            )
            for each in self._client.olm.inbound_group_store
            if each.id not in without
        ]

    def add_room_key(self, key: RoomKey) -> None:
        """Stores a key of a backup, unless the device has it."""
        olm = self._client.olm
        if olm.inbound_group_store.get(key.room_id, key.sender_key, key.session_id) is not None:
            return
        session = InboundGroupSession.import_session(
            key.exported, key.signing_key, key.sender_key, key.room_id, list(key.forwarding_chain)
        )
        olm.inbound_group_store.add(session)
        olm.save_inbound_group_session(session)

    def is_known(self, room_id: str) -> bool:
        """Whether the sync has listed the room. Before that nothing can be sent there."""
        return room_id in self._client.rooms

    def people(self, room_id: str) -> set[str]:
        """Everyone in the room and everyone invited, but the bot."""
        room = self._client.rooms.get(room_id)
        return set() if room is None else {*room.users, *room.invited_users} - {self.user_id}

    async def is_empty(self, room_id: str) -> bool:
        """Whether the bot is alone in the room. The homeserver is asked, because a room that is left cannot be joined
        again."""
        path = f"/_matrix/client/v3/rooms/{quote(room_id, safe='')}/members?not_membership=leave"
        members = (await self.request("GET", path))["chunk"]
        present = {each["state_key"] for each in members if each["content"].get("membership") in {"join", "invite"}}
        return present == {self.user_id}

    def display_name(self, room_id: str, user_id: str) -> str | None:
        """A user's name as people in the room see it; the same two names are told apart there."""
        room = self._client.rooms.get(room_id)
        name: str | None = None if room is None else room.user_name(user_id)
        return name

    async def send(self, room_id: str, content: Content, transaction_id: str, *, kind: str = "m.room.message") -> str:
        """Sends an event; its id. The same transaction id again gives the event of the first call."""
        if not self.is_known(room_id):
            raise HomeserverAway(f"{room_id} is not known yet", is_outage=False)
        sending = self._client.room_send(room_id, kind, content, tx_id=transaction_id, ignore_unverified_devices=True)
        try:
            event_id: str = (await self._ask(sending)).event_id
        except HomeserverRefused as exc:
            if exc.code == "M_UNKNOWN_TOKEN":
                # The sync notices it as well, and logs in again.
                raise HomeserverAway("logged out", is_outage=False) from exc
            raise
        return event_id

    async def mark_read(self, room_id: str, event_id: str) -> None:
        """Shows the sender that the bot has the message."""
        room, event = quote(room_id, safe=""), quote(event_id, safe="")
        await self.request("POST", f"/_matrix/client/v3/rooms/{room}/receipt/m.read/{event}", {})

    async def shown_message(self, room_id: str, event_id: str) -> RawEvent:
        """A message as it is now: with the content of its last edit."""
        event = await self.event(room_id, event_id)
        latest = event.get("unsigned", {}).get("m.relations", {}).get("m.replace")
        if isinstance(latest, dict) and latest.get("sender") == event.get("sender"):
            found = nio.Event.parse_encrypted_event(latest) if latest.get("type") == "m.room.encrypted" else None
            if isinstance(found, nio.MegolmEvent):
                found.room_id = room_id
                with contextlib.suppress(nio.EncryptionError):
                    latest = self._client.decrypt_event(found).source
            event = {**event, "content": latest["content"].get("m.new_content") or event["content"]}
        return event

    async def redact(self, room_id: str, event_id: str) -> None:
        await self._ask(self._client.room_redact(room_id, event_id))

    async def typing(self, room_id: str, on: bool) -> None:
        await self._ask(self._client.room_typing(room_id, on, _TYPING_MS))

    async def create_room(self, name: str, *, owner: str, state: Sequence[RawEvent] = (), space: bool = False) -> str:
        """A private room, to which the owner is not invited yet. From room version 12 on they have the bot's powers."""
        creation = {"additional_creators": [owner], **({"type": "m.space"} if space else {})}
        body = {"name": name, "preset": "private_chat", "creation_content": creation, "initial_state": list(state)}
        answer = await self.request("POST", "/_matrix/client/v3/createRoom", body)
        room_id: str = answer["room_id"]
        return room_id

    async def invite(self, room_id: str, user_id: str) -> None:
        """Nothing happens if the user is in the room or invited already."""
        member = await self.state(room_id, "m.room.member", user_id) or {}
        if member.get("membership") not in {"join", "invite"}:
            await self._ask(self._client.room_invite(room_id, user_id))

    async def join(self, room_id: str) -> None:
        await self._ask(self._client.join(room_id))

    async def leave(self, room_id: str) -> None:
        await self._ask(self._client.room_leave(room_id))

    async def joined_rooms(self) -> list[str]:
        return list((await self._ask(self._client.joined_rooms())).rooms)

    async def state(self, room_id: str, kind: str, state_key: str = "") -> Content | None:
        """A state event's content; None if the room has none."""
        try:
            answer = await self._ask(self._client.room_get_state_event(room_id, kind, state_key))
        except HomeserverRefused as exc:
            if exc.code == "M_NOT_FOUND":
                return None
            raise
        found: Content = answer.content
        return found

    async def put_state(self, room_id: str, kind: str, content: Content, state_key: str = "") -> None:
        await self._ask(self._client.room_put_state(room_id, kind, content, state_key))

    async def request(self, method: str, path: str, body: Content | None = None) -> Content:
        """A call that matrix-nio does not have; the JSON of its answer."""
        headers = {"Authorization": f"Bearer {self._client.access_token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body)
        response = await self._settled(self._client.send(method, path, data, headers))
        try:
            answer: Any = await self._settled(response.json(content_type=None))
        except ValueError:
            answer = None
        answer = answer if isinstance(answer, dict) else {}
        if response.status >= 500 or response.status == 429:
            raise HomeserverAway(f"it answered {response.status}", is_outage=response.status != 429)
        if response.status >= 400:
            session = answer.get("session") if response.status == 401 and "flows" in answer else None
            code = str(answer.get("errcode") or ("M_FORBIDDEN" if session else "M_UNKNOWN"))
            raise HomeserverRefused(code, str(answer.get("error") or ""), session)
        found: Content = answer
        return found

    async def _ask(self, asking: Awaitable[Any]) -> Any:
        answer = await self._settled(asking)
        if isinstance(answer, nio.ErrorResponse):
            transport = getattr(answer, "transport_response", None)
            if transport is not None and (transport.status >= 500 or transport.status == 429):
                raise HomeserverAway(f"it answered {transport.status}", is_outage=transport.status != 429)
            raise HomeserverRefused(str(answer.status_code or "M_UNKNOWN"), str(answer.message or ""))
        return answer

    async def _settled(self, asking: Awaitable[Any]) -> Any:
        try:
            return await asking
        except (TimeoutError, aiohttp.ClientError, OSError) as exc:
            raise HomeserverAway(f"{self._client.homeserver}: {str(exc) or type(exc).__name__}") from exc
        except (nio.LocalProtocolError, nio.SendRetryError) as exc:
            raise HomeserverAway(str(exc)) from exc
