"""Reads Matrix events: which of them are messages to the bot, and what they say.

Pure functions over events as they are on the wire. The bot's own events, notices, and redacted events are ignored. A
file is named in the text, never fetched. `to_arrival` turns what was read into what the inbox takes.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import Any, NamedTuple, TypeAlias

from threadline.core import reply_text
from threadline.core.approval_questions import answer_button
from threadline.core.commands import Command, parse, read_choice
from threadline.core.platform_messages import Arrival

Content: TypeAlias = dict[str, Any]
RawEvent: TypeAlias = dict[str, Any]

ROOM_STATE = "io.threadline.room"
SPACE_STATE = "io.threadline.space"
QUESTION = "io.threadline.question"
"""In a message that asks for an approval: its token."""

_FILES = {"m.image": "image", "m.file": "file", "m.audio": "audio", "m.video": "video", "m.location": "location"}
_VERIFICATION = "m.key.verification."
_REQUEST = f"{_VERIFICATION}request"
_QUOTED = re.compile(r"(?:> [^\n]*\n)+\n?")
_REACTIONS = {"🛑": "!stop", "⏹": "!stop", "✅": "!yes", "✔": "!yes", "❌": "!no", "✖": "!no"}
# Enough to recognise a long message by; the agent usually has all of it in the history.
# Numbers up to this can answer a list that the bot has shown.
_LONGEST_LIST = 1_000


class RoomText(NamedTuple):
    """A text that a person wrote in a room. `thread` is the root of the Matrix thread it is in."""

    room_id: str
    event_id: str
    sender: str
    text: str
    names_me: bool = False
    thread: str | None = None
    edits: str | None = None
    """The event that this one edits. The sender of that event is not known here."""
    sent_at: dt.datetime = dt.datetime.fromtimestamp(0, dt.UTC)
    answers: str | None = None
    """The event that this one replies to, or the root of its thread."""


class Unreadable(NamedTuple):
    """An encrypted message whose key the bot does not have."""

    room_id: str
    event_id: str
    sender: str
    event: RawEvent


class Retraction(NamedTuple):
    """A redaction of the event `target`."""

    room_id: str
    event_id: str
    sender: str
    target: str
    sent_at: dt.datetime = dt.datetime.fromtimestamp(0, dt.UTC)


class Reaction(NamedTuple):
    """A reaction to the message `target`, read as a command. `question` is the token of the approval for which that
    message asks."""

    room_id: str
    event_id: str
    sender: str
    target: str
    command: str
    sent_at: dt.datetime = dt.datetime.fromtimestamp(0, dt.UTC)
    question: str | None = None


class Departure(NamedTuple):
    """The user `sender` left the room, by themselves or not, or declined the invitation to it."""

    room_id: str
    event_id: str
    sender: str


class Upgrade(NamedTuple):
    """The room ended; `replacement` takes its place."""

    room_id: str
    event_id: str
    sender: str
    replacement: str


class VerificationStep(NamedTuple):
    """A message of a verification, which `transaction_id` names. `room_id` is None if it was sent to the device."""

    room_id: str | None
    event_id: str
    sender: str
    kind: str
    transaction_id: str
    content: Content


def read(
    room_id: str, event: RawEvent, me: str, my_name: str | None = None
) -> RoomText | Unreadable | Retraction | Reaction | Departure | Upgrade | VerificationStep | None:
    """None for events that do not concern the bot."""
    event_id, sender, content = event.get("event_id"), event.get("sender"), event.get("content")
    if not isinstance(event_id, str) or not isinstance(sender, str) or not isinstance(content, dict):
        return None
    if event.get("type") == "m.room.member":
        return _read_departure(room_id, event_id, event.get("state_key"), content, me)
    if sender == me:
        return None
    if "redacted_because" in (event.get("unsigned") or {}):
        return None
    match event.get("type"):
        case "m.room.encrypted":
            return Unreadable(room_id, event_id, sender, event)
        case "m.room.redaction":
            target = event.get("redacts") or content.get("redacts")
            return Retraction(room_id, event_id, sender, target, _time(event)) if isinstance(target, str) else None
        case "m.room.tombstone":
            replacement = content.get("replacement_room")
            return Upgrade(room_id, event_id, sender, replacement) if isinstance(replacement, str) else None
        case "m.reaction":
            return _read_reaction(room_id, event_id, sender, content, _time(event))
        case str(kind) if kind.startswith(_VERIFICATION):
            return _read_verification(room_id, event_id, sender, kind, content)
        case "m.room.message" if content.get("msgtype") == _REQUEST:
            is_for_me = content.get("to") == me
            return VerificationStep(room_id, event_id, sender, _REQUEST, event_id, content) if is_for_me else None
        case "m.room.message":
            found = _read_text(room_id, event_id, sender, content, me, my_name)
            return None if found is None else found._replace(sent_at=_time(event))
    return None


def _read_reaction(room_id: str, event_id: str, sender: str, content: Content, sent_at: dt.datetime) -> Reaction | None:
    relation = content.get("m.relates_to")
    relation = relation if isinstance(relation, dict) else {}
    key, target = relation.get("key"), relation.get("event_id")
    # Some clients send the variation selector that asks for a colourful picture, others do not.
    command = _REACTIONS.get(key.replace("\ufe0f", "")) if isinstance(key, str) else None
    if command is None or relation.get("rel_type") != "m.annotation" or not isinstance(target, str):
        return None
    return Reaction(room_id, event_id, sender, target, command, sent_at)


def _read_departure(room_id: str, event_id: str, who: object, content: Content, me: str) -> Departure | None:
    has_left = content.get("membership") in {"leave", "ban"}
    return Departure(room_id, event_id, who) if has_left and isinstance(who, str) and who != me else None


def _read_verification(
    room_id: str, event_id: str, sender: str, kind: str, content: Content
) -> VerificationStep | None:
    relation = content.get("m.relates_to")
    target = relation.get("event_id") if isinstance(relation, dict) else None
    return VerificationStep(room_id, event_id, sender, kind, target, content) if isinstance(target, str) else None


def read_to_device(event: RawEvent) -> VerificationStep | None:
    """None for what is no verification."""
    kind, sender, content = event.get("type"), event.get("sender"), event.get("content")
    if not isinstance(kind, str) or not kind.startswith(_VERIFICATION) or not isinstance(content, dict):
        return None
    id = content.get("transaction_id")
    if not isinstance(id, str) or not isinstance(sender, str):
        return None
    return VerificationStep(None, f"{id} {kind}", sender, kind, id, content)


def _time(event: RawEvent) -> dt.datetime:
    milliseconds = event.get("origin_server_ts")
    try:
        return dt.datetime.fromtimestamp(float(milliseconds or 0) / 1_000, dt.UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        # A homeserver may send anything here. The time is only used for a metric.
        return dt.datetime.fromtimestamp(0, dt.UTC)


def _read_text(
    room_id: str, event_id: str, sender: str, content: dict[str, Any], me: str, name: str | None
) -> RoomText | None:
    relation = content.get("m.relates_to")
    relation = relation if isinstance(relation, dict) else {}
    kind, target = relation.get("rel_type"), relation.get("event_id")
    if kind == "m.replace":
        new = content.get("m.new_content")
        content = new if isinstance(new, dict) else {}
    text = _text(content, is_reply="m.in_reply_to" in relation)
    if text is None or (kind == "m.replace" and not isinstance(target, str)):
        return None
    spoken, names_me = _address(text, content, me, name)
    thread = target if kind == "m.thread" and isinstance(target, str) else None
    edits = target if kind == "m.replace" else None
    return RoomText(room_id, event_id, sender, spoken, names_me, thread, edits, answers=_answered(relation, thread))


def _answered(relation: dict[str, Any], thread: str | None) -> str | None:
    """In a thread clients add a reply to its last message, for those that show no threads: that is no reply."""
    if relation.get("is_falling_back") is True:
        return thread
    replied = relation.get("m.in_reply_to")
    found = replied.get("event_id") if isinstance(replied, dict) else None
    return found if isinstance(found, str) else thread


def with_quote(text: str, quoted: Content) -> str:
    """The text with what it replies to before it."""
    said = _text(quoted, is_reply=True)
    return reply_text.with_quote(text, said) if said else text


def departure(room_id: str, sender: str, key: str) -> Arrival:
    return Arrival(
        platform="matrix",
        key=key,
        sender=sender,
        place=room_id,
        recipient=room_id,
        text="",
        sent_at=dt.datetime.now(dt.UTC),
        kind="departure",
    )


def to_arrival(
    read: RoomText | Retraction | Reaction, *, is_shared: bool, name: str | None = None, is_by_moderator: bool = False
) -> Arrival | None:
    """What the inbox takes; None for a text in a shared room that neither names the bot nor can be an answer to it."""
    if isinstance(read, Retraction):
        return _arrival(read, "", is_shared=is_shared, kind="retraction", target=read.target)
    if isinstance(read, Reaction):
        return _reaction_arrival(read, is_shared=is_shared, is_by_moderator=is_by_moderator)
    is_addressed = not is_shared or read.names_me or isinstance(parse(read.text, place="shared_room"), Command)
    if not is_addressed and (read.edits is not None or read_choice(read.text, _LONGEST_LIST) is None):
        return None
    kind = "message" if read.edits is None else "edit"
    return _arrival(
        read,
        read.text,
        is_shared=is_shared,
        kind=kind,
        target=read.edits,
        is_addressed=is_addressed,
        sender_name=name,
        is_by_moderator=is_by_moderator,
    )


def _reaction_arrival(read: Reaction, *, is_shared: bool, is_by_moderator: bool) -> Arrival:
    """A press of a button where the message asks for an approval, a command elsewhere. `target` says that the command
    was given to one message: it answers no approval that another message asks for."""
    if read.question is not None and (button := answer_button(read.command, read.question)) is not None:
        return _arrival(read, button, is_shared=is_shared, kind="answer")
    return _arrival(read, read.command, is_shared=is_shared, target=read.target, is_by_moderator=is_by_moderator)


def _arrival(read: RoomText | Retraction | Reaction, text: str, *, is_shared: bool, **more: Any) -> Arrival:
    return Arrival(
        platform="matrix",
        key=read.event_id,
        sender=read.sender,
        place=read.room_id,
        recipient=_recipient(read, is_shared=is_shared),
        text=text,
        sent_at=read.sent_at,
        shared=is_shared,
        **more,
    )


def invitation(room_id: str, inviter: str) -> Arrival:
    """One for each room, however often the bot is invited to it."""
    return Arrival(
        platform="matrix",
        key=f"invite {room_id}",
        sender=inviter,
        place=room_id,
        recipient=room_id,
        text="",
        sent_at=dt.datetime.now(dt.UTC),
        kind="invitation",
    )


class ReplyTarget(NamedTuple):
    """Where a reply goes: a room, and the event and thread that it answers where it must say so."""

    room_id: str
    event_id: str | None = None
    thread: str | None = None


def _recipient(read: RoomText | Retraction | Reaction, *, is_shared: bool) -> str:
    """Replies to one recipient are sent in order: in a private room all of them, elsewhere those to one message."""
    thread = read.thread if isinstance(read, RoomText) else None
    if not is_shared and thread is None:
        return read.room_id
    return " ".join(part for part in (read.room_id, read.event_id, thread) if part)


def read_recipient(recipient: str) -> ReplyTarget:
    return ReplyTarget(*recipient.split(" "))


def _text(content: dict[str, Any], *, is_reply: bool) -> str | None:
    body, kind = content.get("body"), content.get("msgtype")
    if not isinstance(body, str):
        return None
    if kind in {"m.text", "m.emote"}:
        # Older clients put what they answer to before the answer.
        return _QUOTED.sub("", body, count=1) if is_reply and body.startswith("> ") else body
    named = _FILES.get(str(kind))
    return None if named is None else f"[{named}: {content.get('filename') or body}]"


def _address(text: str, content: dict[str, Any], me: str, name: str | None) -> tuple[str, bool]:
    """The text without the bot's name in front, and whether the bot was named."""
    mentions = content.get("m.mentions")
    named = isinstance(mentions, dict) and me in (mentions.get("user_ids") or [])
    for called in (me, name, me[1:].split(":")[0]):
        if not called:
            continue
        at_front = re.match(rf"@?{re.escape(called)}\s*[:,]?(?:\s+|$)", text, re.IGNORECASE)
        # A bare word is a name only where a comma or a colon says so, or the client does.
        if at_front and (named or called == me or at_front[0].rstrip().endswith((":", ","))):
            return text[at_front.end() :], True
    return text, named or re.search(rf"{re.escape(me)}(?![\w.-])", text) is not None


def is_own_join(event: RawEvent, me: str) -> bool:
    """Whether the bot joined the room with this event. Earlier messages were not written to the bot."""
    if event.get("type") != "m.room.member" or event.get("state_key") != me:
        return False
    before = (event.get("unsigned") or {}).get("prev_content") or {}
    return event["content"].get("membership") == "join" and before.get("membership") != "join"


def accepted_invitation(event: RawEvent, me: str) -> str | None:
    """Who invited the bot, if it joined the room with this event after an invitation."""
    unsigned = event.get("unsigned") or {}
    was_invited = (unsigned.get("prev_content") or {}).get("membership") == "invite"
    inviter = unsigned.get("prev_sender") if was_invited and is_own_join(event, me) else None
    return inviter if isinstance(inviter, str) else None
