"""Messages with the policy `steer` are taken into the running turn, on each store, or answered after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from threadline.agents.loop import LoopAgent
from threadline.agents.tools import Tool, tool
from threadline.bootstrap import Threadline
from threadline.core.errors import AgentFailed, GuardRefused, KeyReused
from threadline.core.events import Data, Event, Failure, Finish, StepStart, TextDelta, ToolCall
from threadline.core.messages import Message
from threadline.core.model_texts import TitleSettings
from threadline.core.parts import DataPart
from threadline.core.prompts import PromptMessage
from threadline.core.steered_messages import STEERED
from threadline.library import ThreadHandle
from threadline.ports import Store
from threadline.settings import GuardSettings, Settings
from threadline.testing.agents import ScriptedModel, Step
from threadline.testing.clock import ManualClock
from threadline.turns.leases import Timing

pytestmark = pytest.mark.req("A-06")
LOOK = ToolCall("c1", "look", {})
CALLS: list[Event] = [TextDelta("Let me see."), LOOK, Finish("tool-calls")]
DONE: list[Event] = [TextDelta("Done."), Finish()]


class Studio:
    """A Threadline whose agent has a tool that waits for the test, and plays a script."""

    def __init__(self, store: Store, tenant_id: str, clock: ManualClock) -> None:
        self.looking = asyncio.Event()
        self.seen = asyncio.Event()
        self.model = ScriptedModel()
        settings = Settings(
            tenant=tenant_id,
            user="alice",
            agent="studio",
            guard=GuardSettings(patterns=("forbidden",)),
            titles=TitleSettings(by_model=False),
        )
        self.settings, self.store, self.clock = settings, store, clock
        self.threadline = self.open()

    def open(self) -> Threadline:
        agents = {"studio": LoopAgent(self.model, [self._tool()]), "other": LoopAgent(self.model)}
        return Threadline(self.store, self.settings, self.clock, agents=agents, timing=Timing(wait_seconds=0.05))

    def _tool(self) -> Tool:
        @tool
        async def look() -> str:
            """Looks."""
            self.looking.set()
            await self.seen.wait()
            return "a studio"

        return look

    def script(self, *rounds: Sequence[Step]) -> None:
        self.model.__init__(*rounds)  # type: ignore[misc] # a new script for the same agent

    async def begin(self, *rounds: Sequence[Step]) -> tuple[ThreadHandle, asyncio.Task[Message]]:
        """A thread whose turn runs a tool that has not returned yet."""
        self.script(*rounds)
        thread = await self.threadline.as_user().create_thread()
        asked = asyncio.ensure_future(_await(thread, "What is there?"))
        async with asyncio.timeout(60):
            await self.looking.wait()
        return thread, asked


async def _await(thread: ThreadHandle, question: str) -> Message:
    return await thread.ask(question)


@pytest.fixture
async def studio(store: Store, tenant_id: str, clock: ManualClock) -> AsyncIterator[Studio]:
    made = Studio(store, tenant_id, clock)
    yield made
    await made.threadline.runner.close()


def shown(prompt: Sequence[PromptMessage]) -> list[tuple[str, str]]:
    return [(message.role, "".join(getattr(part, "text", "") for part in message.parts)) for message in prompt]


async def test_the_model_is_shown_a_message_after_the_results_it_waited_for(studio: Studio) -> None:
    thread, asked = await studio.begin(CALLS, DONE, DONE)
    late = thread.ask("Only the left side.", policy="steer")
    assert (await late.accept()).taken_by is None
    studio.seen.set()
    reply = await asked
    assert shown(studio.model.seen[1]) == [
        ("user", "What is there?"),
        ("assistant", "Let me see."),
        ("user", "Only the left side."),
    ]
    assert [message.text for message in await thread.messages()] == [
        "What is there?",
        "Only the left side.",
        "Let me see.\n\nDone.",
    ]
    turn = await late.ended()
    assert (turn.status, turn.taken_by, turn.reply_seq) == ("executed", reply.turn_id, reply.seq)
    assert await late == reply
    assert [event async for event in late] == [StepStart(), TextDelta("Done."), Finish()]
    assert [part.name for part in reply.parts if isinstance(part, DataPart)] == [STEERED]
    assert len(studio.model.seen) == 2


async def test_later_prompts_show_the_message_where_it_was_taken_in(studio: Studio) -> None:
    thread, asked = await studio.begin(CALLS, DONE, DONE)
    await thread.ask("Only the left side.", policy="steer").accept()
    studio.seen.set()
    await asked
    await thread.ask("And now?")
    branch = await thread.branch()
    expected = [
        ("user", "What is there?"),
        ("assistant", "Let me see."),
        ("user", "Only the left side."),
        ("assistant", "Done."),
        ("user", "And now?"),
    ]
    assert shown(studio.model.seen[2]) == expected
    studio.script(DONE)
    await branch.ask("There?")
    assert shown(studio.model.seen[0])[:5] == expected


async def test_several_messages_are_taken_in_in_their_order_and_a_queued_one_is_not(studio: Studio) -> None:
    thread, asked = await studio.begin(CALLS, DONE, DONE)
    await thread.ask("one", policy="steer").accept()
    queued = thread.ask("queued", policy="queue")
    await queued.accept()
    await thread.ask("two", policy="steer").accept()
    studio.seen.set()
    await asked
    await queued
    assert shown(studio.model.seen[1])[2:] == [("user", "one"), ("user", "two")]
    assert shown(studio.model.seen[2]) == [*shown(studio.model.seen[1]), ("assistant", "Done."), ("user", "queued")]


async def test_a_message_that_comes_too_late_is_answered_after_the_turn(studio: Studio) -> None:
    """The model writes its answer when the message arrives: there is no model call left to take it into."""
    studio.script([TextDelta("Yes."), lambda: _signal(studio), Finish()], DONE)
    thread = await studio.threadline.as_user().create_thread()
    asked = asyncio.ensure_future(_await(thread, "Is it?"))
    await studio.looking.wait()
    late = thread.ask("Sure?", policy="steer")
    await late.accept()
    studio.seen.set()
    reply, answer = await asked, await late
    assert (reply.text, answer.text, (await late.ended()).taken_by) == ("Yes.", "Done.", None)
    assert shown(studio.model.seen[1]) == [("user", "Is it?"), ("assistant", "Yes."), ("user", "Sure?")]


async def _signal(studio: Studio) -> None:
    studio.looking.set()
    await studio.seen.wait()


async def test_without_a_running_turn_a_message_is_an_ordinary_question(studio: Studio) -> None:
    studio.script(DONE)
    thread = await studio.threadline.as_user().create_thread()
    assert (await thread.ask("Is it?", policy="steer")).text == "Done."


async def test_a_message_for_another_agent_is_answered_by_that_agent(studio: Studio) -> None:
    thread, asked = await studio.begin(CALLS, DONE, [TextDelta("Other."), Finish()])
    late = thread.ask("You?", agent="other", policy="steer")
    await late.accept()
    studio.seen.set()
    await asked
    assert (await late).text == "Other."
    assert len(shown(studio.model.seen[1])) == 2


async def test_a_turn_that_fails_leaves_the_message_to_be_answered_next(studio: Studio) -> None:
    thread, asked = await studio.begin(CALLS, [Failure("no more")], DONE)
    late = thread.ask("Only the left side.", policy="steer")
    await late.accept()
    studio.seen.set()
    with pytest.raises(AgentFailed):
        await asked
    assert (await late).text == "Done."
    assert shown(studio.model.seen[1])[-1] == shown(studio.model.seen[2])[-1] == ("user", "Only the left side.")
    texts = [message.text for message in await thread.messages()]
    assert texts.count("Only the left side.") == 1
    assert texts[-1] == "Done."


async def test_stopping_the_turn_ends_the_messages_it_took_in(studio: Studio) -> None:
    answering = asyncio.Event()

    async def hang() -> None:
        answering.set()
        await asyncio.Event().wait()

    thread, asked = await studio.begin(CALLS, [TextDelta("On the left"), hang])
    late = thread.ask("Only the left side.", policy="steer")
    await late.accept()
    studio.seen.set()
    async with asyncio.timeout(60):
        await answering.wait()
    (turn, _) = reversed(await thread.turns())
    await studio.threadline.runner.stop(studio.threadline.as_user().scope, turn.id)
    assert (await asked).metadata["status"] == "stopped"
    assert ((await late.ended()).status, len(studio.model.seen)) == ("stopped", 2)


async def test_the_same_key_joins_the_message_and_another_text_is_refused(studio: Studio) -> None:
    thread, asked = await studio.begin(CALLS, DONE)
    accepted = [await thread.ask("Left.", key="k1", policy="steer").accept() for _ in range(2)]
    assert accepted[0].id == accepted[1].id
    with pytest.raises(KeyReused):
        await thread.ask("Right.", key="k1", policy="steer").accept()
    with pytest.raises(GuardRefused):
        await thread.ask("forbidden", policy="steer").accept()
    studio.seen.set()
    await asked
    assert (await thread.ask("Left.", key="k1", policy="steer")).text.endswith("Done.")
    assert len(await thread.messages()) == 3


async def test_a_message_accepted_by_another_process_is_taken_in(studio: Studio) -> None:
    thread, asked = await studio.begin(CALLS, DONE)
    other = studio.open()
    here = await other.as_user().thread(thread.id)
    late = here.ask("From elsewhere.", policy="steer")
    await late.accept()
    studio.seen.set()
    reply = await asked
    async with asyncio.timeout(60):
        assert (await late).id == reply.id
    assert shown(studio.model.seen[1])[-1] == ("user", "From elsewhere.")
    await other.runner.close()


async def test_a_secret_in_a_message_is_masked_before_the_model_sees_it(studio: Studio) -> None:
    thread, asked = await studio.begin(CALLS, DONE)
    await thread.ask("The key is sk-proj-" + "a1B2" * 12, policy="steer").accept()
    studio.seen.set()
    await asked
    assert "a1B2a1B2" not in shown(studio.model.seen[1])[-1][1]


async def test_an_undone_message_is_not_taken_in(studio: Studio) -> None:
    thread, asked = await studio.begin(CALLS, DONE)
    await thread.ask("Never mind.", policy="steer").accept()
    await thread.rewind(0)
    studio.seen.set()
    await asked
    assert shown(studio.model.seen[1]) == [("user", "What is there?"), ("assistant", "Let me see.")]


async def test_an_agent_cannot_write_the_marker_of_a_taken_message(studio: Studio) -> None:
    studio.script([Data(STEERED, {"messageId": "m1", "turnId": "t1"}, "m1"), TextDelta("Yes."), Finish()])
    thread = await studio.threadline.as_user().create_thread()
    reply = await thread.ask("Is it?")
    assert [type(part).__name__ for part in reply.parts if isinstance(part, DataPart)] == []
