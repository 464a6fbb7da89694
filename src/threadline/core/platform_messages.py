"""What passes between a messaging platform and the house: what it delivered, what is to be sent, what came of that.

A webhook's body is read into a `Delivery`; a reply goes out as `HttpRequest`s, and the platform's answer to each is
judged to be one `Outcome`. These are plain values. They hold no clock and open no socket, and what they hold of a
credential does not show in their `repr`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from threadline.core.turns import Surface

IgnoredReason: TypeAlias = Literal[
    "own", "bot", "unaddressed", "empty", "edit", "deletion", "membership", "status", "unknown", "broken"
]


class Arrival(msgspec.Struct, frozen=True):
    """One message that a platform delivered: read, and not yet judged."""

    platform: Surface
    key: str
    """The platform's id of the message, the same however often and in whatever envelope it is delivered. Unique in
    (tenant, platform)."""
    sender: str
    """The id that links know."""
    place: str
    """What bindings know: a chat, a channel, a room."""
    recipient: str
    """Where the reply goes: the place, and the thread inside it where the platform has such. Opaque to all but its
    channel, and what `Channel.request` takes."""
    text: str
    """Without a mention of the bot at its beginning; what cannot be shown as text is named in it, never fetched."""
    sent_at: dt.datetime
    """By the platform's clock, in UTC."""
    shared: bool = False
    """Others read along here."""
    reply_to: str | None = None
    """The key of the message that this one answers."""


class Ignored(NamedTuple):
    """What is acknowledged and gets no turn. `broken` is what the platform signed and nobody can read."""

    reason: IgnoredReason
    detail: str = ""
    """For the operator: which type or field. Never the text of a message."""


class HttpRequest(NamedTuple):
    """One request to a platform, complete: whoever sends it adds nothing but the length."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes = b""
    repeatable: bool = False
    """The platform recognises a second one by its key, so that an unclear outcome may simply be tried again."""

    def __repr__(self) -> str:
        # Telegram's token stands in the address, the others' in a header.
        return f"HttpRequest({self.method}, {len(self.body)} bytes)"


class HttpResponse(NamedTuple):
    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes = b""


class Sent(NamedTuple):
    message_id: str | None = None


class Transient(NamedTuple):
    """Not sent; later it may be."""

    reason: str
    retry_after: float | None = None
    """Seconds that the platform asked for."""


class Permanent(NamedTuple):
    """Not sent, and never will be as it is."""

    reason: str


class Ambiguous(NamedTuple):
    """It may have been sent, or not: nobody can tell from the answer."""

    reason: str


class WindowClosed(NamedTuple):
    """The platform takes no more messages to this recipient until they write again."""

    reason: str


Outcome: TypeAlias = Sent | Transient | Permanent | Ambiguous | WindowClosed


class Report(NamedTuple):
    """What a platform says later about a message that it took: `key` is the one its request was made with."""

    key: str
    outcome: Sent | Permanent | WindowClosed


class Delivery(NamedTuple):
    """What the body of one webhook holds."""

    arrivals: tuple[Arrival, ...] = ()
    ignored: tuple[Ignored, ...] = ()
    reports: tuple[Report, ...] = ()
    challenge: str | None = None
    """To be answered as plain text: the platform asks whether somebody is there."""


class Polled(NamedTuple):
    """What a platform had for somebody who asked."""

    deliveries: tuple[Delivery, ...] = ()
    """Oldest first."""
    last: int | None = None
    """The number to go on after; None if nothing came."""
