"""What a platform delivers: each message becomes one turn and one reply, however often it is repeated."""

from __future__ import annotations

import asyncio
import datetime as dt
import json

import pytest

from tests.conftest import open_database, postgres_database
from tests.messaging.conftest import Stage, decisions, staging
from threadline.core.channels import Agent, User
from threadline.core.messages import user
from threadline.messaging.links import ATTEMPTS
from threadline.testing.clock import ManualClock
from threadline.testing.platforms import FakePlatform


def platform(stage: Stage, name: str) -> FakePlatform:
    found: FakePlatform = getattr(stage, name)
    return found


@pytest.mark.req("S3-04", "S3-07", "S3-24")
@pytest.mark.parametrize("name", ["slack", "telegram", "whatsapp"])
async def test_a_linked_user_is_answered(stage: Stage, name: str) -> None:
    fake = platform(stage, name)
    await stage.link(fake)
    assert await stage.say(fake, "Good morning") == "Hello, you."
    assert await stage.history() == ["Good morning", "Hello, you."]
    (turn,) = await stage.turns()
    assert (turn.status, turn.surface, turn.owner_id) == ("executed", name, "alice")


@pytest.mark.req("S3-17", "S3-23")
async def test_a_hundred_copies_at_once_are_one_turn_and_one_reply(stage: Stage) -> None:
    await stage.link(stage.slack)
    body = stage.slack.write("Only once, please")
    told = await stage.slack.deliver_often(body, 100)
    assert {each.status for each in told} == {200}
    assert sorted(decision for each in told for decision in decisions(each)) == ["accepted"] + ["duplicate"] * 99
    await stage.slack.replies(1)
    assert decisions(await stage.slack.deliver(body)) == ["duplicate"]
    assert await stage.say(stage.slack, "And another") == "Hello, you."
    assert len(stage.slack.sent) == 2
    assert await stage.history() == ["Only once, please", "Hello, you.", "And another", "Hello, you."]
    assert len(await stage.outbox()) == 2


@pytest.mark.req("S3-10", "S3-14")
async def test_who_is_not_linked_gets_no_turn_and_learns_only_how_to_link(stage: Stage) -> None:
    told = await stage.slack.say("What did alice say?")
    assert (told.status, decisions(told)) == (200, ["denied_unverified"])
    (hint,) = await stage.slack.replies(1)
    assert "!link" in hint.text
    for text in ("Again", "And again", "!chats", "!open home-scripted_agent"):
        told = await stage.slack.say(text)
        assert (told.status, decisions(told)) == (200, ["denied_unverified"])
    await stage.threadline.messaging.outbox_worker.deliver(stage.tenant_id)
    assert len(stage.slack.sent) == 1, "one hint in a while, or anybody could make the bot talk"
    assert (await stage.system.row_counts())["turns"] == 0
    assert stage.threadline.metrics.value("threadline_inbox_messages_total", "slack", "denied_unverified") == 5


@pytest.mark.req("S3-14")
async def test_who_is_not_linked_and_asks_for_help_is_told_how_to_link_a_few_times(stage: Stage) -> None:
    await stage.slack.say("What did alice say?")
    for text in ("!help", "!link", *["!help"] * 20):
        await stage.slack.say(text)
    await stage.threadline.messaging.outbox_worker.deliver(stage.tenant_id)
    told = await stage.slack.replies(1 + ATTEMPTS)
    assert {"!link" in each.text for each in told} == {True}
    assert len(stage.slack.sent) == 1 + ATTEMPTS


@pytest.mark.req("S3-14", "S3-17")
@pytest.mark.parametrize("is_shared", [False, True])
async def test_what_was_written_before_the_account_was_linked_is_never_executed(stage: Stage, is_shared: bool) -> None:
    first, second = (
        stage.slack.mention(text)[1] if is_shared else stage.slack.write(text) for text in ("!new one", "Two")
    )
    for body in (first, second):
        told = await stage.slack.deliver(body)
        assert (told.status, decisions(told)) == (200, ["denied_unverified"])
    await stage.link(stage.slack)
    for body in (first, second):
        told = await stage.slack.deliver(body)
        assert (told.status, decisions(told)) == (200, ["duplicate"])
    assert (await stage.system.row_counts())["turns"] == 0


@pytest.mark.req("S3-14")
@pytest.mark.parametrize("state", ["pending", "revoked"])
async def test_a_link_that_is_not_verified_is_none(small_stage: Stage, state: str) -> None:
    await small_stage.system.put_link(
        "telegram", small_stage.telegram.person, "alice", "pending" if state == "pending" else "revoked"
    )
    told = await small_stage.telegram.say("Hello?")
    assert (told.status, decisions(told)) == (200, ["denied_unverified"])
    assert (await small_stage.system.row_counts())["turns"] == 0


@pytest.mark.req("S3-16", "S3-10")
@pytest.mark.parametrize("hours", [-25, 25])
async def test_what_is_too_old_or_of_tomorrow_is_not_answered(small_stage: Stage, hours: int) -> None:
    await small_stage.link(small_stage.telegram)
    sent_at = int((small_stage.clock.now() + dt.timedelta(hours=hours)).timestamp())
    body = small_stage.telegram.write("Remember me?", date=sent_at)
    told = await small_stage.telegram.deliver(body)
    assert (told.status, decisions(told)) == (200, ["replay_blocked"])
    assert (await small_stage.system.row_counts())["turns"] == 0
    assert await small_stage.outbox() == []


@pytest.mark.req("S3-10")
async def test_an_unsigned_body_leaves_no_trace(small_stage: Stage) -> None:
    await small_stage.link(small_stage.slack)
    before = await small_stage.system.row_counts()
    body = small_stage.slack.write("Let me in")
    forged = {**small_stage.slack.sign(body), "x-slack-signature": "v0=" + "0" * 64}
    for headers in (forged, {}, small_stage.slack.sign(body + b" ")):
        told = await small_stage.slack.deliver(body, headers)
        assert told.status == 401, told
    assert await small_stage.system.row_counts() == before


@pytest.mark.req("S3-19")
async def test_an_unknown_tenant_or_platform_is_not_found(small_stage: Stage) -> None:
    slack = small_stage.slack
    assert slack.webhook is not None
    right = slack.webhook
    for wrong in (
        right.replace(small_stage.tenant_id, "nobody"),
        right.replace(small_stage.tenant_id, "No-Tenant!"),
        right.replace("/slack/", "/fax/"),
        right.replace("/slack/", "/matrix/"),
    ):
        slack.webhook = wrong
        assert (await slack.say("Anyone?")).status == 404


@pytest.mark.req("S3-19")
@pytest.mark.parametrize("body", [b"{not json", b"", b"[" * 5_000 + b"]" * 5_000, b'"\xed\xa0\xbd"'])
async def test_a_signed_body_that_is_no_json_is_refused_with_an_id(small_stage: Stage, body: bytes) -> None:
    told = await small_stage.slack.deliver(body)
    assert told.status == 400
    assert json.loads(told.body)["correlationId"]


async def test_a_body_past_the_limit_is_refused_unread(small_stage: Stage) -> None:
    told = await small_stage.slack.deliver(b'{"type":"' + b"x" * (10 * 1_048_576) + b'"}')
    assert told.status == 413


async def test_a_delivery_of_three_megabytes_is_answered(small_stage: Stage) -> None:
    """Meta's documentation says that it may send that much, and it repeats for seven days what is refused."""
    whatsapp = small_stage.whatsapp
    await small_stage.link(whatsapp)
    message = whatsapp.message("Are you there?")
    message["context"] = {"padding": "x" * 3_000_000}
    assert (await whatsapp.deliver(whatsapp.batch(message))).status == 200


@pytest.mark.req("S3-12")
async def test_one_broken_message_of_a_batch_costs_the_others_nothing(small_stage: Stage) -> None:
    whatsapp = small_stage.whatsapp
    await small_stage.link(whatsapp)
    said = [whatsapp.message(f"Message {number}") for number in range(5)]
    del said[2]["id"]
    told = await whatsapp.deliver(whatsapp.batch(*said))
    assert (told.status, decisions(told)) == (200, ["accepted"] * 4)
    await whatsapp.replies(4)
    assert [text for text in await small_stage.history() if text.startswith("Message")] == [
        f"Message {number}" for number in (0, 1, 3, 4)
    ]
    assert small_stage.threadline.metrics.value("threadline_inbox_messages_total", "whatsapp", "broken") == 1


@pytest.mark.req("S3-20", "S3-07")
async def test_a_role_without_the_right_to_chat_is_told_so(stage: Stage) -> None:
    await stage.link(stage.slack)
    await stage.system.put_user(User("alice", role="viewer"))
    said = await stage.say(stage.slack, "May I?")
    assert "not write" in said
    (turn,) = await stage.turns()
    assert (turn.status, turn.owner_id) == ("denied_rbac", "alice")
    assert await stage.history() == ["May I?", said]
    assert stage.agent.prompts == []
    await stage.say(stage.slack, "!new")
    assert len(await stage.turns()) == 1


@pytest.mark.req("S3-20")
async def test_a_missing_agent_is_told(small_stage: Stage) -> None:
    await small_stage.link(small_stage.slack)
    small_stage.threadline.directory._given.clear()  # noqa: SLF001 - as if the operator had removed it
    said = await small_stage.say(small_stage.slack, "Is anyone there?")
    assert "not available" in said
    thread = (await small_stage.as_user().threads()).items[0]
    (turn,) = await small_stage.as_user().turns(thread.id)
    assert turn.status == "denied_no_agent"


@pytest.mark.req("S3-20", "S3-07", "S3-03")
async def test_an_agent_that_fails_is_told_without_its_reasons(stage: Stage) -> None:
    await stage.link(stage.telegram)
    stage.agent.lines = [RuntimeError("secret of the house")]
    said = await stage.say(stage.telegram, "Break")
    assert "could not answer" in said
    assert "secret" not in said
    (turn,) = await stage.turns()
    assert turn.status == "dispatch_failed"
    stage.agent.lines = ["Better."]
    assert await stage.say(stage.telegram, "And now?") == "Better."
    assert stage.agent.prompt_texts()[:1] == [("user", "Break")]


async def test_a_blank_message_is_acknowledged_and_nothing_else(small_stage: Stage) -> None:
    await small_stage.link(small_stage.slack)
    told = await small_stage.slack.deliver(small_stage.slack.write("  \u200b "))
    assert told.status == 200
    assert (await small_stage.system.row_counts())["turns"] == 0


@pytest.mark.req("S3-20")
async def test_an_agent_that_cannot_be_made_is_a_failure_that_is_told(small_stage: Stage) -> None:
    await small_stage.link(small_stage.slack)
    small_stage.threadline.directory._given.clear()  # noqa: SLF001 - as if the operator had configured it wrongly
    await small_stage.system.put_agent(Agent("scripted", "Scripted agent", "no such provider"))
    assert "could not answer" in await small_stage.say(small_stage.slack, "Hello?")
    assert [turn.status for turn in await small_stage.turns()] == ["dispatch_failed"]


@pytest.mark.req("S3-11", "S3-17")
async def test_a_message_and_its_mention_are_one_turn(small_stage: Stage) -> None:
    await small_stage.link(small_stage.slack)
    for body in small_stage.slack.mention("What is new?"):
        assert (await small_stage.slack.deliver(body)).status == 200
    await small_stage.slack.replies(1)
    assert await small_stage.say(small_stage.slack, "And here?") == "Hello, you."
    assert [prompt.messages[-1].parts for prompt in small_stage.agent.prompts] == [
        user("What is new?").parts,
        user("And here?").parts,
    ]


async def test_two_people_in_one_channel_have_a_thread_each(stage: Stage) -> None:
    await stage.link(stage.slack, "alice", "U1001")
    await stage.link(stage.slack, "bob", "U2002")
    for sender, text in (("U1001", "I am alice"), ("U2002", "I am bob"), ("U1001", "Who am I?")):
        before = len(stage.slack.sent)
        await stage.slack.deliver(stage.slack.mention(text, sender, thread_ts="1700000000.000001")[1])
        await stage.slack.replies(before + 1)
    heard = [[text for role, text in stage.agent.prompt_texts(turn) if role == "user"] for turn in range(3)]
    assert heard == [["I am alice"], ["I am bob"], ["I am alice", "Who am I?"]]
    assert len(await stage.system.bindings(surface="slack")) == 2


@pytest.mark.req("S3-17", "S3-23")
async def test_two_services_on_one_database_answer_once(tenant_id: str, clock: ManualClock) -> None:
    stores = [await open_database(await postgres_database(), clock=clock) for _ in range(2)]
    async with staging(stores[0], tenant_id, clock) as first, staging(stores[1], tenant_id, clock) as second:
        await first.link(first.slack)
        body = first.slack.write("To both of you")
        told = await asyncio.gather(*(each.slack.deliver(body) for each in (first, second) for _ in range(25)))
        assert sorted(decision for each in told for decision in decisions(each)) == ["accepted"] + ["duplicate"] * 49
        waiting = [asyncio.create_task(each.slack.replies(1)) for each in (first, second)]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert await first.history() == ["To both of you", "Hello, you."]
        assert len(first.slack.sent) + len(second.slack.sent) == 1
    for store in stores:
        await store.close()
