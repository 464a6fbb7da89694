"""Values exchanged with messaging platforms: what they deliver, what is sent to them, and the outcome.

A webhook's body is read into a `Delivery`; a reply is sent as `HttpRequest`s, and the platform's response to each is
judged as one `Outcome`. These are plain values without I/O; their `repr` contains no credential.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from threadline.core.sealing import CleanText
from threadline.core.turns import Surface

IgnoredReason: TypeAlias = Literal[
    "own", "bot", "unaddressed", "empty", "edit", "deletion", "membership", "status", "unknown", "broken"
]


ArrivalKind: TypeAlias = Literal["message", "edit", "retraction", "invitation", "departure", "answer", "unsupported"]

UNTIMED = dt.datetime.fromtimestamp(0, dt.UTC)
"""The time of an arrival whose platform does not say when it was sent."""


class RoomAuthor(msgspec.Struct, frozen=True):
    """The linked user who wrote in a room whose one thread is shared, and the account of the user whose thread it
    is."""

    user_id: str
    owner_account: str


class Arrival(msgspec.Struct, frozen=True):
    """One event that a platform delivered, as its codec read it: a message, or an edit or retraction of one, an
    invitation of the bot to a place, that the sender left one, an answer to a question with buttons, or a message
    without anything that the agent can read, such as a picture without a caption."""

    platform: Surface
    key: str
    """The platform's id of the message, the same however often and in whatever envelope it is delivered. Unique in
    (tenant, platform)."""
    sender: str
    """The account's id, as links spell it."""
    place: str
    """A chat, a channel or a room, or a thread or topic in one."""
    recipient: str
    """Where the reply goes: the place, and the platform's thread in it, if any. Only the platform's codec or bot reads
    it."""
    text: str
    """Without a leading mention of the bot. Attachments are named in it, never fetched. Of an answer: what the pressed
    button carries, see `core.approval_questions`."""
    sent_at: dt.datetime
    """By the platform's clock, in UTC; `UNTIMED` if the platform does not say."""
    shared: bool = False
    """Others read this place as well."""
    reply_to: str | None = None
    """The key of the message that this one answers."""
    quoted: str | None = None
    """The text that it answers, where the platform sends that as well; it is shown to the agent before the message."""
    kind: ArrivalKind = "message"
    target: str | None = None
    """The key of the message that is edited or retracted."""
    is_addressed: bool = True
    """False where others read and the bot is not named: then only an answer to an open question counts."""
    may_follow_up: bool = False
    """It was sent in a thread of the platform: it counts without the name of the bot if the sender has spoken to it in
    that thread."""
    notice_to: str | None = None
    """The recipient of a notice that only the sender sees, where the platform has such notices."""
    awaits_notice: bool = False
    """The platform shows the sender that it waits, until a notice is sent."""
    sender_name: str | None = None
    """What the sender is called in this place."""
    is_by_moderator: bool = False
    """The sender may change the settings of this place."""
    author: RoomAuthor | None = None
    """Set by the inbox if this place has one thread for everyone: then it is handled in the scope of the thread's
    owner."""

    @property
    def author_id(self) -> str | None:
        return None if self.author is None else self.author.user_id


class BotIdentity(NamedTuple):
    """The bot itself, as its platform knows it."""

    id: str
    name: str | None = None
    """How people address it, without an @; None if it is not known."""


class Ignored(NamedTuple):
    """An event that is acknowledged and begins no turn. `broken`: signed by the platform, but not readable."""

    reason: IgnoredReason
    detail: str = ""
    """For the operator: which type or field. Never the text of a message."""


class HttpRequest(NamedTuple):
    """One complete request to a platform; the sender adds only the length."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes = b""

    def __repr__(self) -> str:
        # Telegram's token is part of the address, the others' of a header.
        return f"HttpRequest({self.method}, {len(self.body)} bytes)"


class HttpResponse(NamedTuple):
    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes = b""


class Sent(NamedTuple):
    message_id: str | None = None


class Transient(NamedTuple):
    """Not sent; a retry may succeed."""

    reason: str
    retry_after: float | None = None
    """Seconds that the platform asks to wait."""
    is_outage: bool = False
    """The platform is down or cannot be reached, so that other messages would fail as well."""


class Permanent(NamedTuple):
    """Not sent; a retry fails as well."""

    reason: str


class Ambiguous(NamedTuple):
    """It is unknown whether it was sent."""

    reason: str


class WindowClosed(NamedTuple):
    """The platform accepts no message to this recipient until they write again."""

    reason: str


class Released(NamedTuple):
    """A worker that stops gives its claim back. `may_be_sent`: it was sending, and the result is unknown."""

    may_be_sent: bool


class Opened(NamedTuple):
    """The room that was requested is open. `link` is its address for the user; `space` is set if one was opened."""

    place: str
    link: str
    space: str | None = None


Outcome: TypeAlias = Sent | Opened | Transient | Permanent | Ambiguous | WindowClosed | Released


class Report(NamedTuple):
    """What a platform reports later about a message that it accepted: `key` is the one of its request."""

    key: str
    outcome: Sent | Permanent | WindowClosed


class LookedUp(NamedTuple):
    """A page of messages that a platform has: the one that was looked for, and the next page."""

    found: Sent | None = None
    next_page: str | None = None


class Delivery(NamedTuple):
    """The content of one webhook's body."""

    arrivals: tuple[Arrival, ...] = ()
    ignored: tuple[Ignored, ...] = ()
    reports: tuple[Report, ...] = ()
    challenge: str | None = None
    """To be returned as plain text: the platform verifies the address."""


class SocketEnvelope(NamedTuple):
    """A delivery over a WebSocket. The platform repeats it until it is acknowledged by its id."""

    id: str
    delivery: Delivery
    content: bytes
    """As it was delivered; deliveries that cannot be read are told apart by it."""


class SocketClosing(NamedTuple):
    """The platform is about to close the connection."""

    reason: str
    is_routine: bool
    """A new connection is expected immediately."""


SocketFrame: TypeAlias = SocketEnvelope | SocketClosing | None
"""What a platform sent over a WebSocket. None needs no reaction."""


class Polled(NamedTuple):
    """The platform's updates."""

    deliveries: tuple[Delivery, ...] = ()
    """Oldest first."""
    last: int | None = None
    """The last number; None if there were no updates."""


class MessageEdit(msgspec.Struct, frozen=True):
    """An outbox payload that changes a message sent before: the last that the reply of the turn `edits` became. Only
    the sender knows under which id the platform has it."""

    edits: str
    payload: str


def encode_edit(turn_id: str, payload: str) -> CleanText:
    """The payload is rendered from a clean text."""
    return CleanText(msgspec.json.encode(MessageEdit(turn_id, payload)).decode())


def read_edit(payload: str) -> MessageEdit | None:
    """None for a payload that is a message of its own."""
    return msgspec.json.decode(payload, type=MessageEdit) if payload.startswith('{"edits":') else None
