"""Settings of the built-in tools of `threadline chat`."""

from __future__ import annotations

import msgspec


class WorkspaceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The built-in tools of `threadline chat` for the files of its folder. `tools` gives them to every chat, as
    `--tools` does. `allow` and `deny` are rules by folder: `TOOL` or `TOOL PATTERN`."""

    tools: bool = False
    allow: dict[str, tuple[str, ...]] = {}
    deny: dict[str, tuple[str, ...]] = {}
