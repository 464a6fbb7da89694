"""What Slack sends as a form: pressed buttons (`block_actions`), slash commands and `ssl_check`.

They come to the same address as events and are signed in the same way. A slash command named like a command of
Threadline is that command; of any other, the text is a message to the bot.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl

import msgspec

from threadline.channels.platform_payloads import convert_or_none, parse_json, time_from_timestamp
from threadline.core.approval_questions import read_button
from threadline.core.commands import find_spec
from threadline.core.errors import InvalidJson
from threadline.core.platform_messages import UNTIMED, Arrival, Delivery, Ignored
from threadline.core.sanitize import sanitize_text

# Slack sends about twenty fields; more are not Slack's.
_MAX_FIELDS = 100
_FORM = re.compile(rb"[a-z_]{1,64}=")
_ID = re.compile(r"[A-Za-z0-9]{1,64}")
_TS = re.compile(r"[0-9]{1,12}\.[0-9]{1,9}")


class _Named(msgspec.Struct):
    id: str


class _Message(msgspec.Struct):
    ts: str = ""
    thread_ts: str | None = None


class _Action(msgspec.Struct):
    type: str
    action_id: str = ""
    value: str | None = None
    action_ts: str = ""


class _Interaction(msgspec.Struct):
    type: str
    user: _Named
    channel: _Named | None = None
    message: _Message | None = None
    actions: list[_Action] = []


def is_form(body: bytes) -> bool:
    """Events are JSON; everything else that Slack sends is a form."""
    return _FORM.match(body) is not None


def read_form(body: bytes) -> Delivery:
    """InvalidJson for a body that is neither."""
    try:
        fields = dict(parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=True, max_num_fields=_MAX_FIELDS))
    except ValueError:
        raise InvalidJson("webhook must be JSON or a form") from None
    if "payload" in fields:
        found = _read_interaction(convert_or_none(parse_json(fields["payload"].encode()), _Interaction))
    elif "command" in fields:
        found = _read_command(fields)
    else:
        found = Ignored("unknown", "ssl_check" if "ssl_check" in fields else "form")
    return Delivery(arrivals=(found,)) if isinstance(found, Arrival) else Delivery(ignored=(found,))


def _read_interaction(given: _Interaction | None) -> Arrival | Ignored:
    if given is None or not _ID.fullmatch(given.user.id):
        return Ignored("broken", "interaction")
    if given.type != "block_actions" or given.channel is None or given.message is None or not given.actions:
        return Ignored("unknown", given.type[:64])
    action, channel = given.actions[0], given.channel.id
    if action.value is None or read_button(action.value) is None:
        return Ignored("unknown", "button")
    pressed_at = time_from_timestamp(float(action.action_ts)) if _TS.fullmatch(action.action_ts) else None
    if pressed_at is None or not _ID.fullmatch(channel):
        return Ignored("broken", "button")
    thread_ts = given.message.thread_ts or ""
    recipient = f"{channel}:{thread_ts}" if _TS.fullmatch(thread_ts) else channel
    return Arrival(
        platform="slack",
        # A press has no id of its own, and a user presses one message once at a time.
        key=f"{channel}:{given.message.ts}:{given.user.id}:{action.action_ts}",
        sender=given.user.id,
        place=channel,
        recipient=recipient,
        text=action.value,
        sent_at=pressed_at,
        shared=not channel.startswith("D"),
        kind="answer",
        notice_to=f"{recipient}/{given.user.id}",
    )


def _read_command(fields: dict[str, str]) -> Arrival | Ignored:
    user, channel, trigger = (fields.get(name, "") for name in ("user_id", "channel_id", "trigger_id"))
    if not _ID.fullmatch(user) or not _ID.fullmatch(channel) or not trigger:
        return Ignored("broken", "command")
    word, text = fields["command"].removeprefix("/").lower(), sanitize_text(fields.get("text", "")).strip()
    is_direct = channel.startswith("D")
    if is_command := find_spec(word, "private" if is_direct else "shared") is not None:
        text = f"!{word} {text}".rstrip()
    return Arrival(
        platform="slack",
        key=f"command:{trigger}",
        sender=user,
        place=channel,
        # As people expect of a slash command, only they see what it answers.
        recipient=f"{channel}/{user}" if is_command and not is_direct else channel,
        text=text or "!help",
        sent_at=UNTIMED,
        shared=not is_direct,
    )
