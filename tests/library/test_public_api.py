"""The public API is what the golden list says it is: a change to it is a change to that file, and to the changelog."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import threadline

GOLDEN = Path(__file__).with_name("public_api.txt")


def described() -> Iterator[str]:
    for name in sorted(threadline.__all__):
        thing = getattr(threadline, name)
        if inspect.isclass(thing):
            yield f"class {name}"
            yield from members(name, thing)
        elif callable(thing):
            yield f"{name}{inspect.signature(thing)}"
        else:
            yield name


def members(name: str, thing: type) -> Iterator[str]:
    for member in sorted(vars(thing)):
        value = inspect.getattr_static(thing, member)
        if member.startswith("_"):
            continue
        if isinstance(value, property):
            yield f"  {member}: property"
        elif inspect.isfunction(value):
            yield f"  {member}{inspect.signature(value)}"
    fields = getattr(thing, "__struct_fields__", None) or getattr(thing, "_fields", None)
    if fields:
        yield f"  fields: {', '.join(fields)}"


def test_the_public_api_is_the_one_on_the_list() -> None:
    assert "\n".join(described()) + "\n" == GOLDEN.read_text(encoding="utf-8")


def test_importing_the_package_imports_no_store_and_no_agent() -> None:
    heavy = ("apsw", "asyncpg", "asyncio", "msgspec", "openai", "anthropic", "prompt_toolkit", "re2")
    code = f"import sys, threadline; print([name for name in {heavy!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def test_opening_sqlite_imports_nothing_that_it_does_not_use() -> None:
    heavy = ("asyncpg", "openai", "anthropic", "prompt_toolkit", "h11", "http.client")
    code = f"import sys, threadline; threadline.open; print([name for name in {heavy!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def test_a_name_that_is_not_there_is_an_ordinary_attribute_error() -> None:
    assert not hasattr(threadline, "nonsense")
    assert "open" in dir(threadline)
