"""The manifest that a Slack app is created from: what Threadline needs of Slack, and nothing else.

The command that prints it, the documentation and the checks of `threadline channels doctor` have it from here.
"""

from __future__ import annotations

from typing import Any

from threadline.core.errors import InvalidInput

SCOPES = {
    "app_mentions:read": "hear mentions in channels",
    "assistant:write": "be listed as an agent, with prompts to begin with",
    "channels:history": "hear follow-ups in threads of public channels, and find its own replies again",
    "chat:write": "reply, and show that it writes",
    "groups:history": "the same in private channels",
    "im:history": "hear direct messages",
}
"""Each with what the bot cannot do without it."""
EVENTS = ("app_home_opened", "app_mention", "message.channels", "message.groups", "message.im")
# Slack's limit for the name of an app.
_LONGEST_NAME = 35


def build_manifest(name: str, webhook: str | None) -> dict[str, Any]:
    """For deliveries to `webhook`, or over Socket Mode without one. InvalidInput for a name that Slack refuses."""
    if not 0 < len(name) <= _LONGEST_NAME:
        raise InvalidInput(f"name of the app must have 1 to {_LONGEST_NAME} characters, got {len(name)}")
    address = {} if webhook is None else {"request_url": webhook}
    return {
        "_metadata": {"major_version": 2, "minor_version": 1},
        "display_information": {"name": name, "description": "Talk to an agent that knows your other conversations"},
        "features": {
            "app_home": {
                "home_tab_enabled": False,
                "messages_tab_enabled": True,
                "messages_tab_read_only_enabled": False,
            },
            "bot_user": {"display_name": name, "always_online": True},
            "agent_view": {
                "agent_description": "Answers here what you asked on the web, in the terminal or on another platform",
                "suggested_prompts": [{"title": "Show the commands", "message": "!help"}],
            },
        },
        "oauth_config": {"scopes": {"bot": sorted(SCOPES)}},
        "settings": {
            "event_subscriptions": {**address, "bot_events": list(EVENTS)},
            "interactivity": {"is_enabled": True, **address},
            "org_deploy_enabled": False,
            "socket_mode_enabled": webhook is None,
            "token_rotation_enabled": False,
        },
    }
