"""What the three stand-ins have in common: people write, the service is told, its replies are taken and kept.

`say` delivers at once. `write` only makes the webhook, so that a test can hold it back, repeat it and change the order
before it delivers. `fail_next` makes the next calls of the send API go wrong in a way that the real one knows.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, NamedTuple, Self

from threadline.clock import SystemClock
from threadline.core.turns import Surface
from threadline.ports import Clock
from threadline.testing.platforms.loopback import Asked, HungUp, LoopbackServer, Told, ask

# Generous, because test machines are loaded: only a delivery that never arrives runs into it.
_SECONDS = 30.0


class Fault(NamedTuple):
    """What goes wrong with one call. `silent` accepts the message and never responds."""

    kind: Literal["rate_limited", "server_error", "silent", "refused", "window_closed"]
    retry_after: int = 1


class Reply(NamedTuple):
    """A message that a user got."""

    recipient: str
    text: str
    payload: Mapping[str, Any]
    at: dt.datetime
    message_id: str = ""
    """The platform's id of it."""


class Edit(NamedTuple):
    """A message that was changed: its id, what it says now, and whether it still has buttons."""

    message_id: str
    text: str
    has_buttons: bool


class Sign(NamedTuple):
    """What shows that a reply is being written: the text of a draft, or nothing where only that is shown."""

    where: str
    text: str


class Notice(NamedTuple):
    """A text that only one person saw."""

    to: str
    text: str


class FakePlatform:
    """Enter it with `async with`. `sent` are the replies it took, `edits` and `notices` what else it was told, `calls`
    counts the requests to its send API."""

    platform: ClassVar[Surface]
    person: ClassVar[str]
    """The sender, unless another one is given."""

    def __init__(self, clock: Clock | None = None, *, port: int = 0) -> None:
        self._port = port
        self.signs: list[Sign] = []
        """Signs that a reply is being written, and drafts of it."""
        self.has_drafts = True
        self.clock = clock or SystemClock()
        self.webhook: str | None = None
        self.sent: list[Reply] = []
        self.edits: list[Edit] = []
        self.notices: list[Notice] = []
        self.calls = 0
        self._faults: deque[Fault] = deque()
        self._changed = asyncio.Condition()
        self._server = LoopbackServer(self._answer)

    @property
    def secrets(self) -> dict[str, str]:
        """The credentials that a tenant of the service stores for this platform."""
        raise NotImplementedError

    @property
    def api(self) -> str:
        """Where the service sends replies to: the channel's own setting."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        await self._server.start(self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.close()

    def account(self, name: str) -> str:
        """The id of an account on this platform, always the same for a name."""
        return str(10_000_000 + zlib.crc32(name.encode()) % 90_000_000)

    def write(self, text: str, sender: str | None = None) -> bytes:
        """What a person writes to the bot, as a webhook that is still to be delivered."""
        raise NotImplementedError

    def sign(self, body: bytes) -> dict[str, str]:
        """The headers under which the platform delivers this body now."""
        raise NotImplementedError

    def press(self, question: Reply, label: str, sender: str | None = None) -> bytes:
        """What the platform delivers when a person presses the button with this label."""
        raise NotImplementedError

    async def until(self, holds: Callable[[], bool], seconds: float = _SECONDS) -> None:
        """Waits until something that this platform was told makes it true. TimeoutError."""
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(holds)

    async def say(self, text: str, sender: str | None = None) -> Told:
        return await self.deliver(self.write(text, sender))

    async def deliver(self, body: bytes, headers: Mapping[str, str] | None = None) -> Told:
        """One attempt, signed unless headers are given. The service's answer."""
        assert self.webhook is not None, "no webhook is set"
        signed = self.sign(body) if headers is None else headers
        return await ask("POST", self.webhook, {"content-type": "application/json", **signed}, body)

    async def deliver_often(self, body: bytes, times: int) -> list[Told]:
        """Delivers the same webhook many times in parallel."""
        return await asyncio.gather(*(self.deliver(body) for _ in range(times)))

    def fail_next(self, *faults: Fault) -> None:
        self._faults.extend(faults)

    def recover(self) -> None:
        """Nothing goes wrong any more."""
        self._faults.clear()

    async def replies(self, count: int, seconds: float = _SECONDS) -> list[Reply]:
        """All replies, once there are at least so many. TimeoutError."""
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(lambda: len(self.sent) >= count)
            return list(self.sent)

    async def _answer(self, asked: Asked) -> Told:
        raise NotImplementedError

    async def _take(self, recipient: str, text: str, payload: Mapping[str, Any], message_id: str) -> None:
        async with self._changed:
            self.sent.append(Reply(recipient, text, payload, self.clock.now(), message_id))
            self._changed.notify_all()

    async def _edit(self, message_id: str, text: str, *, has_buttons: bool) -> None:
        async with self._changed:
            self.edits.append(Edit(message_id, text, has_buttons))
            self._changed.notify_all()

    async def _show(self, where: str, text: str = "") -> None:
        async with self._changed:
            self.signs.append(Sign(where, text))
            self._changed.notify_all()

    async def _notice(self, to: str, text: str) -> None:
        async with self._changed:
            self.notices.append(Notice(to, text))
            self._changed.notify_all()

    def _fault(self) -> Fault | None:
        self.calls += 1
        return self._faults.popleft() if self._faults else None


async def fall_silent() -> Told:
    """What a caller meets whose message was taken and whose answer got lost."""
    raise HungUp


def told(value: Any, status: int = 200, **headers: str) -> Told:
    named = {name.replace("_", "-"): said for name, said in headers.items()}
    return Told(status, json.dumps(value).encode(), named)
