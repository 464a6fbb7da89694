"""Reading Matrix events: which of them someone said to the bot, and what exactly.

Pure functions over events as they are on the wire. The bot itself, notices, what others edited and what was redacted
are nobody's words. A file is named, never fetched.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, NamedTuple, TypeAlias

Content: TypeAlias = dict[str, Any]
RawEvent: TypeAlias = dict[str, Any]

ROOM_STATE = "io.threadline.room"
SPACE_STATE = "io.threadline.space"

_FILES = {"m.image": "image", "m.file": "file", "m.audio": "audio", "m.video": "video", "m.location": "location"}
_QUOTED = re.compile(r"(?:> [^\n]*\n)+\n?")


class Said(NamedTuple):
    """Something a person said in a room. `thread` is the first message of the thread it stands in."""

    room_id: str
    event_id: str
    sender: str
    text: str
    names_me: bool = False
    thread: str | None = None
    instead_of: str | None = None
    """The message that this one is an edit of. Whether it is the sender's own is not known here."""


class Unreadable(NamedTuple):
    """A message whose key the bot does not have."""

    room_id: str
    event_id: str
    sender: str
    event: RawEvent


class TakenBack(NamedTuple):
    """A redaction: the message it names is to be forgotten, as far as that can be."""

    room_id: str
    event_id: str
    sender: str
    target: str


def key_of(event_id: str) -> str:
    """An event's key here. Event ids have characters that keys do not."""
    return f"mx-{hashlib.sha256(event_id.encode()).hexdigest()[:40]}"


def read(room_id: str, event: RawEvent, me: str, my_name: str | None = None) -> Said | Unreadable | TakenBack | None:
    """None for what nobody said to the bot."""
    event_id, sender, content = event.get("event_id"), event.get("sender"), event.get("content")
    if not isinstance(event_id, str) or not isinstance(sender, str) or not isinstance(content, dict) or sender == me:
        return None
    if "redacted_because" in (event.get("unsigned") or {}):
        return None
    match event.get("type"):
        case "m.room.encrypted":
            return Unreadable(room_id, event_id, sender, event)
        case "m.room.redaction":
            target = event.get("redacts") or content.get("redacts")
            return TakenBack(room_id, event_id, sender, target) if isinstance(target, str) else None
        case "m.room.message":
            return _said(room_id, event_id, sender, content, me, my_name)
    return None


def _said(room_id: str, event_id: str, sender: str, content: dict[str, Any], me: str, name: str | None) -> Said | None:
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
    return Said(room_id, event_id, sender, spoken, names_me, thread, target if kind == "m.replace" else None)


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
    """The text without the bot's name before it, and whether it was named at all."""
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
    """Whether the bot came into the room with this event. What stands before it was not said to the bot."""
    if event.get("type") != "m.room.member" or event.get("state_key") != me:
        return False
    before = (event.get("unsigned") or {}).get("prev_content") or {}
    return event["content"].get("membership") == "join" and before.get("membership") != "join"


def taken_invitation(event: RawEvent, me: str) -> str | None:
    """Who had invited the bot, if it came into the room with this event by an invitation."""
    unsigned = event.get("unsigned") or {}
    was_invited = (unsigned.get("prev_content") or {}).get("membership") == "invite"
    inviter = unsigned.get("prev_sender") if was_invited and is_own_join(event, me) else None
    return inviter if isinstance(inviter, str) else None
