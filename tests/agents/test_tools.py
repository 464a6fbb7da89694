"""Tools from typed functions: schemas, validation, and limits of every call."""

from __future__ import annotations

import asyncio
import enum
import math
import sys
import threading
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadline.agents.tool_execution import ToolFailed, to_json_data
from threadline.agents.tools import Tool, tool
from threadline.core import jsontext
from threadline.core.errors import InvalidInput


class Unit(enum.Enum):
    METRE = "m"
    FOOT = "ft"


class Place(msgspec.Struct):
    name: str
    height: float = 0.0


@tool
def measure(
    place: Place,
    times: Annotated[int, msgspec.Meta(ge=1, le=9)],
    unit: Unit = Unit.METRE,
    mode: Literal["quick", "sure"] = "quick",
    note: Annotated[str | None, "shown beside the number"] = None,
    tags: list[str] = [],  # noqa: B006 - a mutable default must not be shared
) -> str:
    """Measure a place.

    Takes a while.

    Args:
        place: where to go
        times (int): how often
    """
    return f"{place.name} {times} {unit.value} {mode} {note} {tags}"


def test_the_schema_comes_from_the_hints_and_the_docstring() -> None:
    assert measure.spec == (
        "measure",
        "Measure a place.\n\nTakes a while.",
        {
            "type": "object",
            "properties": {
                "place": {"$ref": "#/$defs/Place", "description": "where to go"},
                "times": {"type": "integer", "minimum": 1, "maximum": 9, "description": "how often"},
                "unit": {"$ref": "#/$defs/Unit", "default": "m"},
                "mode": {"enum": ["quick", "sure"], "default": "quick"},
                "note": {
                    "anyOf": [{"type": "string"}, {"type": "null"}],
                    "default": None,
                    "description": "shown beside the number",
                },
                "tags": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["place", "times"],
            "additionalProperties": False,
            "$defs": {
                "Place": {
                    "title": "Place",
                    "type": "object",
                    "properties": {"name": {"type": "string"}, "height": {"type": "number", "default": 0.0}},
                    "required": ["name"],
                },
                "Unit": {"title": "Unit", "enum": ["ft", "m"]},
            },
        },
    )


async def test_arguments_are_converted_to_the_functions_types() -> None:
    keywords = measure.check({"place": {"name": "Säntis"}, "times": 2, "unit": "ft"})
    assert await measure.run(keywords) == "Säntis 2 ft quick None []"


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({}, "missing required field `place`"),
        ({"place": {"name": "a"}, "times": 0}, "Expected `int` >= 1 - at `$.times`"),
        ({"place": {"name": 1}, "times": 1}, "Expected `str`, got `int` - at `$.place.name`"),
        ({"place": {"name": "a"}, "times": 1, "rm": "-rf"}, "unknown field `rm`"),
        ('{"place": {"na', 'must be a JSON object, got \'{"place": {"na\''),
        (None, "must be a JSON object, got 'None'"),
        ([1], "must be a JSON object"),
    ],
)
def test_an_invalid_argument_is_an_error_for_the_model(sent: Any, said: str) -> None:
    with pytest.raises(ToolFailed) as caught:
        measure.check(sent)
    assert said in str(caught.value)


def test_a_tool_is_unrepeatable_unless_it_says_otherwise() -> None:
    def look() -> None: ...

    assert not tool(look).repeatable
    assert tool(repeatable=True)(look).repeatable
    assert not tool(look).needs_approval


def test_a_function_without_a_schema_is_refused_as_a_tool() -> None:
    class Odd: ...

    def takes_odd(odd: Odd) -> None: ...
    def takes_any_number(*numbers: int) -> None: ...

    takes_odd.__annotations__ = {"odd": Odd}
    with pytest.raises(InvalidInput, match=r"takes_odd must have a JSON Schema: .*Odd"):
        tool(takes_odd)
    with pytest.raises(InvalidInput, match=r"\*numbers"):
        tool(takes_any_number)
    with pytest.raises(InvalidInput, match="tool name must match"):
        Tool.from_function(lambda: None)
    with pytest.raises(InvalidInput, match="greater than 0"):
        tool(timeout=0)(test_a_tool_is_unrepeatable_unless_it_says_otherwise)


async def test_sync_and_async_functions_and_callable_objects_all_run() -> None:
    class Counter:
        async def __call__(self, start: int) -> int:
            return start + 1

    async def double(n: int) -> int:
        return n * 2

    def thread() -> str:
        return threading.current_thread().name

    assert await tool(double).run({"n": 4}) == 8
    assert await Tool.from_function(Counter(), name="count").run({"start": 1}) == 2
    assert await tool(thread).run({}) == "threadline-tool"


def raise_key_error() -> None:
    raise KeyError("gone")


def leave() -> None:
    sys.exit(3)


async def leave_from_inside() -> None:
    sys.exit(3)


async def cancel_itself() -> None:
    raise asyncio.CancelledError


def fail_to_explain() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    raise Mute


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (raise_key_error, "KeyError: 'gone'"),
        (leave, "SystemExit: 3"),
        (leave_from_inside, "SystemExit: 3"),
        (cancel_itself, "was cancelled from inside"),
        (fail_to_explain, "Mute"),
    ],
)
async def test_any_exception_of_a_tool_becomes_text(function: Any, said: str) -> None:
    with pytest.raises(ToolFailed) as caught:
        await tool(function).run({})
    assert str(caught.value) == said


async def test_a_sync_tool_that_never_returns_is_abandoned() -> None:
    never = threading.Event()
    with pytest.raises(ToolFailed, match=r"did not return within 0\.02 s; it may still be running"):
        await tool(timeout=0.02)(lambda_named("wait", never.wait)).run({})
    never.set()


def lambda_named(name: str, wait: Any) -> Any:
    def function() -> bool:
        return bool(wait())

    function.__name__ = name
    return function


async def test_an_async_tool_that_never_returns_is_cancelled() -> None:
    seen = []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("cleaned up")

    with pytest.raises(ToolFailed, match=r"took longer than 0\.02 s and was stopped"):
        await tool(timeout=0.02)(forever).run({})
    assert seen == ["cleaned up"]


async def test_a_tool_that_will_not_be_cancelled_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threadline.agents.tool_execution.GRACE_SECONDS", 0.02)
    freed = asyncio.Event()
    ended = asyncio.Event()

    async def stubborn() -> None:
        while not freed.is_set():
            try:
                await freed.wait()
            except asyncio.CancelledError:
                continue
        ended.set()

    async with asyncio.timeout(30):
        with pytest.raises(ToolFailed, match="took longer"):
            await tool(timeout=0.02)(stubborn).run({})
    freed.set()
    await ended.wait()


async def test_cancelling_the_caller_cancels_the_tool() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    caller = asyncio.ensure_future(tool(work).run({}))
    await began.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert ended.is_set()


async def test_the_time_budget_of_a_turn_shortens_a_tools_timeout() -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(ToolFailed, match=r"longer than 0\.02 s"):
        await tool(forever).run({}, at_most=0.02)


async def test_a_hundred_megabytes_are_cut_and_marked() -> None:
    def flood() -> str:
        return "é" * 50_000_000

    def flood_of_data() -> list[int]:
        return [1_000_000] * 1_000_000

    text = await tool(flood).run({})
    assert len(text.encode()) < 50_200
    assert text.endswith("é\n[cut: this is the beginning of 50,000,000 characters]")
    data = await tool(flood_of_data).run({})
    assert len(data) < 50_200
    assert data.startswith("[1000000,1000000,")
    assert data.endswith("[cut: this is the beginning of 8,000,001 bytes of JSON]")


def test_text_at_the_limit_is_whole() -> None:
    assert to_json_data("é" * 50, 100) == "é" * 50
    assert to_json_data("é" * 51, 100) == "é" * 50 + "\n[cut: this is the beginning of 51 characters]"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (object(), "its object is not JSON data"),
        (math.nan, "its float is not JSON data"),
        ({"deep": math.inf}, "its dict is not JSON data"),
        ((n for n in range(3)), "its generator is not JSON data"),
        pytest.param(10**5000, "its int is not JSON data", id="huge"),
    ],
)
def test_a_result_that_is_not_json_is_named(value: Any, said: str) -> None:
    with pytest.raises(ToolFailed) as caught:
        to_json_data(value, 1000)
    assert str(caught.value).startswith("the tool ran, but")
    assert said in str(caught.value)


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ToolFailed, match="nested too deeply"):
        to_json_data(loop, 1000)


def test_values_with_a_json_form_are_accepted() -> None:
    assert to_json_data({"place": Place("a", 2.5), "unit": Unit.FOOT, 3: (1, 2)}, 1000) == {
        "place": {"name": "a", "height": 2.5},
        "unit": "ft",
        "3": [1, 2],
    }


def test_lone_surrogates_and_nuls_are_replaced_everywhere() -> None:
    assert to_json_data("a\ud800b\x00c", 1000) == "a\ufffdb\ufffdc"
    assert to_json_data({"k\udc00": ["\x00", {"x": "\ud83d"}]}, 1000) == {"k\ufffd": ["\ufffd", {"x": "\ufffd"}]}
    assert to_json_data("\ud83d\ude00", 1000) == "😀"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(st.characters()),
        lambda x: st.lists(x) | st.dictionaries(st.text(), x),
        max_leaves=20,
    )
)
def test_any_result_can_be_stored_and_is_bounded(value: Any) -> None:
    assert len(jsontext.dump(to_json_data(value, 200))) <= 600
