"""Places that others read, threads and topics in them, and what people send beside new texts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import open_database
from tests.messaging.conftest import Stage, decisions, staging
from threadline.core.reply_text import HOW_TO_LINK_TEXT, UNREADABLE_TEXT
from threadline.core.threads import Scope
from threadline.testing.clock import ManualClock
from threadline.testing.platforms.slack import BOT_USER
from threadline.testing.platforms.telegram import BOT

GROUP = {"id": -100200300, "type": "supergroup", "title": "all"}
NAME = str(BOT["username"])


def thread_reply(stage: Stage, root: bytes, text: str, sender: str | None = None) -> bytes:
    """A message in the thread that a mention began, without another mention."""
    event = json.loads(root)["event"]
    where = {"channel": event["channel"], "channel_type": "channel", "thread_ts": event["ts"]}
    return stage.slack.write(text, sender, **where)


def in_group(stage: Stage, text: str, *, topic: int | None = None, sender: str | None = None, **more: Any) -> bytes:
    """A message in a Telegram group, with the entities that Telegram finds in it."""
    entities = [
        {"type": "bot_command" if word.startswith("/") else "mention", "offset": text.index(word), "length": len(word)}
        for word in text.split()
        if word[0] in "/@"
    ]
    where = {"message_thread_id": topic, "is_topic_message": True} if topic else {}
    return stage.telegram.write(text, sender, chat=GROUP, entities=entities, **where, **more)


async def answer(stage: Stage, fake: Any, body: bytes) -> str:
    before = len(fake.sent)
    told = await fake.deliver(body)
    assert told.status == 200, told
    return str((await fake.replies(before + 1))[before].text)


@pytest.mark.req("H-03")
async def test_each_slack_thread_has_a_context_of_its_own(stage: Stage) -> None:
    await stage.link(stage.slack)
    first, second = stage.slack.mention("my word is Bern")[1], stage.slack.mention("my word is Oslo")[1]
    await answer(stage, stage.slack, first)
    await answer(stage, stage.slack, second)
    await answer(stage, stage.slack, thread_reply(stage, first, f"<@{BOT_USER}> which word?"))
    said = [text for role, text in stage.agent.prompt_texts() if role == "user"]
    assert said == ["my word is Bern", "which word?"]


@pytest.mark.req("H-03")
async def test_each_telegram_topic_has_a_context_of_its_own(stage: Stage) -> None:
    await stage.link(stage.telegram)
    await answer(stage, stage.telegram, in_group(stage, f"@{NAME} my word is Bern", topic=7))
    await answer(stage, stage.telegram, in_group(stage, f"@{NAME} my word is Oslo", topic=8))
    await answer(stage, stage.telegram, in_group(stage, f"@{NAME} which word?", topic=7))
    said = [text for role, text in stage.agent.prompt_texts() if role == "user"]
    assert said == ["my word is Bern", "which word?"]


@pytest.mark.req("H-03")
async def test_a_setting_gives_a_whole_channel_one_context(tenant_id: str, clock: ManualClock) -> None:
    store = await open_database(":memory:", clock=clock)
    async with staging(store, tenant_id, clock, contexts="place") as stage:
        await stage.link(stage.slack)
        await answer(stage, stage.slack, stage.slack.mention("my word is Bern")[1])
        await answer(stage, stage.slack, stage.slack.mention("which word?")[1])
        said = [text for role, text in stage.agent.prompt_texts() if role == "user"]
        assert said == ["my word is Bern", "which word?"]
    await store.close()


@pytest.mark.req("H-03")
async def test_follow_ups_are_heard_only_of_people_who_speak_to_the_bot_in_the_thread(small_stage: Stage) -> None:
    stage = small_stage
    await stage.link(stage.slack)
    await stage.link(stage.slack, "bob", "U2002")
    _, root = stage.slack.mention("hello")
    await answer(stage, stage.slack, root)
    assert decisions(await stage.slack.deliver(thread_reply(stage, root, "and then?"))) == ["accepted"]
    await stage.slack.replies(2)
    unheard = [thread_reply(stage, root, "what do you think?", "U2002")]
    unheard.append(thread_reply(stage, root, "nobody knows me", "U3003"))
    for body in unheard:
        assert decisions(await stage.slack.deliver(body)) == ["ignored"]
    for text in ("<@U2002> what do you think?", "<!here> lunch?"):
        assert decisions(await stage.slack.deliver(thread_reply(stage, root, text))) == []
    assert len(stage.slack.sent) == 2


@pytest.mark.req("H-03")
async def test_mentions_and_commands_of_other_bots_are_not_ours(small_stage: Stage) -> None:
    stage = small_stage
    await stage.link(stage.telegram)
    for text in ("@OtherBot hi", "/new@SomeOtherBot", "shall we eat?", "/new@SomeOtherBot now"):
        assert decisions(await stage.telegram.deliver(in_group(stage, text))) == []
    assert "Started a new chat" in await answer(stage, stage.telegram, in_group(stage, f"/new@{NAME}"))
    reply_to = {"message_id": 1, "date": 1, "chat": GROUP, "from": BOT, "text": "It rains."}
    await answer(stage, stage.telegram, in_group(stage, "why?", reply_to_message=reply_to))
    assert stage.agent.prompt_texts()[-1] == ("user", "> It rains.\n\nwhy?")


@pytest.mark.req("H-03")
async def test_titles_of_private_chats_are_never_shown_where_others_read(small_stage: Stage) -> None:
    stage = small_stage
    await stage.link(stage.telegram)
    await stage.link(stage.slack)
    await stage.say(stage.telegram, "I am ill with zoster")
    home = await stage.home()
    await stage.as_user().save(home.id, "before the zoster test")
    shown = []
    for command in ("chats", "load", f"open {home.id}", "context", "branch", "chats"):
        word, _, argument = command.partition(" ")
        shown.append(await answer(stage, stage.telegram, in_group(stage, f"/{word}@{NAME} {argument}".strip())))
        shown.append(await answer(stage, stage.slack, stage.slack.mention(f"!{command}")[1]))
    assert not [text for text in shown if "zoster" in text]
    assert "private" in shown[0]
    assert "zoster" in await stage.say(stage.telegram, "!chats")


@pytest.mark.req("H-03", "S3-14")
async def test_an_unlinked_person_who_mentions_the_bot_gets_one_hint(small_stage: Stage) -> None:
    stage = small_stage
    for _ in range(2):
        assert decisions(await stage.slack.deliver(stage.slack.mention("hello")[1])) == ["denied_unverified"]
        told = await stage.telegram.deliver(in_group(stage, f"@{NAME} hello"))
        assert decisions(told) == ["denied_unverified"]
    await stage.slack.until(lambda: len(stage.slack.notices) == 1)
    assert (stage.slack.notices[0].to, stage.slack.sent) == (stage.slack.person, [])
    (hint,) = await stage.telegram.replies(1)
    assert hint.text.replace("`", "") == HOW_TO_LINK_TEXT.replace("`", "")
    assert len(await stage.outbox()) == 2


@pytest.mark.req("H-02")
async def test_an_edited_question_is_answered_again_on_a_new_timeline(stage: Stage) -> None:
    for fake in (stage.slack, stage.telegram):
        await stage.link(fake)
        wrote = fake.write("what is 2+2?")
        await answer(stage, fake, wrote)
        await answer(stage, fake, fake.edit(wrote, "what is 3+3?"))
        home = await stage.home()
        said = [text for role, text in stage.agent.prompt_texts() if role == "user"]
        assert (said[-1], "what is 2+2?" in said) == ("what is 3+3?", False)
        assert len(await stage.as_user().timelines(home.id)) > 1
        # The same edit again, and an edit of what is no longer the last question, change nothing.
        later = fake.write("thank you")
        await answer(stage, fake, later)
        assert decisions(await fake.deliver(fake.edit(wrote, "what is 4+4?"))) == ["ignored"]
        await answer(stage, fake, fake.write("!new"))


@pytest.mark.req("H-02")
async def test_a_deleted_question_is_removed_from_what_the_agent_sees(stage: Stage) -> None:
    slack = stage.slack
    await stage.link(slack)
    await stage.say(slack, "hello")
    secret = slack.write("the key is under the mat")
    await answer(stage, slack, secret)
    gone = slack.delete(secret)
    assert [decisions(await slack.deliver(gone)) for _ in range(2)] == [["command"], ["ignored"]]
    await stage.say(slack, "where is the key?")
    assert not any("mat" in text for _, text in stage.agent.prompt_texts())


@pytest.mark.req("H-02")
async def test_what_the_agent_cannot_read_gets_one_honest_sentence(small_stage: Stage) -> None:
    stage = small_stage
    for fake in (stage.slack, stage.telegram, stage.whatsapp):
        await stage.link(fake)
    picture = {"file_id": "x", "file_unique_id": "y", "width": 9, "height": 9}
    for _ in range(4):
        message = json.loads(stage.telegram.write("", photo=[picture], media_group_id="77"))["message"]
        del message["text"]
        await stage.telegram.deliver(stage.telegram.update(message=message))
    files = [{"id": "F1", "name": "plan.pdf", "mimetype": "application/pdf"}]
    await stage.slack.deliver(stage.slack.write("", subtype="file_share", files=files))
    voice = {**stage.whatsapp.message(""), "type": "audio", "audio": {"id": "1", "mime_type": "audio/ogg"}}
    voice.pop("text")
    await stage.whatsapp.deliver(stage.whatsapp.batch(voice))
    for fake in (stage.slack, stage.telegram, stage.whatsapp):
        assert [reply.text for reply in await fake.replies(1)] == [UNREADABLE_TEXT]
    assert stage.agent.prompts == []


@pytest.mark.req("H-02")
async def test_a_quote_reaches_the_agent_and_a_forwarded_command_is_not_executed(small_stage: Stage) -> None:
    stage = small_stage
    await stage.link(stage.telegram)
    before = {"message_id": 1, "date": 1, "chat": {"id": 1001, "type": "private"}, "text": "Trains go at 9 and 11."}
    await answer(stage, stage.telegram, stage.telegram.write("the second one", reply_to_message=before))
    assert stage.agent.prompt_texts()[-1] == ("user", "> Trains go at 9 and 11.\n\nthe second one")
    grace = {"type": "user", "date": 1, "sender_user": {"id": 5, "is_bot": False, "first_name": "Grace"}}
    await answer(stage, stage.telegram, stage.telegram.write("/clear", forward_origin=grace))
    assert stage.agent.prompt_texts()[-1] == ("user", "[forwarded from: Grace]\n/clear")


async def test_doctor_asks_the_platforms_whether_they_know_the_bot(small_stage: Stage) -> None:
    stage = small_stage
    threadline = stage.threadline
    diagnosis = threadline.messaging.open_diagnosis(
        threadline.directory, threadline.settings.agent, serves_public_names=True
    )
    assert not [each for each in await diagnosis.findings(stage.tenant_id) if each.level == "error"]
    wrong = {**stage.slack.secrets, "bot_token": "xoxb-revoked"}
    await threadline.messaging.credentials.put(Scope(stage.tenant_id, "root", "admin"), "slack", wrong)
    (found,) = [each for each in await diagnosis.findings(stage.tenant_id) if each.level == "error"]
    assert (found.what, found.remedy) == (
        "slack does not accept the credentials: invalid_auth",
        "threadline channels credentials set slack",
    )
