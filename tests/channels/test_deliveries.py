"""Webhook bodies and the deliveries they become, side by side in golden files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from threadline.channels.slack import Slack
from threadline.channels.telegram import Telegram
from threadline.channels.whatsapp import WhatsApp
from threadline.core.platform_messages import BotIdentity, Delivery
from threadline.ports import Channel

GOLDEN = Path(__file__).parent / "golden"
CHANNELS: dict[str, Channel] = {"slack": Slack(), "telegram": Telegram(), "whatsapp": WhatsApp()}
ME = {"telegram": BotIdentity("123456", "threadline_fake_bot")}
"""Who the bot is, where deliveries do not say so."""
CASES = [
    pytest.param(name, case, id=f"{name}-{case['name']}")
    for name in CHANNELS
    for case in json.loads((GOLDEN / f"deliveries.{name}.json").read_text(encoding="utf-8"))
]


def as_json(delivery: Delivery) -> dict[str, Any]:
    """Only what a delivery holds, with reports named by what they say."""
    found = {
        "arrivals": [msgspec.to_builtins(arrival) for arrival in delivery.arrivals],
        "ignored": [ignored._asdict() for ignored in delivery.ignored],
        "reports": [[report.key, type(report.outcome).__name__, *report.outcome] for report in delivery.reports],
        "challenge": delivery.challenge,
    }
    return {name: value for name, value in found.items() if value}


@pytest.mark.parametrize(("platform", "case"), CASES)
def test_webhooks_are_parsed_as_in_the_golden_file(platform: str, case: dict[str, Any]) -> None:
    assert (
        as_json(CHANNELS[platform].parse_webhook(json.dumps(case["body"]).encode(), ME.get(platform)))
        == case["delivery"]
    )
