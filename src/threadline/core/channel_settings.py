"""The settings of messaging platforms: `[channels]` and `[channels.NAME]`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from threadline.core.turns import ChatPolicy


class ChannelSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One messaging platform. `agent` and `policy` override those of all platforms; `contexts` says what has a history
    of its own in places that have threads: each thread, or the whole place; `direct_replies` says whether Slack shows
    replies to direct messages in threads; `template` is sent on WhatsApp to a person whose window is closed; `api` is
    the URL of a fake platform."""

    enabled: bool = True
    agent: str | None = None
    policy: ChatPolicy | None = None
    contexts: Literal["thread", "place"] = "thread"
    direct_replies: Literal["message", "thread"] = "message"
    template: str | None = None
    template_language: str = "en_US"
    api: str | None = None


class ChannelsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Messaging platforms. `keys` and `key` are an earlier place for those of `VaultSettings`."""

    keys: dict[str, str] = {}
    key: str = ""
    replay_seconds: float = 86_400.0
    link_minutes: float = 10.0
    sweep_seconds: float = 2.0
    retry_hours: float = 24.0
    keep_days: float = 30.0
    approval_hours: float = 24.0
    """How long a question for approval can be answered in a chat."""
    shed_seconds: Annotated[float, msgspec.Meta(gt=0)] = 2.0
    """A webhook gets 503 while the oldest message has waited longer than this."""
    live_after_seconds: float = 1.0
    """A reply that takes longer is announced while it is written; 0: none is."""
    home: Literal["user", "agent"] = "user"
    """Which private chats share a history while their user has chosen no home thread: all, or those with one agent."""
    policy: ChatPolicy = "queue"
    """What happens to a message that arrives while a turn runs, on every platform, Matrix included."""
    slack: ChannelSettings = ChannelSettings()
    telegram: ChannelSettings = ChannelSettings()
    whatsapp: ChannelSettings = ChannelSettings()
