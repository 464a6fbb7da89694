"""Texts that messaging surfaces send, and the keys that connect a reply with its message."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from threadline.core.errors import InvalidName
from threadline.core.ids import check_id
from threadline.core.parts import Part, TextPart, ToolPart
from threadline.core.turns import Surface, Turn
from threadline.core.usage import NO_BUDGET

FAILED_TEXT = "The agent could not answer. Please try again in a while."
SILENT_TEXT = "The agent sent an empty reply."
STOPPED_TEXT = "The reply was stopped."
NOT_ALLOWED_TEXT = "You can read but not write here. Ask an administrator for access."
NO_AGENT_TEXT = "The agent is not available at the moment."
HOW_TO_LINK_TEXT = (
    "This account is not linked yet. Create a code where you are signed in (`threadline link code`, or the web page) "
    "and send it here: `!link CODE`"
)
UNREADABLE_TEXT = (
    "I can read only text, not pictures, files, voice messages and the like. Please write what matters in it as text."
)
LINKED_TEXT = "This account is linked now. Your messages here go to your agent; `!help` lists the commands."
LINK_REFUSED_TEXT = "This code does not work. Codes work once, for a few minutes: create a new one and send it here."
LINK_LIMITED_TEXT = "Too many wrong codes. Please wait a few minutes."

_LONGEST_KEY = 100
_LONGEST_QUOTE = 2_000


def inbox_key(key: str) -> str:
    """A platform's message id as the inbox stores it: unchanged if it is spelled like an id, else its hash."""
    try:
        return check_id("message", key) if len(key) <= _LONGEST_KEY else _hashed(key)
    except InvalidName:
        return _hashed(key)


def _hashed(key: str) -> str:
    return "sha256-" + hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def turn_key(platform: Surface, key: str) -> str:
    """The idempotency key of the turn that the arrival with this inbox key began."""
    return f"{platform}:{key}"


def arrived_as(turn: Turn) -> str | None:
    """The inbox key of the arrival that began this turn; None if it came from no platform."""
    prefix = f"{turn.surface}:"
    key = turn.idempotency_key
    return key.removeprefix(prefix) if key is not None and key.startswith(prefix) else None


def budget_text(reason: str) -> str:
    """The reason of a used-up budget, as a sentence."""
    return f"{reason[:1].upper()}{reason[1:]}."


def delivered_text(turn: Turn, reply: str) -> str:
    """What the sender gets when their turn has ended. The details of a failure are for the operator."""
    text = reply.strip()
    match turn.status:
        case "dispatch_failed" if turn.error is not None and turn.error.startswith(NO_BUDGET):
            told = budget_text(turn.error.removeprefix(NO_BUDGET))
            return told if not text or reply == turn.error else f"{reply}\n\n{told}"
        case "dispatch_failed":
            return FAILED_TEXT if not text or reply == turn.error else f"{reply}\n\n{FAILED_TEXT}"
        case "stopped" | "interrupted":
            return STOPPED_TEXT if not text or reply == turn.error else f"{reply}\n\n{STOPPED_TEXT}"
    return reply if text else SILENT_TEXT


def with_quote(text: str, quoted: str) -> str:
    """The text with what it replies to before it, as Markdown quotes; the agent knows what "this" is."""
    shown = quoted if len(quoted) <= _LONGEST_QUOTE else f"{quoted[:_LONGEST_QUOTE]}…"
    return "\n".join(f"> {line}" for line in shown.splitlines()) + f"\n\n{text}"


def reply_markdown(parts: Sequence[Part]) -> str:
    """A reply as Markdown: its text, and a line for every tool it used."""
    lines = (_part_markdown(part) for part in parts)
    return "\n\n".join(text for text in lines if text)


def _part_markdown(part: Part) -> str:
    match part:
        case TextPart():
            return part.text.strip()
        case ToolPart():
            state = {"output-available": "done", "output-error": "failed", "output-denied": "not allowed"}
            return f"*Tool `{part.name.replace('`', '')}`: {state.get(part.state, 'running')}*"
    return ""
