"""The manifest of a Slack app, against Slack's reference of manifests, events and methods."""

from __future__ import annotations

import re
from typing import Any

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from tests.channels.deliveries import slack, slack_message
from tests.conventions.rules import ROOT
from threadline.channels.slack import Slack
from threadline.channels.slack_manifest import EVENTS, SCOPES, build_manifest
from threadline.core.errors import InvalidInput

WEBHOOK = "https://threadline.example.com/api/v1/tenants/local/channels/slack/webhook"
# From docs.slack.dev/reference/app-manifest: each field with the type of its value; text with its longest length.
REFERENCE: dict[str, Any] = {
    "_metadata": {"major_version": int, "minor_version": int},
    "display_information": {"name": 35, "description": 140},
    "features": {
        "app_home": {"home_tab_enabled": bool, "messages_tab_enabled": bool, "messages_tab_read_only_enabled": bool},
        "bot_user": {"display_name": 80, "always_online": bool},
        "agent_view": {"agent_description": 300, "suggested_prompts": [{"title": 75, "message": 300}]},
    },
    "oauth_config": {"scopes": {"bot": [80]}},
    "settings": {
        "event_subscriptions": {"request_url": 3000, "bot_events": [80]},
        "interactivity": {"is_enabled": bool, "request_url": 3000},
        "org_deploy_enabled": bool,
        "socket_mode_enabled": bool,
        "token_rotation_enabled": bool,
    },
}
# From the reference of each method and event: the scope that a bot needs for it.
SCOPE_OF_METHOD = {
    "chat.postMessage": "chat:write",
    "chat.postEphemeral": "chat:write",
    "chat.update": "chat:write",
    "chat.startStream": "chat:write",
    "chat.appendStream": "chat:write",
    "chat.stopStream": "chat:write",
    "conversations.history": "channels:history groups:history im:history",
    "conversations.replies": "channels:history groups:history im:history",
    "assistant.threads.setStatus": "chat:write",
    "auth.test": "",
    "apps.connections.open": "",
}
SCOPE_OF_EVENT = {
    "app_home_opened": "",
    "app_mention": "app_mentions:read",
    "message.channels": "channels:history",
    "message.groups": "groups:history",
    "message.im": "im:history",
}


def check(value: Any, expected: Any) -> None:
    match expected:
        case dict():
            assert set(value) <= set(expected)
            for name, each in value.items():
                check(each, expected[name])
        case list():
            assert isinstance(value, list)
            for each in value:
                check(each, expected[0])
        case int():
            assert isinstance(value, str)
            assert 0 < len(value) <= expected
        case _:
            assert type(value) is expected


@pytest.mark.req("H-04")
@pytest.mark.parametrize("webhook", [None, WEBHOOK])
def test_a_manifest_is_what_slacks_reference_describes(webhook: str | None) -> None:
    manifest = build_manifest("Threadline", webhook)
    check(manifest, REFERENCE)
    settings = manifest["settings"]
    # Slack refuses events and interactivity that go nowhere.
    assert settings["socket_mode_enabled"] is (webhook is None)
    assert [settings[each].get("request_url") for each in ("event_subscriptions", "interactivity")] == [webhook] * 2


@pytest.mark.req("H-04")
def test_it_asks_for_the_scopes_of_every_method_that_is_called_and_every_event_and_no_others() -> None:
    source = "".join(path.read_text() for path in (ROOT / "src/threadline/channels").glob("slack*.py"))
    called = set(re.findall(r"\{self\._api\}/([A-Za-z.]+)", source)) | set(
        re.findall(r'"((?:conversations|chat)\.\w+)"', source)
    )
    assert called == set(SCOPE_OF_METHOD)
    needed = {scope for method in called for scope in SCOPE_OF_METHOD[method].split()}
    needed |= {scope for event in EVENTS for scope in SCOPE_OF_EVENT[event].split()}
    # `agent_view` needs the other one.
    assert set(SCOPES) == needed | {"assistant:write"}
    for method in called:
        assert hasattr(AsyncWebClient, method.replace(".", "_")), method


@pytest.mark.req("H-04")
@pytest.mark.parametrize(
    "event",
    [
        {"type": "app_home_opened", "user": "U1", "channel": "D1", "tab": "messages", "event_ts": "1515449522000016"},
        {"type": "assistant_thread_started", "assistant_thread": {"user_id": "U1", "channel_id": "D1"}},
        {"type": "assistant_thread_context_changed", "assistant_thread": {"user_id": "U1", "channel_id": "D1"}},
        {"type": "app_context_changed", "user": "U1"},
    ],
)
def test_an_opened_agent_view_is_acknowledged_and_begins_nothing(event: dict[str, Any]) -> None:
    delivery = Slack().parse_webhook(slack(event))
    assert [(each.reason, each.detail) for each in delivery.ignored] == [("status", event["type"])]
    assert delivery.arrivals == ()


@pytest.mark.req("H-04")
def test_the_suggested_prompt_is_a_command() -> None:
    (prompt,) = build_manifest("Threadline", None)["features"]["agent_view"]["suggested_prompts"]
    (arrival,) = Slack().parse_webhook(slack(slack_message(prompt["message"]))).arrivals
    assert arrival.text == "!help"


def test_a_name_that_slack_refuses_is_refused() -> None:
    for name in ("", "x" * 36):
        with pytest.raises(InvalidInput, match=f"1 to 35 characters, got {len(name)}"):
            build_manifest(name, None)
