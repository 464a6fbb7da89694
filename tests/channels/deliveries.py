"""Webhook bodies in the forms that the platforms document."""

from __future__ import annotations

import json
from typing import Any

BOT = "UBOT00001"
NUMBER_ID = "106540352242922"


def slack(event: dict[str, Any], *, bot: str | None = BOT) -> bytes:
    envelope = {
        "token": "legacy",
        "team_id": "T0001",
        "api_app_id": "A0001",
        "event": event,
        "type": "event_callback",
        "event_id": "Ev0001",
        "event_time": 1_700_000_000,
    }
    if bot:
        envelope["authorizations"] = [{"team_id": "T0001", "user_id": bot, "is_bot": True}]
    return json.dumps(envelope).encode()


def slack_message(text: str = "hello", **changes: Any) -> dict[str, Any]:
    return {
        "type": "message",
        "channel": "D0001",
        "channel_type": "im",
        "user": "U0001",
        "text": text,
        "ts": "1700000000.000100",
        "client_msg_id": "0d6d1c9a-0000-4000-8000-000000000001",
        **changes,
    }


def telegram(message: dict[str, Any] | None = None, **other: Any) -> bytes:
    update: dict[str, Any] = {"update_id": 10_000, **other}
    if message is not None:
        update["message"] = message
    return json.dumps(update).encode()


def telegram_message(text: str | None = "hello", **changes: Any) -> dict[str, Any]:
    person = {"id": 111, "is_bot": False, "first_name": "Ada"}
    message = {
        "message_id": 42,
        "date": 1_700_000_000,
        "chat": {"id": 111, "type": "private", "first_name": "Ada"},
        "from": person,
        **({"text": text} if text is not None else {}),
        **changes,
    }
    return {name: value for name, value in message.items() if value is not None}


def whatsapp(*messages: Any, statuses: list[Any] | None = None, field: str = "messages") -> bytes:
    value: dict[str, Any] = {
        "messaging_product": "whatsapp",
        "metadata": {"display_phone_number": "15550783881", "phone_number_id": NUMBER_ID},
        "contacts": [{"profile": {"name": "Ada"}, "wa_id": "16505551234"}],
    }
    if messages:
        value["messages"] = list(messages)
    if statuses is not None:
        value["statuses"] = statuses
    entry = {"id": "102290129340398", "changes": [{"value": value, "field": field}]}
    return json.dumps({"object": "whatsapp_business_account", "entry": [entry]}).encode()


def whatsapp_message(text: str | None = "hello", **changes: Any) -> dict[str, Any]:
    return {
        "from": "16505551234",
        "id": "wamid.HBgLMTY1MDU1NTEyMzQVAgASGBQzQQ==",
        "timestamp": "1700000000",
        **({"type": "text", "text": {"body": text}} if text is not None else {}),
        **changes,
    }
