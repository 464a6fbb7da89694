"""A release: the changelog's newest section is this version or the next one, and a wrong tag is refused."""

from __future__ import annotations

import re

from tests.conventions.rules import ROOT
from threadline.version import __version__
from tools.release import find_fault, read_notes

CHANGELOG = "# Changelog\n\n## Unreleased\n\n## 1.2.0 - 2026-12-01\n\n- New.\n\n## 1.1.0\n\n- Old.\n"


def test_the_changelog_begins_with_this_version_or_the_next() -> None:
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] in {"Unreleased", __version__}


def test_the_notes_of_a_release_are_its_section_of_the_changelog() -> None:
    assert read_notes("v1.2.0", CHANGELOG) == "- New."
    assert find_fault("v1.2.0", "1.2.0", CHANGELOG) is None


def test_a_tag_that_is_not_the_version_is_refused() -> None:
    assert find_fault("v1.2.1", "1.2.0", CHANGELOG) == (
        "tag must be v1.2.0, the version of src/threadline/version.py, got v1.2.1"
    )


def test_a_version_without_a_section_is_refused() -> None:
    assert find_fault("v1.3.0", "1.3.0", CHANGELOG) == "CHANGELOG.md must have a section '## 1.3.0' with text in it"
