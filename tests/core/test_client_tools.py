"""Tools that a request or an agent's settings declare: what a model can be offered."""

from __future__ import annotations

from typing import Any

import pytest

from threadline.core.arguments import as_client_tools
from threadline.core.client_tools import ClientTool, offered_to, read_declared, stored_form
from threadline.core.errors import InvalidInput

LOCATE = {"description": "Where the user is.", "parameters": {"type": "object", "properties": {}}}


@pytest.mark.parametrize(
    "tools",
    [
        [ClientTool("a b")],
        [ClientTool("a"), ClientTool("a")],
        [ClientTool("a", "x" * 5_000)],
        [ClientTool("a", schema={"type": "string"})],
        [ClientTool("a", schema={"type": "object", "x": "y" * 20_000})],
        [ClientTool(f"t{number}") for number in range(33)],
        [ClientTool(f"t{number}", schema={"type": "object", "x": "y" * 16_000}) for number in range(5)],
    ],
)
@pytest.mark.req("C-01")
def test_tools_that_no_model_can_be_offered_are_refused(tools: list[ClientTool]) -> None:
    with pytest.raises(InvalidInput):
        as_client_tools(tools)


@pytest.mark.parametrize(
    "given",
    [[LOCATE], {"a": 5}, {"a": {}}, {"a": {"parameters": []}}, {"a": LOCATE | {"description": 5}}, {"": LOCATE}],
)
def test_declarations_of_another_form_are_refused(given: Any) -> None:
    with pytest.raises(InvalidInput):
        read_declared(given, "clientTools")


def test_what_a_request_declared_is_read_from_its_turn() -> None:
    tools = read_declared({"locate": LOCATE | {"type": "frontend"}, "b": {"parameters": {"type": "object"}}}, "tools")
    assert [(each.name, each.description) for each in tools] == [("locate", "Where the user is."), ("b", "")]
    assert offered_to("web", stored_form(tools)) == tools
    assert offered_to("web", {}) == ()
    assert offered_to("slack", stored_form(tools)) is None
