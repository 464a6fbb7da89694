"""Verifications: answers clients that want to verify the bot's device by comparing emojis.

A client asks in a room or by to-device messages. The bot accepts, writes the code into its log, and in a room says it
there as well. It cannot see what the client shows, so it confirms as soon as the client does; who wants certainty
compares with the log, because the homeserver could replace what the chat shows. The bot remembers nothing: it sends to
every device in a room, verified or not. What runs is kept in memory: after a restart of the bot people begin again.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import quote

from threadline.matrix import message_format
from threadline.matrix.allow_list import may_talk
from threadline.matrix.events_in import Content, VerificationStep
from threadline.matrix.homeserver import Homeserver, retry_until_up
from threadline.matrix.short_codes import METHOD, Device, ShortCodeExchange, VerificationFailed
from threadline.settings import MatrixSettings

log = logging.getLogger("threadline.matrix")

_CLIENT = "/_matrix/client/v3"
_KIND = "m.key.verification."
# Clients give up after ten minutes as well.
_LASTS_SECONDS = 600.0
_MOST = 100
_COMPARE = "Your client asks you to compare these with what it shows. My operator sees them in my log: "


class _Verification(NamedTuple):
    """One that runs. `room_id` is None if it uses to-device messages."""

    id: str
    theirs: Device
    room_id: str | None
    began: float
    exchange: ShortCodeExchange | None = None


class Verifications:
    """`master_key` gives the public master key of the bot's account, if it has one."""

    def __init__(self, homeserver: Homeserver, settings: MatrixSettings, master_key: Callable[[], str | None]) -> None:
        self._homeserver = homeserver
        self._settings = settings
        self._master_key = master_key
        self._running: dict[tuple[str, str], _Verification] = {}
        # A step is handled after those before it; to-device messages and rooms are read side by side.
        self._in_order = asyncio.Lock()

    async def take(self, step: VerificationStep) -> None:
        """HomeserverRefused, HomeserverAway."""
        is_own = step.sender == self._homeserver.user_id
        if not is_own and not may_talk(self._settings, step.sender):
            return
        async with self._in_order:
            verification = self._running.get((step.sender, step.transaction_id))
            try:
                await self._handle(step, verification)
            except VerificationFailed as exc:
                log.warning("verification failed: %s", exc, extra={"matrix_id": step.sender})
                verification = verification or self._begin(step)
                await self._send(verification, "cancel", {"code": exc.code, "reason": str(exc)})
                self._forget(step)

    async def _handle(self, step: VerificationStep, known: _Verification | None) -> None:
        match step.kind.removeprefix(_KIND):
            case "request":
                await self._accept(step)
            case "start":
                await self._start(step, known)
            case "key" if known is not None:
                await self._compare(step, known)
            case "mac" if known is not None:
                await self._confirm(step, known)
            case "cancel" | "done" if known is not None:
                self._forget(step)

    def _begin(self, step: VerificationStep) -> _Verification:
        now = asyncio.get_running_loop().time()
        self._running = {at: each for at, each in self._running.items() if now - each.began < _LASTS_SECONDS}
        while len(self._running) >= _MOST:
            self._running.pop(next(iter(self._running)))
        theirs = Device(step.sender, str(step.content.get("from_device") or ""))
        begun = _Verification(step.transaction_id, theirs, step.room_id, now)
        self._running[step.sender, step.transaction_id] = begun
        return begun

    def _forget(self, step: VerificationStep) -> None:
        self._running.pop((step.sender, step.transaction_id), None)

    async def _accept(self, step: VerificationStep) -> None:
        if METHOD not in (step.content.get("methods") or []):
            raise VerificationFailed("m.unknown_method", f"the client does not offer {METHOD}")
        ready = {"from_device": self._homeserver.device_id, "methods": [METHOD]}
        await self._send(self._begin(step), "ready", ready)

    async def _start(self, step: VerificationStep, known: _Verification | None) -> None:
        """A client may also start without a request."""
        if known is not None and known.exchange is not None:
            raise VerificationFailed("m.unexpected_message", "a second start")
        begun = known or self._begin(step)
        ours = Device(self._homeserver.user_id, self._homeserver.device_id)
        exchange = ShortCodeExchange(begun.id, ours, begun.theirs, step.content)
        self._running[step.sender, begun.id] = begun._replace(exchange=exchange)
        await self._send(begun, "accept", exchange.accepted())

    async def _compare(self, step: VerificationStep, known: _Verification) -> None:
        content, code = _exchange(known).take_key(step.content)
        await self._send(known, "key", content)
        log.info("verification by %s: compare %s", step.sender, code)
        if known.room_id is not None:
            room_id, notice = known.room_id, message_format.message(f"{_COMPARE}{code}", notice=True)
            await retry_until_up(lambda: self._homeserver.send(room_id, notice, f"{known.id}.code"))

    async def _confirm(self, step: VerificationStep, known: _Verification) -> None:
        exchange = _exchange(known)
        exchange.check_macs(step.content, await self._keys_of(step.sender, known.theirs.device_id))
        device, master = f"ed25519:{self._homeserver.device_id}", self._master_key()
        keys = {device: self._homeserver.identity_keys()[device]}
        if master is not None:
            keys[f"ed25519:{master}"] = master
        await self._send(known, "mac", exchange.macs(keys))
        await self._send(known, "done", {})
        log.info("verification finished", extra={"matrix_id": step.sender})

    async def _keys_of(self, user_id: str, device_id: str) -> dict[str, str]:
        """The key of the device and the user's master key, by id."""
        body = {"device_keys": {user_id: [device_id]}}
        answer = await retry_until_up(lambda: self._homeserver.request("POST", f"{_CLIENT}/keys/query", body))
        device = answer.get("device_keys", {}).get(user_id, {}).get(device_id, {}).get("keys", {})
        master: dict[str, str] = answer.get("master_keys", {}).get(user_id, {}).get("keys", {})
        return {**master, **device}

    async def _send(self, verification: _Verification, step: str, content: Content) -> None:
        """A repeat sends nothing twice: transaction ids follow from the verification."""
        kind, room_id, id = _KIND + step, verification.room_id, verification.id
        transaction = hashlib.sha256(f"{verification.theirs} {id} {step}".encode()).hexdigest()[:32]
        if room_id is not None:
            related = {**content, "m.relates_to": {"rel_type": "m.reference", "event_id": id}}
            await retry_until_up(lambda: self._homeserver.send(room_id, related, transaction, kind=kind))
            return
        user_id, device_id = verification.theirs
        body: dict[str, Any] = {"messages": {user_id: {device_id: {**content, "transaction_id": id}}}}
        path = f"{_CLIENT}/sendToDevice/{quote(kind, safe='')}/{transaction}"
        await retry_until_up(lambda: self._homeserver.request("PUT", path, body))


def _exchange(verification: _Verification) -> ShortCodeExchange:
    if verification.exchange is None:
        raise VerificationFailed("m.unexpected_message", "a message before the start")
    return verification.exchange
