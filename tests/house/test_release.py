"""What a release must say: the changelog's newest entry is this version's, or the one to come."""

from __future__ import annotations

import re

from tests.house.rules import ROOT
from threadline.version import __version__


def test_the_changelog_says_what_is_new_in_this_version_or_in_the_one_to_come() -> None:
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] in {"Unreleased", __version__}
