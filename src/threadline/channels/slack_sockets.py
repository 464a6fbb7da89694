"""Slack's Socket Mode: the frames of its WebSocket.

An envelope contains what a webhook would: an event, a pressed button or a slash command, the latter two as JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import msgspec

from threadline.channels.platform_payloads import convert_or_none, parse_json
from threadline.core import jsontext
from threadline.core.errors import InvalidInput
from threadline.core.platform_messages import Delivery, Ignored, SocketClosing, SocketEnvelope, SocketFrame

# Slack repeats a connection request for these; any other reason means that it does not want this connection.
_ROUTINE = frozenset(("warning", "refresh_requested"))
_REASONS = {
    "link_disabled": "Socket Mode is switched off in the app's settings: switch it on",
    "too_many_websockets": "the app has ten connections already, which is the most that Slack allows",
}


class _Frame(msgspec.Struct):
    type: str
    envelope_id: str | None = None
    reason: str = ""
    payload: Any = None


def read_frame(text: str, read_body: Callable[[bytes], Delivery]) -> SocketFrame:
    """`read_body` reads the body of a webhook."""
    try:
        frame = convert_or_none(parse_json(text.encode(errors="replace")), _Frame)
    except InvalidInput:
        return None
    if frame is None:
        return None
    if frame.type == "disconnect":
        return SocketClosing(_REASONS.get(frame.reason, frame.reason[:64]), frame.reason in _ROUTINE)
    if frame.envelope_id is None:
        return None
    body = _webhook_body(frame)
    if body is None:
        return SocketEnvelope(frame.envelope_id, Delivery(ignored=(Ignored("unknown", frame.type[:64]),)), b"")
    try:
        return SocketEnvelope(frame.envelope_id, read_body(body), body)
    except InvalidInput:
        return SocketEnvelope(frame.envelope_id, Delivery(ignored=(Ignored("broken", frame.type[:64]),)), body)


def _webhook_body(frame: _Frame) -> bytes | None:
    """What Slack would have sent to a webhook."""
    match frame.type, frame.payload:
        case "events_api", payload:
            return jsontext.dump(payload, "payload")
        case "interactive", payload:
            return urlencode({"payload": jsontext.dump(payload, "payload").decode()}).encode()
        case "slash_commands", dict() as fields:
            return urlencode({name: value for name, value in fields.items() if isinstance(value, str)}).encode()
    return None


def build_acknowledgement(envelope_id: str) -> str:
    return jsontext.dump({"envelope_id": envelope_id}, "acknowledgement").decode()
