"""Approvals that are answered in a turn of their own, on each store: once, by their owner; the log only grows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

import pytest

from threadline.agents.loop import LoopAgent
from threadline.agents.models import RoundSettings, ToolSpec
from threadline.agents.tools import Tool, tool
from threadline.bootstrap import Threadline
from threadline.core.approvals import ApprovalDecision
from threadline.core.errors import AgentFailed, Conflict, GuardRefused, InvalidInput, NotFound, RoleRefused
from threadline.core.events import Event, Finish, TextDelta, ToolCall
from threadline.core.messages import Message, NewMessage
from threadline.core.model_texts import TitleSettings
from threadline.core.parts import ToolPart
from threadline.core.prompts import PromptMessage
from threadline.library import ThreadHandle, UserView
from threadline.ports import Store
from threadline.replies import Defer
from threadline.settings import GuardSettings, Settings
from threadline.testing.agents import ScriptedModel, Step
from threadline.testing.clock import ManualClock
from threadline.turns.approvals import AnswerRequest

DEFER = Defer()


class Shop:
    """A Threadline whose agent asks to pay, and what it has paid. It is its own model and plays a script."""

    def __init__(self, store: Store, tenant_id: str, clock: ManualClock) -> None:
        self.paid: list[int] = []
        self.model = ScriptedModel()
        settings = Settings(
            tenant=tenant_id,
            user="alice",
            agent="shop",
            guard=GuardSettings(patterns=("forbidden",)),
            # The script has no line for a title.
            titles=TitleSettings(by_model=False),
        )
        self.threadline = Threadline(store, settings, clock, agents={"shop": LoopAgent(self, [self._tool()])})

    def _tool(self) -> Tool:
        @tool(needs_approval=True)
        def pay(sum: int) -> str:
            """Pays."""
            self.paid.append(sum)
            return f"paid {sum}"

        return pay

    async def round(
        self, messages: Sequence[PromptMessage], tools: Sequence[ToolSpec], settings: RoundSettings
    ) -> AsyncGenerator[Event, None]:
        async for event in self.model.round(messages, tools, settings):
            yield event

    async def close(self) -> None:
        return None

    def script(self, *rounds: Sequence[Step]) -> None:
        self.model = ScriptedModel(*rounds)

    @property
    def me(self) -> UserView:
        return self.threadline.as_user()


@pytest.fixture
async def shop(store: Store, tenant_id: str, clock: ManualClock) -> AsyncIterator[Shop]:
    made = Shop(store, tenant_id, clock)
    yield made
    await made.threadline.runner.close()


def wants(*sums: int) -> list[Event]:
    calls: list[Event] = [ToolCall(f"c{number}", "pay", {"sum": each}) for number, each in enumerate(sums)]
    return [TextDelta("May I?"), *calls, Finish("tool-calls")]


DONE: list[Event] = [TextDelta("Done."), Finish()]


async def waiting(shop: Shop, *sums: int, then: list[Event] = DONE) -> ThreadHandle:
    """A thread whose last reply waits for its approvals."""
    thread = await shop.me.create_thread()
    shop.script(wants(*sums), then)
    await thread.ask("Pay.", approver=DEFER)
    return thread


def states(message: Message | PromptMessage) -> list[str]:
    return [part.state for part in message.parts if isinstance(part, ToolPart)]


@pytest.mark.req("S1-09", "S1-11", "S1-29")
async def test_an_approval_is_answered_later_and_the_same_reply_continues(shop: Shop) -> None:
    thread = await waiting(shop, 5)
    before = await thread.messages()
    (asked,) = await thread.pending()
    assert (asked.name, asked.input, states(before[1])) == ("pay", {"sum": 5}, ["approval-requested"])
    timeline = (await thread.refresh()).timeline_id
    reply = await thread.respond({asked.id: True})
    after = await thread.messages()
    assert [message.id for message in after] == [message.id for message in before]
    assert (reply.id, states(reply), reply.text) == (before[1].id, ["output-available"], "May I?\n\nDone.")
    assert shop.paid == [5]
    assert await thread.pending() == []
    await thread.switch(timeline)
    assert await thread.messages() == before


@pytest.mark.req("S1-13")
async def test_the_model_sees_its_call_with_the_result_and_no_call_twice(shop: Shop) -> None:
    thread = await waiting(shop, 5)
    await thread.respond({each.id: True for each in await thread.pending()})
    *before, last = shop.model.seen[-1]
    assert [message.role for message in (*before, last)] == ["user", "assistant"]
    assert states(last) == ["output-available"]
    shop.script(DONE)
    await thread.ask("Thanks.")
    said = [part for message in shop.model.seen[-1] for part in message.parts]
    assert [part.state for part in said if isinstance(part, ToolPart)] == ["output-available"]


@pytest.mark.req("S1-13")
async def test_one_reply_may_have_approved_and_denied_calls(shop: Shop) -> None:
    thread = await waiting(shop, 5, 6)
    first, second = await thread.pending()
    reply = await thread.respond({first.id: False, second.id: ApprovalDecision(True)})
    assert states(reply) == ["output-denied", "output-available"]
    assert shop.paid == [6]


@pytest.mark.req("S1-16")
async def test_the_same_answer_again_gives_the_same_reply_and_another_one_is_a_conflict(shop: Shop) -> None:
    thread = await waiting(shop, 5)
    (asked,) = await thread.pending()
    first = await thread.respond({asked.id: True})
    assert await thread.respond({asked.id: True}) == first
    with pytest.raises(Conflict):
        await thread.respond({asked.id: False})
    assert shop.paid == [5]
    assert len(await thread.messages()) == 2


@pytest.mark.req("S1-16")
async def test_an_answered_approval_stays_answered_on_every_timeline(shop: Shop) -> None:
    thread = await waiting(shop, 5)
    (asked,) = await thread.pending()
    await thread.save("asked")
    branch = await thread.branch()
    assert await branch.pending() == []
    with pytest.raises(NotFound):
        await branch.respond({asked.id: True})
    await thread.respond({asked.id: True})
    await thread.load("asked")
    with pytest.raises(Conflict):
        await thread.respond({asked.id: False})
    await thread.respond({asked.id: True}).ended()
    assert shop.paid == [5]


async def test_a_reply_may_ask_again_and_be_answered_again(shop: Shop) -> None:
    thread = await waiting(shop, 5)
    shop.script([ToolCall("c9", "pay", {"sum": 7}), Finish("tool-calls")], DONE)
    first = await thread.respond({each.id: True for each in await thread.pending()}, approver=DEFER)
    assert states(first) == ["output-available", "approval-requested"]
    whole = await thread.respond({each.id: True for each in await thread.pending()})
    assert (whole.id, states(whole)) == (first.id, ["output-available", "output-available"])
    assert shop.paid == [5, 7]
    assert len(await thread.messages()) == 2


@pytest.mark.req("S1-13")
async def test_an_approval_cannot_be_answered_after_a_new_message(shop: Shop) -> None:
    thread = await waiting(shop, 5)
    (asked,) = await thread.pending()
    shop.script(DONE)
    await thread.ask("Never mind.")
    answered = shop.model.seen[-1][1].parts[-1]
    assert isinstance(answered, ToolPart)
    assert (answered.state, answered.error) == ("output-error", "not run: approval was asked for and not given")
    assert await thread.pending() == []
    with pytest.raises(InvalidInput, match="was not requested"):
        await thread.respond({asked.id: True})
    assert shop.paid == []


async def test_only_the_owner_can_answer_and_invalid_answers_store_nothing(shop: Shop) -> None:
    thread = await waiting(shop, 5)
    (asked,) = await thread.pending()
    before = await thread.messages()
    refused = [
        (InvalidInput, {}),
        (InvalidInput, {"made-up": True}),
        (InvalidInput, {asked.id: True, "made-up": True}),
        (GuardRefused, {asked.id: ApprovalDecision(False, "forbidden")}),
    ]
    for error, answers in refused:
        with pytest.raises(error):
            await thread.respond(answers)  # type: ignore[arg-type]
    viewer = await shop.threadline.as_user(role="viewer").thread(thread.id)
    with pytest.raises(RoleRefused):
        await viewer.respond({asked.id: True})
    with pytest.raises(NotFound):
        await shop.threadline.as_user("bob").thread(thread.id)
    assert await thread.messages() == before
    assert len(await thread.timelines()) == 1
    assert shop.paid == []


async def test_appended_and_imported_messages_have_no_pending_approvals(shop: Shop) -> None:
    thread = await waiting(shop, 5)
    asking = (await thread.messages())[1]
    other = await shop.me.create_thread()
    await other.append("Pay.")
    await other.append(NewMessage("assistant", asking.parts_json, id=asking.id))
    assert await other.pending() == []


@pytest.mark.req("S1-08", "S1-31")
async def test_a_message_queued_while_a_reply_continues_follows_it_and_is_answered(shop: Shop) -> None:
    thread = await waiting(shop, 5)
    (asked,) = await thread.pending()
    continuing = asyncio.Event()
    shop.script([continuing.wait, *DONE], DONE)
    reply = thread.respond({asked.id: True})
    await reply.accept()
    queued = thread.ask("And then?", policy="queue")
    before = await queued.accept()
    continuing.set()
    assert (await reply).text == "May I?\n\nDone."
    assert (await queued).text == "Done."
    messages = await thread.messages()
    assert [message.text for message in messages] == ["Pay.", "May I?\n\nDone.", "And then?", "Done."]
    assert messages[2].turn_id == before.id


@pytest.mark.req("S1-15")
async def test_a_continued_reply_that_fails_keeps_what_was_shown(shop: Shop) -> None:
    thread = await waiting(shop, 5)
    shop.script([TextDelta("Paid, and"), AgentFailed("away")])
    with pytest.raises(AgentFailed):
        await thread.respond({each.id: True for each in await thread.pending()})
    reply = (await thread.messages())[1]
    assert (states(reply), reply.text) == (["output-available"], "May I?\n\nPaid, and")
    assert reply.metadata == {"status": "dispatch_failed"}


@pytest.mark.req("S1-13", "S1-15")
async def test_a_thread_works_after_a_process_died_between_answer_and_reply(shop: Shop, clock: ManualClock) -> None:
    thread = await waiting(shop, 5)
    (asked,) = await thread.pending()
    approvals, scope = shop.threadline.approvals, shop.me.scope
    accepted = await approvals.accept(scope, AnswerRequest(thread.id, {asked.id: ApprovalDecision(True)}, "web"))
    tx = shop.threadline.store.scoped(scope)
    leased = await tx.lease_turn(accepted.turn.id, "dead", seconds=0)
    assert leased is not None
    clock.advance(60)
    assert await shop.threadline.recovery.recover(scope) == 1
    reply = (await thread.messages())[1]
    assert (states(reply), reply.metadata) == (["approval-responded"], {"status": "interrupted"})
    assert await thread.respond({asked.id: True}) == reply
    shop.script(DONE)
    await thread.ask("And now?")
    answered = shop.model.seen[-1][1].parts[-1]
    assert isinstance(answered, ToolPart)
    assert answered.error == "interrupted: no result was recorded"
    assert shop.paid == []
