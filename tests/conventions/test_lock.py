"""The lock pins what pyproject.toml asks for, by hash, and names no place to fetch it from."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conventions.rules import ROOT

ENTRY = re.compile(
    r"^(?P<name>[a-z0-9-]+)==(?P<version>[^ ]+)(?P<marker> ; [^\\\n]+)? \\\n(?P<hashes>(?:    --hash=.*\n)+)"
    r"(?P<via>(?:    #.*\n)+)",
    re.MULTILINE,
)
HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}( \\)?")


class Pin(NamedTuple):
    version: str
    hashes: list[str]
    is_direct: bool


@cache
def lock_text() -> str:
    return (ROOT / "requirements-dev.lock").read_text(encoding="utf-8")


def pins() -> dict[str, Pin]:
    return {
        entry["name"]: Pin(entry["version"], entry["hashes"].splitlines(), "threadline (pyproject.toml" in entry["via"])
        for entry in ENTRY.finditer(lock_text())
    }


def asked_for() -> list[Requirement]:
    """What pyproject.toml names itself; an extra made of other extras adds nothing."""
    told = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = told["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values(), told["dependency-groups"]["dev"]]
    requirements = [Requirement(line) for lines in lists for line in lines]
    return [requirement for requirement in requirements if requirement.name != "threadline"]


def test_every_pin_was_read() -> None:
    assert len(pins()) == len(re.findall(r"^\S+==", lock_text(), re.MULTILINE)) > 0


def test_the_lock_holds_what_pyproject_asks_for_and_nothing_it_no_longer_does() -> None:
    direct = {name for name, pin in pins().items() if pin.is_direct}
    assert direct == {canonicalize_name(requirement.name) for requirement in asked_for()}, "run `make lock`"


def test_every_pinned_version_is_one_that_pyproject_allows() -> None:
    locked = pins()
    outside = [
        str(requirement)
        for requirement in asked_for()
        if not requirement.specifier.contains(locked[canonicalize_name(requirement.name)].version, prereleases=True)
    ]
    assert outside == [], "run `make lock`"


def test_everything_is_pinned_by_hash() -> None:
    assert [name for name, pin in pins().items() if not all(map(HASH.fullmatch, pin.hashes))] == []


def test_the_lock_names_no_host() -> None:
    assert re.findall(r"\S*://\S*|--(?:index|extra|find)\S*", lock_text()) == []


def test_the_build_backend_is_pinned_too_because_the_project_is_built_without_isolation() -> None:
    told = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    needed = {canonicalize_name(Requirement(line).name) for line in told["build-system"]["requires"]}
    assert needed <= pins().keys()
