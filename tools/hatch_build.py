"""Hatch's hook: a wheel holds the built page. An editable install does not wait for it; `make serve` builds it."""

from __future__ import annotations

import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PageHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        # Imported here because the folder is not on a build's path, and an editable install on a fresh machine
        # has no node.
        sys.path.insert(0, self.root)
        from tools import page  # noqa: PLC0415

        page.build()
