"""Outbox payloads for platforms on which a bot opens rooms (Matrix).

The service writes them, the bot that holds the connection carries them out. A `RoomMessage` is a text for a room, with
what else changes there. A `RoomRequest` asks for a new room for a thread; the thread is bound to it, and the user is
told, when the bot reports that the room is open.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from threadline.core.sealing import CleanText


class RoomBinding(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a room's own state says: its thread, its label, and who uses it. Lost bindings are restored from it."""

    thread_id: str
    sender: str
    label: str | None = None
    is_shared: bool = False
    """One thread for everyone in the room; it is the sender's."""


class RoomMessage(msgspec.Struct, frozen=True, omit_defaults=True, tag="message"):
    """`text` is Markdown; "" changes the room without a message. `name` renames the room, if the sender in `binding`
    may do that themselves; `binding` is written to its state. The room may refuse both; the text is sent nevertheless.
    `question` is the token of the approval that the text asks for: an answer to this very message is an arrival of the
    kind `answer` with the text `yes:TOKEN` or `no:TOKEN`."""

    text: str
    is_notice: bool = False
    redacts_turn: str | None = None
    """The turn whose reply is redacted, because its question is gone. `redacts` are the reply's messages, if they are
    known already."""
    redacts: tuple[str, ...] = ()
    name: str | None = None
    binding: RoomBinding | None = None
    question: str | None = None


class RoomRequest(msgspec.Struct, frozen=True, omit_defaults=True, tag="room"):
    """A new room in the user's space. Without `space`, a space is opened first, with the room and the user's `rooms` in
    it. `is_space_only` opens no room. `is_again`: the user has left the space that they had."""

    binding: RoomBinding
    name: str
    space: str | None = None
    rooms: tuple[str, ...] = ()
    is_space_only: bool = False
    is_again: bool = False


RoomPayload: TypeAlias = RoomMessage | RoomRequest

_DECODER = msgspec.json.Decoder(RoomMessage | RoomRequest)


def encode(payload: RoomPayload) -> CleanText:
    """JSON. Every text in a payload is clean already: it was stored before, or sealed as a reply."""
    return CleanText(msgspec.json.encode(payload).decode())


def decode(payload: str) -> RoomPayload:
    decoded: RoomPayload = _DECODER.decode(payload)
    return decoded
