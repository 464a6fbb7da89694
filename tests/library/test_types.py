"""Typed keyword arguments: a misspelled field is a type error, in the library, the client and the synchronous API."""

from __future__ import annotations

import mypy.api
import pytest

PRELUDE = """
import threadline

async def check(ada: threadline.UserView, client: threadline.Client, me: threadline.SyncGateway) -> None:
    thread = await ada.create_thread()
    remote = await client.create_thread()
    {call}
"""


def errors_of(call: str) -> str:
    output, _, _ = mypy.api.run(["-c", PRELUDE.format(call=call)])
    return output


def test_calls_with_the_right_arguments_pass() -> None:
    calls = (
        "await ada.create_thread(title='Trip', metadata={'a': 1}, model=None)",
        "await client.open_thread('key', title='Trip')",
        "(await thread.branch(at=1, title='x')).title",
        "await remote.update(archived=True)",
        "me.create_thread(title='x').messages(newest=3)",
    )
    assert errors_of("\n    ".join(calls)).startswith("Success")


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("await ada.create_thread(titel='Trip')", "titel"),
        ("await client.create_thread(titel='Trip')", "titel"),
        ("me.create_thread(titel='Trip')", "titel"),
        ("await thread.branch(titel='Trip')", "titel"),
        ("await thread.update(title=3)", "title"),
    ],
)
def test_a_misspelled_or_mistyped_field_is_a_type_error(call: str, error: str) -> None:
    output = errors_of(call)
    assert "error:" in output
    assert error in output
