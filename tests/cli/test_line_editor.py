"""Typing in a chat: long pastes, messages of several lines, the history, Tab, keys pressed during a reply."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agents.mcp_npm_servers import server_command
from tests.cli.conftest import Run
from tests.cli.screens import ScreenTerminal
from tests.cli.stub_model import Call, StubModel
from tests.cli.test_screens import stub as stub
from tests.cli.test_screens import window as window
from threadline.cli.chat.completions import Completions
from threadline.cli.chat.pasted_text import PastedTexts

UP, BACKSPACE, CTRL_C, CTRL_D = "\x1b[A", "\x7f", "\x03", "\x04"
REPLY = "Hello from the stub."
SCRIPT = "\n".join(f"line {number} of [Pasted text 1: 300 lines]" for number in range(300))


@pytest.mark.req("T-04")
def test_a_long_paste_is_shown_short_sent_whole_and_in_the_history(window: ScreenTerminal, stub: StubModel) -> None:
    window.start("chat")
    window.wait_for_prompt()
    window.type("look at ")
    window.paste(SCRIPT.replace("\n", "\r"))
    window.wait_for("> look at [Pasted text 1: 300 lines]")
    window.type("please\r")
    window.wait_for(REPLY)
    window.wait_for_prompt()
    assert stub.questions() == [f"look at {SCRIPT}please"]
    assert not any("line 1 of" in line for line in window.lines())
    # Backspace removes a mark as a whole: the rest of one would be sent in the place of the text.
    window.paste(SCRIPT)
    window.wait_for("> [Pasted text 1: 300 lines]")
    window.type(f"{BACKSPACE}what?\r")
    window.wait_for("> what?")
    window.wait_for_prompt()
    window.type(CTRL_D)
    window.wait_for_exit(0)
    window.start("chat", "again")
    window.wait_for(REPLY)
    window.wait_for_prompt()
    window.press_until(UP, "> [Pasted text 1: 300 lines]")
    window.type("\r")
    window.wait_for_prompt()
    assert stub.questions()[1:] == ["what?", "again", f"look at {SCRIPT}please"]


@pytest.mark.req("T-04")
def test_a_message_of_several_lines_is_one_entry_of_the_history(window: ScreenTerminal, stub: StubModel) -> None:
    window.start("chat")
    window.wait_for_prompt()
    window.type("one\\\r")
    window.wait_for("> one …")
    window.type("two\x1b\rthree\r")
    window.wait_for(REPLY)
    window.wait_for_prompt()
    window.press_until(UP, "Hello from the stub. > one … two … three")
    window.type("!\r")
    window.wait_for("three!")
    window.wait_for_prompt()
    assert stub.questions() == ["one\ntwo\nthree", "one\ntwo\nthree!"]


@pytest.mark.req("T-04")
def test_keys_pressed_during_a_reply_are_not_printed_into_it(window: ScreenTerminal) -> None:
    window.start("chat", "slow 300")
    window.wait_for("I am")
    window.type("later")
    window.type(CTRL_C)
    window.wait_for("Stopped. The part above is saved.")
    window.wait_for_prompt()
    seen = "\n".join(window.lines())
    assert "^C" not in seen
    assert "later" not in seen


@pytest.mark.req("A-06")
def test_a_message_typed_during_a_reply_is_taken_into_it(
    window: ScreenTerminal, stub: StubModel, tmp_path: Path
) -> None:
    wait = Call("run_command", {"command": "until [ -e go ]; do sleep 0.1; done"})
    stub.replies = [["Let me look.", wait], ["Both are far."]]
    window.start("chat", "--tools", "Is Porto far?")
    window.wait_for("Allow?")
    window.type("y\r")
    window.wait_for("Allow? [y]es, [n]o, [a]lways in this chat, always in this [f]older, ne[v]er: y")
    window.type("And Lisbon?\r")
    window.wait_for("> And Lisbon?")
    (tmp_path / "go").touch()
    window.wait_for("Both are far.")
    window.wait_for_prompt()
    said = [message["content"] for message in stub.requests[1]["messages"] if message["role"] == "user"]
    assert (said, len(stub.requests)) == (["Is Porto far?", "And Lisbon?"], 2)
    window.press_until(UP, "> And Lisbon?")


@pytest.mark.req("A-06")
def test_a_message_that_no_reply_takes_in_is_answered_next(window: ScreenTerminal, stub: StubModel) -> None:
    stub.replies = [["Porto is far."], ["Lisbon, too."]]
    stub.hold_after = 0
    window.start("chat", "Is Porto far?")
    window.wait_until(lambda: len(stub.requests) == 1)
    window.type("And Lisbon?\r")
    window.wait_for("> And Lisbon?")
    window.type("/quit\r")
    stub.release()
    window.wait_for("Porto is far.", "Lisbon, too.")
    window.wait_for_exit(0)
    assert stub.questions() == ["Is Porto far?", "And Lisbon?"]


@pytest.mark.req("T-04")
def test_a_question_can_follow_the_command_without_an_option(run: Run) -> None:
    """Without a terminal it is the question of -p."""
    asked = run("chat", "calculate", "6*7")
    assert (asked.code, asked.out.splitlines()[-1]) == (0, "6*7 is 42.")
    assert "6*7 is 42." in run("chat", "--json", "calculate 6*7").json()["text"]
    assert run("chat", "-p", "--continue", "calculate 5*5", stdin="text").code == 0
    assert run("chat", "--modle", "x", "hello").code == 2


@pytest.mark.req("A-05", "T-04")
def test_compact_says_what_happened_and_the_summary_is_shown_and_edited(
    window: ScreenTerminal, stub: StubModel, tmp_path: Path
) -> None:
    stub.write_settings(
        tmp_path / "threadline.toml", "[windows.reading]", "tokens = 400", "[compaction]", "automatic = false"
    )
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\necho " We chose Porto." >> "$1"\n')
    editor.chmod(0o755)
    window.environment["EDITOR"] = str(editor)
    stub.replies = [["word " * 60], ["word " * 60], ["word " * 60], ["We chose Lisbon."], [REPLY]]
    window.start("chat", "one")
    for question in ("two", "three"):
        window.wait_for_prompt()
        window.type(f"\x0c{question}\r")
        window.wait_for(f"> {question}", "word word")
    window.wait_for_prompt()
    window.type("\x0c/summary\r")
    window.wait_for("No summary yet")
    window.type("/compact\r")
    window.wait_for("stub-small summarised the first", "No message is deleted.", "/summary edit changes it.")
    window.type("\x0c/summary\r")
    window.wait_for("the agent is shown this (summarised by stub-small", "We chose Lisbon.")
    window.type("\x0c/summary edit\r")
    window.wait_for("Stored: the agent is shown your text")
    window.type("\x0c/summary\r")
    window.wait_for("edited by a person", "We chose Lisbon. We chose Porto.")
    window.type("\x0cwhere?\r")
    window.wait_for(REPLY)
    system = [message["content"] for message in stub.requests[-1]["messages"] if message["role"] == "system"]
    assert any("We chose Porto." in str(text) for text in system)


@pytest.mark.req("A-05")
def test_a_summary_that_was_written_by_itself_is_mentioned(
    window: ScreenTerminal, stub: StubModel, tmp_path: Path
) -> None:
    stub.write_settings(tmp_path / "threadline.toml", "[windows.reading]", "tokens = 400")
    stub.replies = [["word " * 60]]
    window.start("chat", "one")
    # The summary is written beside a turn, so it may be mentioned after a later one.
    for number in range(20):
        window.wait_for_prompt()
        if any("The window was nearly full." in line for line in window.lines()):
            return
        window.type(f"\x0cquestion {number}\r")
        window.wait_for(f"> question {number}", "word word")
    raise AssertionError("\n".join(window.lines()))


@pytest.mark.req("A-02")
def test_prompts_of_mcp_servers_are_commands_and_resources_are_mentioned(
    window: ScreenTerminal, stub: StubModel, tmp_path: Path
) -> None:
    settings = tmp_path / "threadline.toml"
    command = ", ".join(f'"{word}"' for word in server_command("everything", "stdio"))
    stub.write_settings(settings)
    text = settings.read_text().replace('model = "stub-small"', 'model = "stub-small"\nmcp = ["every", "gone"]')
    settings.write_text(f'{text}[mcp.every]\ncommand = [{command}]\n[mcp.gone]\ncommand = ["/no/such"]\n')
    window.start("chat", "hello")
    window.wait_for(REPLY)
    window.wait_for_prompt()
    window.type("/every__args-prompt city=Porto 'state=Norte Region'\r")
    window.wait_for("│ What's weather in Porto, Norte Region?", REPLY)
    window.wait_for_prompt()
    window.type("\x0c/help\r")
    window.wait_for("/every__args-prompt <city> [state]")
    window.type("\x0c/every__args-prompt\r")
    window.wait_for("prompt every__args-prompt needs city")
    window.type("/every__nothing\r")
    window.wait_for("MCP server every has no prompt every__nothing: it has every__")
    window.type("/gone__x\r")
    window.wait_for("MCP server gone is not available: there is no program '/no/such'")
    window.type("\x0c/every__arg\t")
    window.wait_for("> /every__args-prompt")
    window.type(" ci\t")
    window.wait_for("> /every__args-prompt city=")
    window.type("Porto\r")
    window.wait_for("What's weather in Porto?")
    window.wait_for_prompt()
    window.type("\x0cread @every:demo://resource/static/document/features.md.\r")
    window.wait_for("Added @every:demo://resource/static/document/features.md", REPLY)
    window.wait_for_prompt()
    asked = stub.questions()
    assert asked[1] == "What's weather in Porto, Norte Region?"
    assert asked[-1].startswith("read @every:demo://resource/static/document/features.md.\n\n@every:demo://")
    assert len(asked[-1]) > 500
    window.type("\x0cread @every:demo://nothing\r")
    window.wait_for("error:")
    window.wait_for_prompt()
    assert len(stub.questions()) == len(asked)


async def test_tab_completes_commands_arguments_and_mentions() -> None:
    completions = Completions([("/model", "show the model"), ("/agent", ""), ("/context", "")])

    async def models() -> list[str]:
        return ["small", "large"]

    completions.add_arguments("/model", models)
    completions.add_commands(lambda: [("/every__ask", "asks")], lambda command: ["city", "state"])
    completions.add_mentions(lambda: [("@every:demo://a", "A"), ("@every:demo://b", "B")])

    async def offered(before: str) -> list[str]:
        return [before[: len(before) - each.replaces] + each.text for each in await completions.find(before)]

    assert await offered("/m") == ["/model"]
    assert await offered("/e") == ["/every__ask"]
    assert await offered("/model s") == ["/model small"]
    assert await offered("/every__ask ") == ["/every__ask city=", "/every__ask state="]
    assert await offered("/every__ask city=Porto s") == ["/every__ask city=Porto state="]
    assert await offered("see @every:demo://b") == ["see @every:demo://b"]
    assert await offered("mail a@ev") == []
    assert await offered("hello") == []
    assert await offered("/context a\n/m") == []


def test_short_pastes_stay_and_long_ones_are_replaced_by_what_they_stand_for() -> None:
    pasted = PastedTexts()
    assert pasted.fold("two\nlines") == "two\nlines"
    many, wide = "\n".join("x" * 11), "y" * 1_001
    assert pasted.fold(many) == "[Pasted text 1: 11 lines]"
    assert pasted.fold(wide) == "[Pasted text 2: 1,001 characters]"
    assert pasted.fold(many) == "[Pasted text 1: 11 lines]"
    line = "[Pasted text 2: 1,001 characters] and [Pasted text 9: 3 lines]"
    assert pasted.unfold(line) == f"{wide} and [Pasted text 9: 3 lines]"
    assert pasted.mark_before("see [Pasted text 1: 11 lines]") == len("[Pasted text 1: 11 lines]")
    assert pasted.mark_before("see") == 0
