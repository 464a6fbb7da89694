"""Tools that need approval, asked for in chats: buttons, `!yes` and `!no`, and everything that can go wrong between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.conftest import open_database, postgres_database
from tests.messaging.conftest import Stage, decisions, staging
from threadline.core.approval_questions import NOT_ASKED_TEXT
from threadline.core.approvals import ApprovalDecision
from threadline.core.parts import ToolPart
from threadline.messaging.approval_answers import CLOSED_TEXT, EXPIRED_TEXT
from threadline.testing.clock import ManualClock
from threadline.testing.platforms import FakePlatform, Reply
from threadline.testing.platforms.loopback import Told

PLATFORMS = ["slack", "telegram", "whatsapp"]
STAMPED = "Here it is, stamped"
pytestmark = pytest.mark.req("A-04")


@pytest.fixture(params=["memory", "postgres"])
async def asking(request: pytest.FixtureRequest, tenant_id: str, clock: ManualClock) -> AsyncIterator[Stage]:
    """A service whose agent is the rehearsal agent: its tool `stamp` needs approval."""
    store = await open_database(":memory:" if request.param == "memory" else await postgres_database(), clock=clock)
    async with staging(store, tenant_id, clock, agent="rehearsal") as staged:
        yield staged
    await store.close()


@pytest.fixture
async def small(tenant_id: str, clock: ManualClock) -> AsyncIterator[Stage]:
    store = await open_database(":memory:", clock=clock)
    async with staging(store, tenant_id, clock, agent="rehearsal") as staged:
        yield staged
    await store.close()


async def ask(stage: Stage, fake: FakePlatform, text: str = "stamp hello") -> Reply:
    """The question that the agent's call becomes, after what the agent said before it."""
    before = len(fake.sent)
    assert decisions(await fake.say(text)) == ["accepted"]
    said, question = (await fake.replies(before + 2))[before : before + 2]
    assert said.text == "I need your approval for this."
    assert "Allow" in question.text
    assert "stamp" in question.text
    assert '{"text":"hello"}' in question.text
    return question


def platform(stage: Stage, name: str) -> FakePlatform:
    found: FakePlatform = getattr(stage, name)
    return found


async def stamps(stage: Stage, user: str = "alice") -> list[ToolPart]:
    messages = await stage.as_user(user).messages((await stage.home(user)).id)
    return [part for message in messages for part in message.parts if isinstance(part, ToolPart)]


@pytest.mark.parametrize("name", PLATFORMS)
async def test_a_pressed_button_continues_the_reply(asking: Stage, name: str) -> None:
    fake = platform(asking, name)
    await asking.link(fake)
    question = await ask(asking, fake)
    assert (await fake.deliver(fake.press(question, "Allow"))).status == 200
    *_, rest = await fake.replies(3)
    assert rest.text.startswith(STAMPED), "only what was not sent before"
    (call,) = await stamps(asking)
    assert call.state == "output-available"
    first, reply = await asking.as_user().messages((await asking.home()).id)
    assert (first.text, reply.role) == ("stamp hello", "assistant")
    if name != "whatsapp":
        await fake.until(lambda: bool(fake.edits))
        (edit,) = fake.edits
        assert edit.message_id == question.message_id
        assert "allowed" in edit.text
        assert not edit.has_buttons
    if name == "telegram":
        await fake.until(lambda: bool(fake.notices))
        assert [notice.text for notice in fake.notices] == ["Allowed."]
    assert {row.status for row in await asking.outbox()} <= {"sent", "claimed"}, "nothing was refused"


@pytest.mark.parametrize("name", PLATFORMS)
async def test_a_refusal_is_told_to_the_agent_and_nothing_runs(asking: Stage, name: str) -> None:
    fake = platform(asking, name)
    await asking.link(fake)
    question = await ask(asking, fake)
    await fake.deliver(fake.press(question, "Don't allow"))
    *_, rest = await fake.replies(3)
    assert "did not allow" in rest.text
    assert [call.state for call in await stamps(asking)] == ["output-denied"]


@pytest.mark.parametrize("name", PLATFORMS)
@pytest.mark.parametrize("answer", ["!yes", "!no"])
async def test_commands_answer_on_every_platform_and_replace_the_buttons(small: Stage, name: str, answer: str) -> None:
    fake = platform(small, name)
    await small.link(fake)
    question = await ask(small, fake)
    text = await small.say(fake, answer)
    assert text.startswith(STAMPED) is (answer == "!yes")
    if name != "whatsapp":
        await fake.until(lambda: bool(fake.edits))
        assert [edit.message_id for edit in fake.edits] == [question.message_id]


async def test_plain_words_stay_messages(small: Stage) -> None:
    await small.link(small.slack)
    await ask(small, small.slack)
    assert "You said" in await small.say(small.slack, "yes")
    assert [call.state for call in await stamps(small)] == ["approval-requested"]
    assert await small.say(small.slack, "!yes") == "There is no open question here."


async def deliver_until_stored(fake: FakePlatform, body: bytes) -> Told:
    """As platforms do: what is answered with 503, because too many wait for one lock, is delivered again."""
    while (told := await fake.deliver(body)).status == 503:
        assert told.headers["retry-after"]
    return told


@pytest.mark.parametrize("name", ["slack", "telegram"])
async def test_a_hundred_answers_at_once_are_one_continuation(asking: Stage, name: str) -> None:
    fake = platform(asking, name)
    await asking.link(fake)
    question = await ask(asking, fake)
    presses = [fake.press(question, "Allow") for _ in range(100)]
    told = await asyncio.gather(*(deliver_until_stored(fake, body) for body in presses))
    assert {each.status for each in told} == {200}
    await fake.replies(3)
    again = await fake.deliver(presses[0])
    assert again.status == 200
    assert "You said" in await asking.say(fake, "And now?")
    assert len(fake.sent) == 4
    assert [call.state for call in await stamps(asking)] == ["output-available"]
    turns = await asking.turns()
    assert [turn.status for turn in turns] == ["executed"] * 3


async def test_copies_of_one_press_do_nothing_more(small: Stage) -> None:
    await small.link(small.whatsapp)
    question = await ask(small, small.whatsapp)
    body = small.whatsapp.press(question, "Allow")
    told = await small.whatsapp.deliver_often(body, 20)
    assert sorted(one for each in told for one in decisions(each)) == ["accepted"] + ["duplicate"] * 19
    await small.whatsapp.replies(3)


async def test_a_second_other_answer_is_told_what_was_answered(small: Stage) -> None:
    await small.link(small.whatsapp)
    question = await ask(small, small.whatsapp)
    await small.whatsapp.deliver(small.whatsapp.press(question, "Allow"))
    await small.whatsapp.replies(3)
    assert decisions(await small.whatsapp.deliver(small.whatsapp.press(question, "Don't allow"))) == ["refused"]
    *_, told = await small.whatsapp.replies(4)
    assert told.text == "This was answered before: allowed."


@pytest.mark.parametrize("is_linked", [False, True])
async def test_only_the_person_who_was_asked_can_answer_in_a_channel(small: Stage, is_linked: bool) -> None:
    slack = small.slack
    await small.link(slack)
    if is_linked:
        await small.link(slack, "bob", "U2002")
    _, mention = slack.mention("stamp hello")
    await slack.deliver(mention)
    _, question = await slack.replies(2)
    await slack.deliver(slack.press(question, "Allow", "U2002"))
    await slack.until(lambda: bool(slack.notices))
    assert slack.notices == [("U2002", NOT_ASKED_TEXT)]
    assert slack.edits == []
    await slack.deliver(slack.press(question, "Allow"))
    *_, rest = await slack.replies(3)
    assert rest.text.startswith(STAMPED)
    assert rest.recipient == question.recipient, "in the thread of the question"


@pytest.mark.parametrize("name", ["slack", "whatsapp"])
async def test_an_old_question_has_expired(small: Stage, name: str) -> None:
    fake = platform(small, name)
    await small.link(fake)
    question = await ask(small, fake)
    small.clock.advance(24 * 3_600)
    await fake.deliver(fake.press(question, "Allow"))
    if name == "slack":
        await fake.until(lambda: bool(fake.notices) and bool(fake.edits))
        assert fake.notices[0].text == EXPIRED_TEXT
        assert "expired" in fake.edits[0].text
    else:
        assert (await fake.replies(3))[2].text == EXPIRED_TEXT
    assert [call.state for call in await stamps(small)] == ["approval-requested"]


async def test_a_question_is_closed_by_a_later_message(small: Stage) -> None:
    await small.link(small.whatsapp)
    question = await ask(small, small.whatsapp)
    await small.say(small.whatsapp, "Something else")
    await small.whatsapp.deliver(small.whatsapp.press(question, "Allow"))
    *_, told = await small.whatsapp.replies(4)
    assert told.text == CLOSED_TEXT
    await small.say(small.whatsapp, "!undo")
    await small.say(small.whatsapp, "!undo")
    await small.whatsapp.deliver(small.whatsapp.press(question, "Allow"))
    assert (await small.whatsapp.replies(7))[6].text == CLOSED_TEXT


async def test_a_button_with_another_input_than_the_stored_one_is_refused(small: Stage) -> None:
    await small.link(small.whatsapp)
    first = await ask(small, small.whatsapp)
    data = first.payload["interactive"]["action"]["buttons"][0]["reply"]["id"]
    forged = small.whatsapp.press(first, "Allow").replace(
        data.encode(), f"{data[:-1]}{'0' if data[-1] != '0' else '1'}".encode()
    )
    assert decisions(await small.whatsapp.deliver(forged)) == ["refused"]
    assert (await small.whatsapp.replies(3))[2].text == CLOSED_TEXT
    assert [call.state for call in await stamps(small)] == ["approval-requested"]


@pytest.mark.parametrize("name", ["slack", "telegram"])
async def test_a_question_answered_on_the_page_is_closed_in_the_chat_which_gets_the_reply(
    small: Stage, name: str
) -> None:
    fake = platform(small, name)
    await small.link(fake)
    question = await ask(small, fake)
    thread = await small.threadline.as_user("alice").thread((await small.home()).id)
    (pending,) = await thread.pending()
    assert STAMPED in (await thread.respond({pending.id: ApprovalDecision(True)})).text
    small.threadline.messaging.wake(small.tenant_id)
    *_, rest = await fake.replies(3)
    assert rest.text.startswith(STAMPED)
    await fake.until(lambda: bool(fake.edits))
    assert "allowed" in fake.edits[0].text
    await fake.deliver(fake.press(question, "Allow"))
    if name == "telegram":
        await fake.until(lambda: bool(fake.notices))
        assert fake.notices[0].text == "This was answered before: allowed."
    assert len(fake.sent) == 3


async def test_telegram_polling_delivers_presses(small: Stage) -> None:
    telegram = small.telegram
    await small.link(telegram)
    question = await ask(small, telegram)
    telegram.webhook = None
    await telegram.post_update(telegram.press(question, "Allow"))
    polling = small.threadline.messaging.open_polling(small.threadline.inbox, "telegram")
    await polling.poll(small.tenant_id, 0, held_seconds=0)
    *_, rest = await telegram.replies(3)
    assert rest.text.startswith(STAMPED)


async def test_slack_forms_are_verified_like_events(small: Stage) -> None:
    slack = small.slack
    await small.link(slack)
    question = await ask(small, slack)
    body = slack.press(question, "Allow")
    forged = {**slack.sign(body), "x-slack-signature": "v0=" + "0" * 64}
    assert (await slack.deliver(body, forged)).status == 401
    assert [call.state for call in await stamps(small)] == ["approval-requested"]


async def test_slash_commands_and_ssl_checks_are_accepted(small: Stage) -> None:
    slack = small.slack
    await small.link(slack)
    told = await slack.deliver(b"ssl_check=1&token=unused")
    assert (told.status, told.body) == (200, b"")
    told = await slack.deliver(slack.command("/ask", "Good morning"))
    assert (told.status, told.body) == (200, b"")
    assert "Good morning" in (await slack.replies(1))[0].text
    await slack.deliver(slack.command("/chats"))
    assert "Reply with a number" in (await slack.replies(2))[1].text


async def test_stop_ends_the_running_reply(small: Stage) -> None:
    await small.link(small.slack)
    assert decisions(await small.slack.say("slow 60")) == ["accepted"]
    assert decisions(await small.slack.say("!stop")) == ["command"]
    texts = {reply.text.splitlines()[-1] for reply in await small.slack.replies(2)}
    assert texts == {"Stopped.", "The reply was stopped."}
    assert await small.say(small.slack, "!stop") == "No reply is running here."
