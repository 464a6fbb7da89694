"""Ports for messaging platforms: codecs, HTTP, and which user a sender is."""

from __future__ import annotations

import datetime as dt
from collections.abc import Generator, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from threadline.core.approval_questions import ChatQuestion
from threadline.core.messages import Message
from threadline.core.platform_messages import (
    Ambiguous,
    Arrival,
    BotIdentity,
    Delivery,
    HttpRequest,
    HttpResponse,
    LookedUp,
    Outcome,
    Permanent,
    Polled,
    SocketFrame,
    Transient,
)
from threadline.core.turns import Surface, TurnInfo
from threadline.ports.store import Finding


class Channel(Protocol):
    """A messaging platform's own way of saying things, read and written without a socket and without a clock.

    `secrets` are the tenant's credentials for the platform, under the names in `secret_names`."""

    @property
    def platform(self) -> Surface: ...

    @property
    def secret_names(self) -> Mapping[str, str]:
        """The credentials it needs, each with a line that says where an administrator finds it."""
        ...

    @property
    def sufficient_secrets(self) -> Sequence[frozenset[str]]:
        """Which of the credentials are enough, the usual ones first. A platform that can deliver in several ways needs
        other credentials for each."""
        ...

    @property
    def must_know_bot(self) -> bool:
        """Its deliveries do not say who the bot is: `parse_webhook` has to be told."""
        ...

    def verify(
        self, secrets: Mapping[str, str], headers: Sequence[tuple[str, str]], body: bytes, now: dt.datetime
    ) -> None:
        """Returns if the platform signed this very body, for this tenant, and lately where it says when. Otherwise
        SignatureInvalid: a header missing, doubled, malformed, stale or wrong, or no secret to compare with. Secrets
        are compared in constant time. Header names may be in any case."""
        ...

    def answer_handshake(self, secrets: Mapping[str, str], query: Mapping[str, str]) -> str:
        """The plain text that answers a GET on the webhook's address. SignatureInvalid if the query does not know the
        secret; NotFound if the platform never asks this way."""
        ...

    def build_identity_request(self, secrets: Mapping[str, str]) -> HttpRequest:
        """Asks who the bot with these secrets is. SettingsInvalid like `build_request`."""
        ...

    def parse_identity(self, response: HttpResponse) -> BotIdentity | Transient | Permanent:
        """Permanent if the platform does not accept the secrets."""
        ...

    def parse_webhook(self, body: bytes, me: BotIdentity | None = None) -> Delivery:
        """What a verified body holds. `me` is the bot, if it is known: where others read, only what is addressed to it
        counts. InvalidJson for what is not JSON, LimitExceeded for what is nested too deeply.
        Whatever else is odd about it is in `ignored`, because a platform would send a refused one again and again; one
        broken message of a batch does not cost the others."""
        ...

    def render(self, text: str) -> list[str]:
        """The agent's Markdown as payloads to be sent in this order, each within the platform's limits and split where
        a reader would. Empty if there is nothing to show. A payload is JSON and holds no secret."""
        ...

    def render_question(self, question: ChatQuestion) -> list[str]:
        """A question with two buttons, which carry `question.yes` and `question.no`. The last payload has them."""
        ...

    def build_request(self, secrets: Mapping[str, str], recipient: str, payload: str, key: str) -> HttpRequest:
        """The request that sends one payload. `key` is the same for every attempt. SettingsInvalid if a secret is
        missing or contains characters that a request cannot."""
        ...

    def parse_response(self, response: HttpResponse) -> Outcome:
        """What the platform's answer says about the message. Never raises, whatever the body holds."""
        ...


class PolledChannel(Channel, Protocol):
    """A platform that can be polled, for a machine without a public address."""

    def build_poll_request(self, secrets: Mapping[str, str], after: int, wait_seconds: int) -> HttpRequest:
        """Asks for what follows `after`, the last number seen (0 at first), and confirms what went before: ask only
        when all of that is stored. The platform holds the answer for up to `wait_seconds`."""
        ...

    def parse_poll_response(
        self, response: HttpResponse, me: BotIdentity | None = None
    ) -> Polled | Transient | Permanent:
        """What the answer holds, or why there is none. `me` as for `parse_webhook`."""
        ...


class SocketChannel(Channel, Protocol):
    """A platform that delivers over a WebSocket which this machine opens, so that it needs no public address. The
    platform spreads its deliveries over all open connections."""

    def build_socket_request(self, secrets: Mapping[str, str]) -> HttpRequest:
        """Asks for the address of a new connection. SettingsInvalid like `build_request`."""
        ...

    def parse_socket_response(self, response: HttpResponse) -> str | Transient | Permanent:
        """The address, which is a secret and can be used once; or why there is none."""
        ...

    def parse_frame(self, frame: str) -> SocketFrame:
        """What the platform sent. Never raises, whatever the frame holds."""
        ...

    def build_acknowledgement(self, envelope_id: str) -> str:
        """The frame after which the platform does not repeat the delivery."""
        ...


@runtime_checkable
class SearchableChannel(Channel, Protocol):
    """A platform that can be asked which messages it has, so that one whose result is unknown is not sent twice."""

    def build_search(
        self, secrets: Mapping[str, str], recipient: str, since: dt.datetime, page: str | None
    ) -> HttpRequest:
        """Asks for the recipient's messages since then, in pages. SettingsInvalid like `build_request`."""
        ...

    def parse_search(self, response: HttpResponse, key: str) -> LookedUp | Transient | Permanent:
        """The message that was sent under this key, if the page has it. Permanent if the platform refuses to say."""
        ...


@runtime_checkable
class EditableChannel(Channel, Protocol):
    """A platform on which a sent message can be changed."""

    def render_edit(self, text: str) -> str:
        """The payload that a message is replaced with: a short text without buttons."""
        ...

    def build_edit(self, secrets: Mapping[str, str], recipient: str, message_id: str, payload: str) -> HttpRequest:
        """The request that changes the message. SettingsInvalid like `build_request`."""
        ...


@runtime_checkable
class WindowedChannel(Channel, Protocol):
    """A platform that accepts replies only for some time after the person's last message."""

    def render_template(self) -> str | None:
        """The payload of the message that may be sent at any time; None if the operator has configured none."""
        ...


@runtime_checkable
class LiveChannel(Channel, Protocol):
    """A platform that can show that a reply is being written. Nothing of that stays in the conversation."""

    @property
    def typing_seconds(self) -> float:
        """How often the sign is repeated, before the platform takes it away."""
        ...

    def build_typing(self, secrets: Mapping[str, str], arrival: Arrival) -> HttpRequest | None:
        """The request that shows that a reply to this message is being written. None if the platform shows nothing in
        such a place. SettingsInvalid like `build_request`."""
        ...

    def has_drafts(self, arrival: Arrival) -> bool:
        """Whether the sender can be shown the reply as far as it is written."""
        ...

    def build_draft(self, secrets: Mapping[str, str], arrival: Arrival, text: str) -> HttpRequest | None:
        """The request that shows this part of the reply, in the place of what was shown before."""
        ...


@runtime_checkable
class StreamingChannel(SearchableChannel, Protocol):
    """A platform on which a reply can be shown as a message that grows, and that becomes the reply."""

    def can_stream(self, recipient: str) -> bool:
        """Whether replies to this recipient are shown so."""
        ...

    def stream_text(self, text: str) -> str:
        """As much of the text as may be shown. What it returns for a longer text begins with it."""
        ...

    def build_stream(self, secrets: Mapping[str, str], recipient: str, text: str) -> HttpRequest:
        """Opens a stream with this text. SettingsInvalid like `build_request`, as for all requests here."""
        ...

    def parse_stream(self, response: HttpResponse) -> str | None:
        """The platform's id of the message; None if the platform did not open it."""
        ...

    def build_stream_text(self, secrets: Mapping[str, str], recipient: str, message_id: str, text: str) -> HttpRequest:
        """Adds this text."""
        ...

    def build_stream_end(self, secrets: Mapping[str, str], recipient: str, message_id: str) -> HttpRequest:
        """After it the message can be replaced."""
        ...

    def build_stream_reply(
        self, secrets: Mapping[str, str], recipient: str, message_id: str, payload: str, key: str
    ) -> HttpRequest:
        """Replaces the message by a rendered payload, so that `parse_search` finds it under this key."""
        ...

    def parse_stream_reply(self, response: HttpResponse) -> Outcome | None:
        """None if the message is gone, so that the payload needs one of its own."""
        ...

    def parse_open_stream(self, response: HttpResponse) -> str | Transient | None:
        """The latest message that a stream has left, in the response to `build_search`."""
        ...


class Http(Protocol):
    """The one door through which anything is sent to a platform."""

    async def send(self, request: HttpRequest, *, seconds: float = 20.0) -> HttpResponse | Transient | Ambiguous:
        """The platform's answer, whatever its status. Transient if nothing was sent: no connection, or an address that
        may not be reached. Ambiguous if it was sent and no answer came in time. Never raises for what the network
        does, and says nothing of the request in its reasons."""
        ...


class Socket(Protocol):
    """An open WebSocket to a platform."""

    async def receive(self) -> str | None:
        """The next frame, in order; None once the connection is closed, by whichever side."""
        ...

    async def send(self, frame: str) -> None:
        """Nothing happens if the connection is closed."""
        ...

    async def close(self) -> None: ...


class Sockets(Protocol):
    """Opens WebSockets to platforms."""

    async def open(self, url: str) -> Socket | Transient:
        """Transient if there is no connection. Says nothing of the address in its reasons."""
        ...


class InspectionContext(NamedTuple):
    """What is known here of how a platform should be set up."""

    tenant_id: str
    now: dt.datetime
    serves_public_names: bool
    """The service requires authentication: otherwise it answers public host names with 421."""


class InspectedChannel(Channel, Protocol):
    """A platform that can be asked how the bot is set up there."""

    def inspect(
        self, secrets: Mapping[str, str], context: InspectionContext
    ) -> Generator[HttpRequest, HttpResponse | None, list[Finding]]:
        """Yields requests and is sent their responses, None where there was none. Returns what is wrong. The secrets
        are sufficient. SettingsInvalid like `build_request`."""
        ...


class Receiver(Protocol):
    """Receives deliveries of a platform over connections that this machine opens."""

    async def run(self, tenant_id: str) -> None:
        """Until cancelled. NotFound without credentials; SettingsInvalid if the platform refuses permanently."""
        ...


class Answered(NamedTuple):
    """A turn once it has ended, and the reply that was stored, if anything was said."""

    turn: TurnInfo
    message: Message | None
