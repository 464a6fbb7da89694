"""A release: the changelog's newest section is this version or the next one, a wrong tag is refused, and what is
published installs without npm, serves the page and is the same bytes each time it is built."""

from __future__ import annotations

import filecmp
import json
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tests.conventions.rules import ROOT
from threadline.version import __version__
from tools.release import LOCK, build, find_fault, list_materials, read_notes

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


def test_the_bill_of_materials_names_every_pinned_package_and_follows_the_format() -> None:
    text = list_materials(LOCK.read_text(encoding="utf-8"))
    assert text == list_materials(LOCK.read_text(encoding="utf-8"))
    listed = json.loads(text)
    names = re.findall(r"^(\S+)==", LOCK.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(component["name"] for component in listed["components"]) == sorted(names)
    assert all(component["hashes"] for component in listed["components"])
    assert listed["bomFormat"] == "CycloneDX"
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None


@pytest.mark.slow
@pytest.mark.req("K-11")
def test_a_release_is_reproducible_and_serves_its_page_on_every_python_that_is_here(tmp_path: Path) -> None:
    build(tmp_path / "first")
    build(tmp_path / "second")
    names = [path.name for path in (tmp_path / "first").iterdir()]
    assert filecmp.cmpfiles(tmp_path / "first", tmp_path / "second", names, shallow=False) == (names, [], [])
    wheel = next((tmp_path / "first").glob("*.whl"))
    uv = Path(sys.executable).with_name("uv")
    for python in pythons():
        place = tmp_path / python.name
        subprocess.run([uv, "venv", "--quiet", "--python", python, place], check=True, timeout=120)
        wanted = f"{wheel}[service]"
        into = str(place / "bin" / "python")
        subprocess.run([uv, "pip", "install", "--quiet", "--python", into, wanted], check=True, timeout=600)
        assert "<title>" in first_page(place / "bin" / "threadline", tmp_path / f"{place.name}.sqlite3")


def pythons() -> list[Path]:
    """Every supported Python of this machine, in its path or kept by pyenv, one of each version."""
    found = {sys.version_info[:2]: Path(sys.executable)}
    for minor in (11, 12, 13, 14):
        name = f"python3.{minor}"
        in_path = shutil.which(name)
        kept = Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/{name}")
        for python in (*kept, *([] if in_path is None else [Path(in_path)])):
            # A shim of pyenv is in the path also where its version is not chosen.
            if subprocess.run([python, "-c", ""], capture_output=True, check=False, timeout=60).returncode == 0:
                found[3, minor] = python
    return list(found.values())


def first_page(program: Path, database: Path) -> str:
    """What `threadline serve` of this installation shows at the address that it prints. Neither node nor this
    environment is in its path."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(database.parent), "THREADLINE_DATABASE": str(database)}
    command = [str(program), "serve", "--port", "0"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        try:
            assert run.stdout is not None
            address = next(found[0] for line in run.stdout if (found := re.search(r"http://[\w.:]+", line)))
            with urllib.request.urlopen(address, timeout=60) as answer:
                page: str = answer.read().decode()
                return page
        finally:
            run.terminate()
