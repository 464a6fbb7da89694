"""In-chat commands: one grammar, one help text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadline.core.commands import (
    COMMANDS,
    Command,
    CommandSpec,
    Misused,
    Unknown,
    choices_text,
    help_text,
    parse,
    read_choice,
)

PUBLIC = (
    "!new [name]",
    "!branch [name]",
    "!save [name]",
    "!load [name]",
    "!context",
    "!chats",
    "!open <chat>",
    "!home [here]",
    "!rename <name>",
    "!archive",
    "!clear",
    "!undo",
    "!link <code>",
    "!unlink",
    "!yes",
    "!no",
    "!cancel",
    "!stop",
    "!model [name]",
    "!help",
)


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("!new", Command("new")),
        ("!new Research", Command("new", "Research")),
        ("  !NEW \t Deep  Research \n", Command("new", "Deep  Research")),
        ("!new\u00a0Research", Command("new", "Research")),
        ("!open 3", Command("open", "3")),
        ("!link ABC-123", Command("link", "ABC-123")),
        ("!yes", Command("yes")),
        ("!whoami", Command("whoami")),
    ],
)
def test_a_command_is_one_line_that_begins_with_its_name(text: str, command: Command) -> None:
    assert parse(text) == command


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "!",
        "!!",
        "! new",
        "!!new",
        "!1",
        "!?",
        "new",
        "say !new",
        "!new\nsecond line",
        "¡new",
        "!-new",
        "!_x",
    ],
)
def test_anything_else_is_ordinary_text(text: str) -> None:
    assert parse(text) is None


@pytest.mark.req("S2-12")
@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("!sav", "Unknown command !sav. Did you mean !save? !help lists all commands."),
        ("!brnach x", "Unknown command !brnach. Did you mean !branch? !help lists all commands."),
        ("!xyzzy", "Unknown command !xyzzy. !help lists all commands."),
        ("!whoamii", "Unknown command !whoamii. !help lists all commands."),
        ("!newer", "Unknown command !newer. Did you mean !new? !help lists all commands."),
    ],
)
def test_an_unknown_command_gets_a_hint_that_gives_no_hidden_one_away(text: str, hint: str) -> None:
    found = parse(text)
    assert isinstance(found, Unknown)
    assert found.hint == hint


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("!open", "!open needs <chat>: continue another chat here."),
        ("!rename  ", "!rename needs <name>: rename this chat."),
        ("!undo 2", "!undo takes no argument: remove your last message and its reply."),
        ("!clear everything", "!clear takes no argument: start with an empty history here and keep the old one."),
    ],
)
def test_a_command_with_an_argument_too_few_or_too_many_does_nothing_and_says_why(text: str, hint: str) -> None:
    found = parse(text)
    assert isinstance(found, Misused)
    assert found.hint == hint


@pytest.mark.req("S2-12")
def test_help_lists_every_public_command_once_and_no_hidden_one() -> None:
    assert [line.split(":")[0] for line in help_text().splitlines()] == list(PUBLIC)
    assert any(spec.is_hidden for spec in COMMANDS)
    assert "whoami" not in help_text()


@given(st.sampled_from(COMMANDS), st.sampled_from(["", " Research", " 7"]))
def test_every_declared_command_is_understood_or_explained(spec: CommandSpec, argument: str) -> None:
    for place in spec.where:
        found = parse(f"!{spec.name}{argument}", place=place)
        assert isinstance(found, Command | Misused)
        assert found.name == spec.name


def test_the_terminal_has_the_same_rows_with_another_prefix_and_some_of_its_own() -> None:
    assert parse("/new Research", place="terminal", prefix="/") == Command("new", "Research")
    assert parse("/threads", place="terminal", prefix="/") == Command("chats")
    assert parse("/context clear", place="terminal", prefix="/") == Command("context", "clear")
    assert parse("/quit", place="terminal", prefix="/") == Command("quit")
    assert isinstance(parse("!quit"), Unknown)
    assert isinstance(parse("/link ABC", place="terminal", prefix="/"), Unknown)
    assert "/model [name]: show or change the model" in help_text("terminal", "/")


@given(st.text())
def test_no_text_makes_the_parser_fail(text: str) -> None:
    parse(text)
    read_choice(text, 3)


@pytest.mark.req("S2-09")
@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", 1),
        (" 3 ", 3),
        ("0", 0),
        ("!cancel", 0),
        ("4", None),
        ("-1", None),
        ("01", None),
        ("1.", None),
        ("٣", None),
        ("three", None),
        ("!load", None),
        ("9" * 5_000, None),
    ],
)
def test_a_list_is_answered_by_number_left_by_0_and_other_text_is_ordinary(text: str, number: int | None) -> None:
    assert read_choice(text, 3) == number


@pytest.mark.req("S2-09")
def test_the_list_numbers_its_names_from_one() -> None:
    assert choices_text(["alpha", "beta"]) == "Reply with a number, or 0 to cancel:\n1. alpha\n2. beta"
