"""Windows, from outside: an agent is shown as much of the thread as its window holds, however the thread was read."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import threadline
from threadline.core.context import assemble
from threadline.core.events import Event, TextDelta
from threadline.core.prompts import Prompt
from threadline.core.windows import READING_WINDOW, Window
from threadline.ports import AgentServices
from threadline.settings import Settings, WindowSettings


class Listener:
    """Keeps what it was shown."""

    def __init__(self) -> None:
        self.shown: list[Prompt] = []

    async def run(self, prompt: Prompt, services: AgentServices) -> AsyncIterator[Event]:
        self.shown.append(prompt)
        yield TextDelta("yes")


SHORT, LONG = "word " * 2, "word " * 300


@pytest.mark.req("S4-13")
@pytest.mark.parametrize(
    "window", [READING_WINDOW, Window(tokens=64_000), Window(turns=90), Window(turns=90, step=8)], ids=str
)
async def test_an_agent_is_shown_all_turns_of_a_thread_that_fit_its_window(window: Window) -> None:
    prompt, _ = await _ask([SHORT] * 80, window)
    assert (prompt.turns_shown, prompt.messages_left_out, prompt.first_seq) == (80, 0, 0)


@pytest.mark.req("S4-13")
@pytest.mark.parametrize("step", [1, 8])
@pytest.mark.parametrize("limit", [{"tokens": 4_000}, {"tokens": 20_000}, {"turns": 70}, {"turns": 7}], ids=str)
@pytest.mark.parametrize(
    "lengths",
    [[SHORT] * 400, [LONG] * 120, [SHORT] * 200 + [LONG] * 60, [LONG] * 100 + [SHORT] * 100],
    ids=["short", "long", "short, then long", "long, then short"],
)
async def test_a_prompt_is_the_same_as_if_the_whole_thread_had_been_read(
    lengths: list[str], limit: dict[str, int], step: int
) -> None:
    window = Window(**limit, step=step)
    prompt, history = await _ask(lengths, window)
    whole = assemble(history, history[-1], window=window)
    assert (prompt.first_seq, prompt.turns_shown, prompt.tokens) == (whole.first_seq, whole.turns_shown, whole.tokens)
    assert prompt.messages == whole.messages


async def _ask(questions: list[str], window: Window) -> tuple[Prompt, list[threadline.Message]]:
    """What an agent is shown in a thread with these questions, each with an answer of the same length; and the
    messages of the thread up to the question that it is asked."""
    listener = Listener()
    settings = Settings(database=":memory:", agent="listener", windows=WindowSettings(reading=window))
    async with threadline.open(settings=settings, agents={"listener": listener}) as opened:
        thread = await opened.as_user("ada").create_thread()
        await thread.append(*(each for text in questions for each in (text, threadline.assistant(text))))
        await thread.ask("And now?")
        return listener.shown[0], (await thread.messages())[:-1]
