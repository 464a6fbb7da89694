"""Prompts: what an agent is shown. A prompt is assembled once per turn, in the house's own parts; adapters spell it
out for each provider."""

from __future__ import annotations

import msgspec

from threadline.core.messages import Role
from threadline.core.parts import Part


class PromptMessage(msgspec.Struct, frozen=True):
    role: Role
    parts: tuple[Part, ...]


class Prompt(msgspec.Struct, frozen=True):
    """Snapshot, system prompt and summary first (role system), then the window, then the request."""

    messages: tuple[PromptMessage, ...]
    model: str | None = None
    agent_id: str | None = None
    thread_id: str | None = None
    turn_id: str | None = None
    turns_shown: int = 0
    messages_left_out: int = 0
