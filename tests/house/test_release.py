"""One version, told in three places: the package, pyproject.toml and the changelog."""

from __future__ import annotations

import re
import tomllib

from tests.house.rules import ROOT


def project_version() -> str:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert isinstance(version, str)
    return version


def test_the_package_tells_the_version_of_the_project() -> None:
    source = (ROOT / "src" / "threadline" / "version.py").read_text(encoding="utf-8")
    assert re.findall(r'^__version__ = "(.+)"$', source, re.MULTILINE) == [project_version()]


def test_the_changelog_says_what_is_new_in_this_version_or_in_the_one_to_come() -> None:
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] in {"Unreleased", project_version()}
