"""The reference pages name what the code has: every setting with its default, every call of the library."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest

import threadline
from tests.conventions.rules import ROOT
from threadline.library import ThreadHandle, UserView
from threadline.replies import Reply
from threadline.settings import Settings
from tools import reference

ROW = re.compile(r"^\| `(?P<key>\w+)` \| (?:`(?P<default>[^`]*)`|(?P<word>none|required)) \| \S", re.MULTILINE)
SECTION = re.compile(r"^## (?P<title>.+)$", re.MULTILINE)
NAMED = re.compile(r"\[([\w.]+)\]")
SETTINGS_PAGE = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
LIBRARY_PAGE = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")


def documented() -> dict[str, dict[str, str]]:
    """Section by section: each key and its default, as TOML spells it."""
    found: dict[str, dict[str, str]] = {}
    titles = list(SECTION.finditer(SETTINGS_PAGE))
    for title, following in zip(titles, [*titles[1:], None], strict=True):
        text = SETTINGS_PAGE[title.end() : following.start() if following else None]
        rows = {row["key"]: row["word"] or row["default"] for row in ROW.finditer(text)}
        found |= dict.fromkeys(NAMED.findall(title["title"]) or [""], rows)
    return found


def declared(struct: type[msgspec.Struct], section: str = "") -> Iterator[tuple[str, str, str]]:
    hints = get_type_hints(struct)
    for field in msgspec.structs.fields(struct):
        kind = hints[field.name]
        inner = next((each for each in (kind, *get_args(kind)) if _is_struct(each)), None)
        if inner is None:
            yield section, field.name, _toml(field)
        else:
            name = f"{field.name}.NAME" if get_origin(kind) is dict else field.name
            yield from declared(inner, f"{section}.{name}".lstrip("."))


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _toml(field: msgspec.structs.FieldInfo) -> str:
    if field.default_factory is not msgspec.NODEFAULT:
        return json.dumps(field.default_factory())
    if field.default is msgspec.NODEFAULT:
        return "required"
    return "none" if field.default is None else json.dumps(field.default)


def test_every_setting_is_on_the_page_with_its_default_and_no_other_is() -> None:
    page = {(section, key, default) for section, rows in documented().items() for key, default in rows.items()}
    assert page == set(declared(Settings))


@pytest.mark.parametrize("shown", [UserView, ThreadHandle, Reply])
def test_every_call_of_the_library_is_on_the_page(shown: type) -> None:
    public = [name for name in dir(shown) if not name.startswith("_")]
    assert [name for name in public if not re.search(rf"\b{name}\b", LIBRARY_PAGE)] == []


@pytest.mark.req("K-11")
def test_the_reference_site_shows_every_public_name(tmp_path: Path) -> None:
    reference.write(tmp_path)
    page = (tmp_path / "threadline.html").read_text(encoding="utf-8")
    modules = [name for name in threadline.__all__ if isinstance(getattr(threadline, name), ModuleType)]
    assert modules == ["events"]
    assert (tmp_path / "threadline" / "core" / "events.html").is_file()
    assert [name for name in threadline.__all__ if name not in modules and f'id="{name}"' not in page] == []
