"""What a person sees in terminals of 40, 80 and 200 columns, with and without colours, as golden screens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.screens import ScreenTerminal
from tests.cli.stub_model import Call, StubModel, serve_model
from tests.cli.test_markdown import SAMPLE

EVERY_WINDOW = pytest.mark.parametrize(
    "window", ["40", "40-plain", "80", "80-plain", "200", "200-plain"], indirect=True
)
QUESTION = "what is worth seeing?"
EDIT = Call("edit_file", {"path": "main.py", "old": "a - b", "new": "a + b"})


@pytest.fixture
def window(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ScreenTerminal]:
    """A terminal; its parameter is its width, and `-plain` for one without colours."""
    columns, _, plain = getattr(request, "param", "80").partition("-")
    terminal = ScreenTerminal(tmp_path, int(columns), colours=not plain)
    yield terminal
    terminal.close()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return str(request.node.callspec.params["window"])


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[StubModel]:
    with serve_model() as model:
        model.write_settings(tmp_path / "threadline.toml")
        yield model


@pytest.mark.req("T-01", "T-07")
@EVERY_WINDOW
def test_a_first_start_and_the_help(window: ScreenTerminal, name: str) -> None:
    # One source that is always found; nothing listens at port 1.
    window.environment |= {"OPENAI_API_KEY": "x", "OLLAMA_HOST": "127.0.0.1:1"}
    window.start("chat")
    window.wait_for_prompt()
    window.expect_golden(f"first-start-{name}")
    window.type("/help\r")
    window.wait_for("Tab completes")
    window.expect_golden(f"help-{name}")


@pytest.mark.req("T-07", "A-03")
@EVERY_WINDOW
def test_a_reply_a_tool_an_error_and_the_list_of_threads(
    window: ScreenTerminal, name: str, stub: StubModel, tmp_path: Path
) -> None:
    (tmp_path / "main.py").write_text("def add(a, b):\n    return a - b\n")
    stub.replies = [[SAMPLE], [EDIT], ["Edited."]]
    window.start("chat", "--tools", QUESTION)
    window.wait_for("a quotation")
    window.wait_for_prompt()
    window.expect_golden(f"reply-{name}")
    window.type("\x0cfix it\r")
    window.wait_for("Allow?", "ne[v]er:")
    window.expect_golden(f"approval-{name}")
    window.type("y\r")
    window.wait_for("Edited.")
    window.wait_for_prompt()
    window.type("\x0c/open nothing of that name\r")
    window.wait_for("error:")
    window.wait_for_prompt()
    window.expect_golden(f"error-{name}")
    window.type("\x04")
    window.wait_for_exit(0)
    window.start("chat", "--resume")
    window.wait_for("Type to search")
    window.expect_golden(f"picker-{name}")
    window.type("\r")
    window.wait_for("user: fix it", "Edited.")
