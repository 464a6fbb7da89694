"""What is said on a messaging surface, and the keys that tie an answer to what it answers."""

from __future__ import annotations

import hashlib

from threadline.core.errors import InvalidName
from threadline.core.ids import check_id
from threadline.core.turns import Surface, Turn

FAILED_TEXT = "The agent could not answer. Please try again in a while."
SILENT_TEXT = "The agent had nothing to say."
STOPPED_TEXT = "The answer was stopped."
NOT_ALLOWED_TEXT = "You may read here, but not ask. Ask an administrator for the right to."
NO_AGENT_TEXT = "Nobody answers here at the moment: the agent is not available."
HOW_TO_LINK_TEXT = (
    "This account is not linked yet. Make a code where you are signed in (`threadline link code`, or the web page) "
    "and send it here: `!link CODE`"
)
LINKED_TEXT = "This account is linked now. What you write here goes to your agent; `!help` lists what else you can do."
LINK_REFUSED_TEXT = "That code does not work. Codes work once and for a few minutes: make a new one and send it here."
LINK_LIMITED_TEXT = "Too many codes that did not work. Please wait a few minutes."

_LONGEST_KEY = 100


def inbox_key(key: str) -> str:
    """A platform's id of a message as the inbox keeps it: as it is where it is spelled like an id, else its hash."""
    try:
        return check_id("message", key) if len(key) <= _LONGEST_KEY else _hashed(key)
    except InvalidName:
        return _hashed(key)


def _hashed(key: str) -> str:
    return "sha256-" + hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def turn_key(platform: Surface, key: str) -> str:
    """The idempotency key of the turn that what arrived under this inbox key began."""
    return f"{platform}:{key}"


def arrived_as(turn: Turn) -> str | None:
    """The inbox key of what began this turn; None if no platform brought it."""
    prefix = f"{turn.surface}:"
    key = turn.idempotency_key
    return key.removeprefix(prefix) if key is not None and key.startswith(prefix) else None


def delivered_text(turn: Turn, said: str) -> str:
    """What a sender is told when their turn has ended. How an agent failed is for the operator."""
    text = said.strip()
    match turn.status:
        case "dispatch_failed":
            return FAILED_TEXT if not text or said == turn.error else f"{said}\n\n{FAILED_TEXT}"
        case "stopped" | "interrupted":
            return STOPPED_TEXT if not text or said == turn.error else f"{said}\n\n{STOPPED_TEXT}"
    return said if text else SILENT_TEXT
