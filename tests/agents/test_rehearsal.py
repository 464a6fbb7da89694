"""The rehearsal agent: the same reply for the same prompt, built from the prompt."""

from __future__ import annotations

import subprocess
import sys

import pytest

from threadline.agents import rehearsal_script
from threadline.agents.rehearsal import RehearsalAgent
from threadline.core.errors import AgentFailed
from threadline.core.event_fold import Fold
from threadline.core.events import (
    ApprovalRequest,
    Event,
    Finish,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolResult,
    Usage,
)
from threadline.core.parts import TextPart
from threadline.core.prompts import Prompt
from threadline.testing.agents import FixedApprover, MemoryJournal, memory_services, prompt_of


async def answer(prompt: Prompt, **options: object) -> list[Event]:
    return [event async for event in RehearsalAgent().run(prompt, memory_services(**options))]  # type: ignore[arg-type]


def said(events: list[Event]) -> str:
    fold = Fold()
    for event in events:
        fold.add(event)
    return " ".join(part.text for part in fold.parts() if isinstance(part, TextPart))


async def test_the_reply_describes_the_prompt() -> None:
    prompt = prompt_of(
        "hello",
        "hi",
        "I like tea",
        "noted",
        "and now?",
        system="Persisted user context:\nI live in Bern",
        messages_left_out=40,
    )
    assert said(await answer(prompt)) == (
        "You said: “and now?”. Before this I was shown 2 turns. "
        "The first thing you said was “hello”, the last “I like tea”. "
        "40 earlier messages are kept, but were too far back to be shown to me. "
        "You pinned this for me: “I live in Bern”."
    )


async def test_the_first_reply_mentions_help() -> None:
    assert said(await answer(prompt_of("hello"))) == (
        "You said: “hello”. This is the first thing you say to me here. Say help to see what I can rehearse."
    )


async def test_the_reply_is_streamed_word_by_word_with_usage() -> None:
    events = await answer(prompt_of("hello there"))
    words = [event for event in events if isinstance(event, TextDelta)]
    assert len(words) == 22
    assert events[-2:] == [Usage(input_tokens=2, output_tokens=22), Finish("stop")]


@pytest.mark.parametrize(
    ("request_", "reply"),
    [
        ("calculate 2+3*4", "Let me calculate that. 2+3*4 is 14."),
        ("Calculate 1+1 and 2+2?", "Let me calculate that. 1+1 is 2. 2+2 is 4."),
        ("what is 7*6?", "Let me calculate that. 7*6 is 42."),
        (
            "calculate the moon",
            "Let me calculate that. The tool calculate gave no result: ValueError: 'the moon' is not arithmetic.",
        ),
        ("count the words in to be or not", "Let me count. That is 4 words."),
        ("look back for BERN", "Let me look back. You said: “I was in Bern”."),
        ("look back for Rome", "Let me look back. Nothing you said before has “Rome” in it."),
        ("what did I say first?", "The first thing you said was “I was in Bern”."),
        ("what did I say last?", "The last thing you said was “and in Basel”."),
        ("What do you know about me?", "You have pinned no context for me."),
        ("stamp hello", "I need your approval for this. Here it is, stamped: hello [2cf24dba]."),
        ("think about rain", "I thought about rain, and I have come to no conclusion."),
        ("long 5", "This is sentence 1 of"),
        ("help", rehearsal_script.HELP),
    ],
)
async def test_known_requests_have_their_own_replies(request_: str, reply: str) -> None:
    events = await answer(prompt_of("I was in Bern", "ah", "and in Basel", "oh", request_))
    assert said(events) == reply


async def test_two_calculations_are_two_concurrent_calls() -> None:
    events = await answer(prompt_of("calculate 1+1 and 2+2"))
    kinds = [type(event) for event in events if isinstance(event, (ToolCall, ToolResult))]
    assert kinds == [ToolCall, ToolCall, ToolResult, ToolResult]


async def test_the_same_prompt_gives_the_same_events_and_another_turn_other_call_ids() -> None:
    prompt = prompt_of("calculate 2+2", turn_id="t1")
    assert await answer(prompt) == await answer(prompt)
    ids = {
        event.call_id
        for turn in ("t1", "t2")
        for event in await answer(prompt_of("calculate 2+2", turn_id=turn))
        if isinstance(event, ToolCall)
    }
    assert len(ids) == 2


async def test_a_turn_taken_over_does_not_stamp_twice() -> None:
    journal = MemoryJournal()
    prompt = prompt_of("stamp hello", turn_id="t1")
    first = await answer(prompt, journal=journal)
    assert await answer(prompt, journal=journal) == first
    assert [line.split()[0] for line in journal.log] == ["begin", "end", "begin"]


async def test_a_stamp_needs_approval_and_accepts_a_denial() -> None:
    deferred = await answer(prompt_of("stamp hello"), approver=FixedApprover("defer"))
    assert isinstance(deferred[-2], ApprovalRequest)
    assert deferred[-1] == Finish("tool-calls")
    denied = await answer(prompt_of("stamp hello"), approver=FixedApprover("deny"))
    assert said(denied).endswith("You did not allow me to use stamp, so I did not use it.")


async def test_reasoning_can_be_rehearsed() -> None:
    events = await answer(prompt_of("think about rain"))
    assert ReasoningDelta("So, rain. Let me see.") in events


async def test_failures_can_be_rehearsed() -> None:
    shown: list[Event] = []
    with pytest.raises(AgentFailed, match="as requested"):
        shown += [event async for event in RehearsalAgent().run(prompt_of("fail at once"), memory_services())]
    assert shown == []
    breaking = RehearsalAgent().run(prompt_of("fail"), memory_services())
    assert said([await anext(breaking) for _ in range(4)]) == "I begin to"


async def test_slow_replies_can_be_rehearsed() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    agent = RehearsalAgent(sleep=sleep)
    async for _ in agent.run(prompt_of("slow 10"), memory_services()):
        pass
    assert sum(slept) == pytest.approx(10)
    assert len(slept) > 10


async def test_requested_sizes_are_bounded() -> None:
    words = [event for event in await answer(prompt_of("long 999999")) if isinstance(event, TextDelta)]
    assert len(words) == rehearsal_script.LONGEST_WORDS


async def test_an_empty_prompt_is_answered() -> None:
    assert said(await answer(Prompt(messages=()))).startswith("You said: “”.")


def test_importing_the_rehearsal_agent_loads_no_provider() -> None:
    heavy = {"openai", "anthropic", "httpx2", "h11", "pydantic"}
    look = "import sys, threadline.agents.rehearsal; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True).stdout
    assert not heavy & set(loaded.split())
