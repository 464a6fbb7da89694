"""Hatch's hook: says so if a build has no page. Builds never run npm, so that `pip install` needs only PyPI.

`tools/release.py build` builds the page first; source distributions contain it, and wheels made from them too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PageHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        page = Path(self.root, "src", "threadline", "service", "page", "index.html")
        if version != "editable" and not page.is_file():
            self.app.display_warning("this build has no web page: `make page` builds it, then build again")
