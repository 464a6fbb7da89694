"""The home thread: which thread a user's private chats continue, and how they choose another."""

from __future__ import annotations

import asyncio

import pytest

from tests.messaging.conftest import Stage, staging
from tests.scripted_agent import ScriptedAgent, make_agent
from threadline.core.ids import new_id
from threadline.core.messages import assistant
from threadline.core.threads import NewThread
from threadline.messaging.home_threads import home_key
from threadline.ports import Store
from threadline.testing.clock import ManualClock
from threadline.testing.platforms import FakePlatform
from threadline.testing.platforms.slack import direct

WEB = "on-the-web"


async def ask_on_the_web(stage: Stage, text: str, key: str = WEB) -> None:
    asked = {"id": key, "message": {"role": "user", "parts": [{"type": "text", "text": text}]}}
    assert (await stage.http.post("/api/v1/ai/chat", json=asked, headers=stage.caller())).status_code == 200


async def continue_on_platforms(stage: Stage, key: str = WEB) -> None:
    """What the page does for "Continue on my phone"."""
    answer = await stage.http.put("/api/v1/me/home", json={"thread": key}, headers=stage.caller())
    assert answer.status_code == 200, answer.text


async def read_home(stage: Stage) -> str | None:
    answer = await stage.http.get("/api/v1/me/home", headers=stage.caller())
    thread = answer.json().get("thread")
    return None if thread is None else str(thread["stateKey"])


async def mention(stage: Stage, text: str) -> str:
    before = len(stage.slack.sent)
    for body in stage.slack.mention(text, thread_ts="1700000000.000001"):
        await stage.slack.deliver(body)
    return (await stage.slack.replies(before + 1))[before].text


def questions(stage: Stage) -> list[str]:
    """What the agent was shown last."""
    return asked_of(stage.agent)


def asked_of(agent: ScriptedAgent) -> list[str]:
    return [text for role, text in agent.prompt_texts() if role == "user"]


@pytest.mark.req("H-06")
async def test_a_web_thread_is_continued_in_telegram_and_slack(stage: Stage) -> None:
    for fake in (stage.slack, stage.telegram):
        await stage.link(fake)
    # Slack has been used before, Telegram has not.
    await stage.say(stage.slack, "Old talk")
    await mention(stage, "In a channel")
    await ask_on_the_web(stage, "My favourite colour is green")
    await stage.say(stage.slack, "Not yet")
    assert questions(stage) == ["Old talk", "Not yet"]
    await continue_on_platforms(stage)
    assert await read_home(stage) == WEB
    await stage.say(stage.telegram, "And in Telegram?")
    assert questions(stage) == ["My favourite colour is green", "And in Telegram?"]
    await stage.say(stage.slack, "And in Slack?")
    assert questions(stage) == ["My favourite colour is green", "And in Telegram?", "And in Slack?"]
    await mention(stage, "In the channel again")
    assert questions(stage) == ["In a channel", "In the channel again"]
    places = await stage.http.get(f"/api/v1/ai/threads/{WEB}/places", headers=stage.caller())
    assert sorted(each["surface"] for each in places.json()["places"]) == ["slack", "telegram"]


@pytest.mark.req("H-06")
async def test_a_chat_that_was_moved_elsewhere_stays_there(stage: Stage) -> None:
    for fake in (stage.slack, stage.telegram):
        await stage.link(fake)
        await stage.say(fake, "Before")
    await stage.say(stage.slack, "!new")
    await stage.say(stage.slack, "About work")
    await ask_on_the_web(stage, "On the web")
    await continue_on_platforms(stage)
    await stage.say(stage.slack, "More about work")
    assert questions(stage) == ["About work", "More about work"]
    await stage.say(stage.telegram, "At home")
    assert questions(stage) == ["On the web", "At home"]
    # Back at home, it follows again.
    home = (await stage.http.get("/api/v1/me/home", headers=stage.caller())).json()["thread"]["id"]
    await stage.say(stage.slack, f"!open {home}")
    await ask_on_the_web(stage, "Another thread", "another")
    await continue_on_platforms(stage, "another")
    await stage.say(stage.slack, "Here too")
    assert questions(stage) == ["Another thread", "Here too"]


async def create_as_earlier_versions_did(
    stage: Stage, fake: FakePlatform, place: str, agent_id: str, text: str
) -> None:
    tx = stage.as_user()
    thread = await tx.create_thread(NewThread(id=new_id(), state_key=home_key(agent_id), agent_id=agent_id))
    handle = await stage.threadline.as_user("alice", tenant=stage.tenant_id).thread(thread.id)
    await handle.append(text, assistant("Noted."))
    await tx.bind(fake.platform, f"{place} alice", thread.id)


@pytest.mark.req("H-06")
async def test_homes_of_earlier_versions_are_continued(store: Store, tenant_id: str, clock: ManualClock) -> None:
    """Those were one for each agent; a new chat on another platform, with another agent, continues one of them."""
    other = ScriptedAgent()
    agents = {"own_agents": {"other": make_agent(other)}, "platform_settings": {"slack": {"agent": "other"}}}
    async with staging(store, tenant_id, clock, **agents) as stage:
        for fake in (stage.slack, stage.telegram):
            await stage.link(fake)
        await create_as_earlier_versions_did(stage, stage.slack, direct(stage.slack.person), "other", "Years ago")
        await stage.say(stage.slack, "Still there?")
        assert asked_of(other) == ["Years ago", "Still there?"]
        await stage.say(stage.telegram, "And here?")
        assert questions(stage) == ["Years ago", "Still there?", "And here?"]
        await ask_on_the_web(stage, "Something new")
        await continue_on_platforms(stage)
        await stage.say(stage.slack, "What is new?")
        assert asked_of(other) == ["Something new", "What is new?"]


@pytest.mark.req("H-06")
@pytest.mark.parametrize("home", ["user", "agent"])
async def test_agents_share_the_history_unless_the_operator_separates_them(
    store: Store, tenant_id: str, clock: ManualClock, home: str
) -> None:
    other = ScriptedAgent()
    agents = {"own_agents": {"other": make_agent(other)}, "platform_settings": {"telegram": {"agent": "other"}}}
    async with staging(store, tenant_id, clock, channels={"home": home}, **agents) as stage:
        for fake in (stage.slack, stage.telegram):
            await stage.link(fake)
        await stage.say(stage.slack, "In Slack")
        await stage.say(stage.telegram, "In Telegram")
        assert asked_of(other) == (["In Slack", "In Telegram"] if home == "user" else ["In Telegram"])
        await ask_on_the_web(stage, "On the web")
        await continue_on_platforms(stage)
        await stage.say(stage.slack, "Together")
        await stage.say(stage.telegram, "Now")
        assert asked_of(other) == ["On the web", "Together", "Now"]


@pytest.mark.req("H-06")
async def test_a_thread_that_others_read_cannot_be_the_home_thread(stage: Stage) -> None:
    await stage.link(stage.slack)
    await mention(stage, "In a channel")
    (shared,) = (await stage.as_user().threads()).items
    answer = await stage.http.put("/api/v1/me/home", json={"thread": shared.id}, headers=stage.caller())
    assert answer.status_code == 409
    assert "where others read" in answer.json()["detail"]
    assert "others read this place" in await mention(stage, "!home here")
    assert "others read this place" not in await mention(stage, "!home")
    assert await read_home(stage) is None
    # A Matrix room that is shared is bound without a user.
    room = await stage.as_user().create_thread(NewThread(id=new_id()))
    await stage.as_user().bind("matrix", "!room:example", room.id)
    refused = await stage.http.put("/api/v1/me/home", json={"thread": room.id}, headers=stage.caller())
    assert refused.status_code == 409
    unknown = await stage.http.put("/api/v1/me/home", json={"thread": "nothing"}, headers=stage.caller())
    assert unknown.status_code == 404
    foreign = await stage.http.put("/api/v1/me/home", json={"thread": shared.id}, headers=stage.caller("bob"))
    assert foreign.status_code == 404


@pytest.mark.req("H-06")
async def test_the_command_shows_and_sets_the_home_thread(stage: Stage) -> None:
    for fake in (stage.slack, stage.telegram):
        await stage.link(fake)
    assert "no home chat yet" not in await stage.say(stage.slack, "!home")
    await stage.say(stage.telegram, "In Telegram")
    await stage.say(stage.slack, "!new Work")
    assert "!open" in await stage.say(stage.slack, "!home")
    assert "did not work" in await stage.say(stage.slack, "!home there")
    assert "home chat now" in await stage.say(stage.slack, "!home here")
    assert "This is your home chat" in await stage.say(stage.slack, "!home")
    await stage.say(stage.slack, "About work")
    await stage.say(stage.telegram, "What was that?")
    assert questions(stage) == ["About work", "What was that?"]


@pytest.mark.req("H-06")
async def test_after_the_home_thread_is_deleted_there_is_another(stage: Stage) -> None:
    await stage.link(stage.telegram)
    await ask_on_the_web(stage, "On the web")
    await continue_on_platforms(stage)
    await stage.say(stage.telegram, "In Telegram")
    deleted = await stage.http.delete(f"/api/v1/ai/threads/{WEB}", headers=stage.caller())
    assert deleted.status_code == 200
    assert await read_home(stage) is None
    await stage.say(stage.telegram, "Anew")
    assert questions(stage) == ["Anew"]
    assert await read_home(stage) == home_key("scripted")


@pytest.mark.req("H-06")
async def test_first_messages_at_the_same_time_begin_one_home_thread(stage: Stage) -> None:
    fakes = (stage.slack, stage.telegram, stage.whatsapp)
    for fake in fakes:
        await stage.link(fake)
    await asyncio.gather(*(fake.say(f"On {fake.platform}") for fake in fakes))
    for fake in fakes:
        await fake.replies(1)
    (home,) = (await stage.as_user().threads()).items
    assert home.message_count == 6
