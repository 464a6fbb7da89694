"""One conversation on several surfaces: the history an agent gets on a platform, and where else it can be read."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.messaging.conftest import Stage, decisions, staging, texts
from tests.service.conftest import held
from threadline.core.blocks import to_blocks
from threadline.core.errors import StoreFailed
from threadline.core.prompts import PromptMessage
from threadline.core.threads import Scope
from threadline.core.windows import REFUSED_TEXT
from threadline.messaging.home_threads import home_key
from threadline.ports import Store
from threadline.settings import GuardSettings
from threadline.testing.clock import ManualClock

HOME = home_key("scripted")
ANSWER = ("assistant", "Hello, you.")


@pytest.mark.req("SX-01", "SX-02", "S3-04")
async def test_web_slack_whatsapp_and_terminal_continue_one_thread(stage: Stage) -> None:
    await stage.link(stage.slack)
    await stage.link(stage.whatsapp)
    asked = {"id": HOME, "message": {"role": "user", "parts": [{"type": "text", "text": "On the web"}]}}
    web = await stage.http.post("/api/v1/ai/chat", json=asked, headers=stage.caller())
    assert web.status_code == 200
    await stage.say(stage.slack, "In Slack")
    await stage.say(stage.whatsapp, "On WhatsApp")
    terminal = await stage.threadline.as_user("alice", tenant=stage.tenant_id).thread(HOME)
    await terminal.ask("In the terminal", surface="cli")
    said = ["On the web", "In Slack", "On WhatsApp", "In the terminal"]
    assert [text for role, text in stage.agent.prompt_texts() if role == "user"] == said
    await check_projections(stage, said)


async def check_projections(stage: Stage, said: list[str]) -> None:
    """As UIMessages, as content blocks and as turns, it is the same log."""
    both = [text for each in said for text in (each, "Hello, you.")]
    shown = (await stage.http.get(f"/api/v1/ai/threads/{HOME}", headers=stage.caller())).json()["messages"]
    assert ["".join(part["text"] for part in message["parts"]) for message in shown] == both
    messages = await stage.as_user().messages((await stage.home()).id)
    assert texts(messages) == both
    blocks: Any = to_blocks([PromptMessage(message.role, message.parts) for message in messages])
    assert [message["role"] for message in blocks.messages] == ["user", "assistant"] * 4
    turns = list(reversed(await stage.turns()))
    assert [turn.surface for turn in turns] == ["web", "slack", "whatsapp", "cli"]
    assert [turn.request_seq for turn in turns] == [0, 2, 4, 6]
    assert {turn.status for turn in turns} == {"executed"}


@pytest.mark.req("S3-01", "S3-06")
async def test_an_agent_gets_the_last_twelve_turns_of_its_user_only(stage: Stage) -> None:
    await stage.link(stage.slack)
    await stage.link(stage.slack, "bob", "U2002")
    for number in range(1, 16):
        await stage.say(stage.slack, f"Turn {number}")
    await stage.say(stage.slack, "Bob's own", "U2002")
    assert stage.agent.prompt_texts() == [("user", "Bob's own")]
    await stage.say(stage.slack, "Now")
    heard = stage.agent.prompt_texts()
    assert [text for role, text in heard if role == "user"] == [*(f"Turn {number}" for number in range(4, 16)), "Now"]
    assert heard.count(ANSWER) == 12


@pytest.mark.req("S3-02")
async def test_a_blank_answer_gives_the_question_alone(small_stage: Stage) -> None:
    await small_stage.link(small_stage.telegram)
    small_stage.agent.lines = [" "]
    assert await small_stage.say(small_stage.telegram, "Say nothing") == "The agent sent an empty reply."
    small_stage.agent.lines = ["Something."]
    await small_stage.say(small_stage.telegram, "Say something")
    assert [text.strip() for _, text in small_stage.agent.prompt_texts()] == ["Say nothing", "Say something"]


@pytest.mark.req("S3-05")
async def test_the_same_account_in_two_tenants_has_two_histories(stage: Stage) -> None:
    await stage.link(stage.slack)
    await stage.say(stage.slack, "Here")
    other_tenant = stage.other_tenant()
    await other_tenant.threadline.messaging.credentials.put(
        Scope(other_tenant.tenant_id, "root", "admin"), "slack", other_tenant.slack.secrets
    )
    assert other_tenant.slack.webhook is not None
    other_tenant.slack.webhook = other_tenant.slack.webhook.replace(stage.tenant_id, other_tenant.tenant_id)
    told = await other_tenant.slack.say("Not linked there")
    assert decisions(told) == ["denied_unverified"]
    await other_tenant.slack.replies(2)
    await other_tenant.link(other_tenant.slack)
    await other_tenant.say(other_tenant.slack, "There")
    assert other_tenant.agent.prompt_texts() == [("user", "There")]
    assert await other_tenant.history() == ["There", "Hello, you."]
    assert await stage.history() == ["Here", "Hello, you."]


async def test_what_was_said_in_private_is_not_drawn_on_where_others_read_along(small_stage: Stage) -> None:
    await small_stage.link(small_stage.slack)
    await small_stage.say(small_stage.slack, "My salary is a secret")
    for text in ("Here", "And here again"):
        before = len(small_stage.slack.sent)
        for body in small_stage.slack.mention(text, thread_ts="1700000000.000001"):
            await small_stage.slack.deliver(body)
        await small_stage.slack.replies(before + 1)
    assert small_stage.agent.prompt_texts() == [("user", "Here"), ANSWER, ("user", "And here again")]
    assert await small_stage.history() == ["My salary is a secret", "Hello, you."]


@pytest.mark.req("S3-05", "S3-10")
async def test_another_tenants_signature_opens_nothing_here(small_stage: Stage) -> None:
    await small_stage.link(small_stage.slack)
    other_tenant = Scope(f"{small_stage.tenant_id}-abroad", "root", "admin")
    other = {"signing_secret": "another-tenants-secret", "bot_token": "xoxb-another"}
    await small_stage.threadline.messaging.credentials.put(other_tenant, "slack", other)
    assert small_stage.slack.webhook is not None
    small_stage.slack.webhook = small_stage.slack.webhook.replace(small_stage.tenant_id, other_tenant.tenant_id)
    assert (await small_stage.slack.say("Let me in")).status == 401


@pytest.mark.req("S3-08", "S0-16")
async def test_what_is_pinned_goes_first(stage: Stage) -> None:
    await stage.link(stage.slack)
    await stage.threadline.contexts(Scope(stage.tenant_id, "alice")).set("scripted", "I am vegetarian.")
    await stage.say(stage.slack, "First")
    await stage.say(stage.slack, "Second")
    pinned, *rest = stage.agent.prompt_texts()
    assert pinned == ("system", "Persisted user context:\nI am vegetarian.")
    assert rest == [("user", "First"), ANSWER, ("user", "Second")]


@pytest.mark.req("S3-11", "S3-24", "S1-31")
async def test_two_quick_messages_are_answered_in_order_and_the_second_sees_the_first(stage: Stage) -> None:
    await stage.link(stage.telegram)
    async with held(stage.agent) as gate:
        await stage.telegram.say("First")
        async with asyncio.timeout(30):
            await stage.agent.waiting.wait()
        told = await stage.telegram.say("Second")
        assert (told.status, decisions(told)) == (200, ["accepted"])
        assert len(stage.agent.prompts) == 1
        gate.set()
    await stage.telegram.replies(2)
    assert stage.agent.prompt_texts(1) == [("user", "First"), ANSWER, ("user", "Second")]


@pytest.mark.req("S3-20", "S3-21", "S3-03")
async def test_a_refused_text_is_not_shown_again_on_any_surface(
    store: Store, tenant_id: str, clock: ManualClock
) -> None:
    async with staging(
        store, tenant_id, clock, guard=GuardSettings(patterns=("forbidden",), message="Not here.")
    ) as stage:
        await stage.link(stage.slack)
        assert await stage.say(stage.slack, "Something forbidden") == "Not here."
        (turn,) = await stage.turns()
        assert turn.status == "denied_sentinel"
        assert await stage.history() == ["Something forbidden", "Not here."]
        await stage.say(stage.slack, "And now?")
        expected = [("user", REFUSED_TEXT), ("assistant", "Not here."), ("user", "And now?")]
        assert stage.agent.prompt_texts() == expected
        handle = await stage.threadline.as_user("alice", tenant=tenant_id).thread(HOME)
        await handle.ask("On the web")
        assert stage.agent.prompt_texts() == [*expected, ANSWER, ("user", "On the web")]


@pytest.mark.req("S3-06")
async def test_an_unreadable_history_does_not_prevent_an_answer(
    small_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await small_stage.link(small_stage.slack)
    await small_stage.say(small_stage.slack, "Before")

    async def fail(*_: Any, **__: Any) -> Any:
        raise StoreFailed("the disk is slow today")

    monkeypatch.setattr(type(small_stage.system), "last_turns", fail)
    assert await small_stage.say(small_stage.slack, "During") == "Hello, you."
    assert small_stage.agent.prompt_texts() == [("user", "During")]
    metrics = small_stage.threadline.metrics
    assert metrics.value("threadline_history_read_failures_total") == 1


@pytest.mark.req("S3-25")
async def test_a_restart_keeps_history_and_outbox(store: Store, tenant_id: str, clock: ManualClock) -> None:
    async with staging(store, tenant_id, clock) as before:
        await before.link(before.slack)
        await before.say(before.slack, "Before")
    clock.advance()
    async with staging(store, tenant_id, clock) as after:
        await after.say(after.slack, "After")
        assert after.agent.prompt_texts() == [("user", "Before"), ANSWER, ("user", "After")]
        await after.threadline.messaging.close()
        assert [row.status for row in await after.outbox()] == ["sent", "sent"]
        clock.advance(40 * 24 * 3_600)
        assert await after.system.drop_settled(before=clock.now()) == 4
        await after.say(after.slack, "Much later")
        assert [text for role, text in after.agent.prompt_texts() if role == "user"] == [
            "Before",
            "After",
            "Much later",
        ]


@pytest.mark.req("S3-23")
async def test_a_turn_whose_process_ends_is_finished_by_the_next(
    store: Store, tenant_id: str, clock: ManualClock
) -> None:
    """A service that is told to stop hands over what its agents have not finished."""
    async with staging(store, tenant_id, clock) as before:
        await before.link(before.slack)
        before.agent.gate = asyncio.Event()
        await before.slack.say("Do not lose me")
        async with asyncio.timeout(30):
            await before.agent.waiting.wait()
    async with staging(store, tenant_id, clock) as after:
        assert [reply.text for reply in await after.slack.replies(1)] == ["Hello, you."]
        assert [turn.status for turn in await after.turns()] == ["executed"]
        assert await after.history() == ["Do not lose me", "Hello, you."]
