"""A client that acts for users: one connection, a view for each of them, and every verb safe to repeat."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest

from tests.client.conftest import IMPATIENT
from tests.service.running_service import serving
from tests.service.token_clients import token_for
from threadline.bootstrap import Threadline
from threadline.bootstrap import open as open_threadline
from threadline.client import Client, connect
from threadline.core.errors import (
    ImpersonationRefused,
    InvalidName,
    KeyReused,
    LinkLimited,
    LinkRefused,
    NotFound,
    RoleRefused,
    TokenRefused,
)
from threadline.core.messages import user
from threadline.core.threads import Scope
from threadline.messaging.links import ATTEMPTS
from threadline.settings import ServiceSettings, Settings

SERVICE = ServiceSettings(authentication=True, heartbeat_seconds=5, recovery_seconds=60, grace_seconds=1)


class Place(NamedTuple):
    url: str
    threadline: Threadline


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with (
        open_threadline(settings=Settings(database=":memory:", service=SERVICE)) as opened,
        serving(opened) as anyone,
    ):
        yield Place(anyone.url, opened)


@pytest.fixture
async def bot(place: Place) -> AsyncIterator[Client]:
    token = await token_for(place.threadline, "bot", acts_for_users=True)
    async with connect(place.url, token=token, retry=IMPATIENT) as connected:
        yield connected


@pytest.mark.req("S2-03")
@pytest.mark.parametrize("user", ["ada", "@ada:example.org", "Žofie Ω, 50% /?#&+", "a" * 256, "😀" * 256])
async def test_every_impersonated_user_has_separate_threads(bot: Client, place: Place, user: str) -> None:
    async with bot.acting_for(user) as view:
        await (await view.create_thread(state_key="key")).ask("Hello")
        assert [each.state_key for each in (await view.threads()).items] == ["key"]
    assert (await bot.threads()).items == ()
    threads = place.threadline.threads(Scope("local", user))
    assert [thread.state_key for thread in (await threads.page()).items] == ["key"]
    assert [turn.surface for turn in await (await bot.acting_for(user).thread("key")).turns()] == ["matrix"]


@pytest.mark.req("S2-03", "S2-15")
async def test_a_thread_is_created_once_for_each_user(bot: Client) -> None:
    ada = bot.acting_for("ada")
    thread = await ada.open_thread("key", title="Trip", agent_id="rehearsal")
    assert (thread.title, thread.message_count, thread.agent_id) == ("Trip", 0, "rehearsal")
    assert (await ada.open_thread("key", title="Other")).title == "Trip"
    with pytest.raises(NotFound):
        await ada.create_thread(agent_id="unknown")
    assert (await bot.acting_for("bob").open_thread("key")).id != thread.id


@pytest.mark.req("S2-03", "S2-15")
async def test_asking_again_is_resuming_also_after_the_turn_has_ended(bot: Client) -> None:
    thread = await bot.acting_for("ada").create_thread(state_key="key")
    first = thread.ask(user("Hello", id="q1"), key="k1")
    pieces = [text async for text in first.text()]
    again = (await bot.acting_for("ada").thread("key")).ask(user("Hello", id="q1"), key="k1")
    assert (await again.accept()).id == (await first.turn()).id == (await thread.turns())[0].id
    assert [text async for text in again.text()] == pieces
    assert (await again.ended()).status == (await thread.turns())[0].status == "executed"
    assert [message.id for message in await thread.last_turns(1)] == ["q1", (await first).id]


@pytest.mark.req("S2-03")
async def test_a_question_takes_the_place_of_an_earlier_one(bot: Client) -> None:
    thread = await bot.acting_for("ada").create_thread()
    await thread.ask(user("One", id="q1"))
    await thread.ask(user("Two", id="q2"))
    await thread.ask(user("Too", id="q3"), key="k", replaces="q2")
    assert [message.id for message in await thread.messages() if message.role == "user"] == ["q1", "q3"]
    await thread.ask(user("Too", id="q3"), key="k", replaces="q2")
    with pytest.raises(NotFound):
        await thread.ask("Three", replaces="q2")


@pytest.mark.req("S2-03", "S2-15")
async def test_moves_are_made_once_for_each_key_and_user(bot: Client) -> None:
    for name in ("ada", "bob"):
        thread = await bot.acting_for(name).create_thread(state_key="key")
        await thread.ask("One")
        await thread.save("here")
        await thread.ask("Two")
        for _ in range(2):
            await thread.undo(key="k1")
            assert (await thread.refresh()).message_count == 2
        await thread.ask("Three")
        for _ in range(2):
            await thread.load("here", key="k2")
            assert (await thread.refresh()).message_count == 2
        with pytest.raises(KeyReused):
            await thread.load("here", key="k1")


@pytest.mark.req("S2-15")
async def test_a_message_that_is_heard_again_is_found_wherever_its_room_is_bound_now(bot: Client) -> None:
    ada = bot.acting_for("ada")
    first = await ada.create_thread(state_key="first")
    second = await ada.create_thread(state_key="second")
    question = user("Hello", id="q1")
    reply = first.ask(question, key="k1")
    await reply
    with pytest.raises(KeyReused) as refused:
        await second.ask(question, key="k1")
    assert refused.value.state_key == "first"
    again = (await ada.thread("first")).ask(question, key="k1")
    assert (await again.accept()).id == (await reply.turn()).id
    assert await second.messages() == []
    await (await bot.acting_for("bob").open_thread("second")).ask("Hello", key="k1")
    await first.delete()
    with pytest.raises(KeyReused) as gone:
        await second.ask(question, key="k1")
    assert gone.value.state_key is None


@pytest.mark.req("S2-03", "S3-15")
async def test_accounts_are_linked_found_and_unlinked(bot: Client, place: Place) -> None:
    links, room = place.threadline.messaging.links, ("matrix", "@ada:example.org")
    assert await bot.link_of(*room) is None
    made = await links.new_code(Scope("local", "ada"), "matrix")
    assert await bot.redeem_link(*room, made.code.lower()) == "ada"
    found = await bot.link_of(*room)
    assert found is not None
    assert (found.user_id, found.state, found.platform_user_id) == ("ada", "verified", room[1])
    with pytest.raises(LinkRefused):
        await bot.redeem_link("matrix", "@eve:example.org", made.code)
    assert await bot.acting_for("eve").link_of(*room) is None
    await bot.acting_for("eve").unlink(*room)
    assert await bot.acting_for("ada").link_of(*room) == found
    await bot.acting_for("ada").unlink(*room)
    assert await bot.link_of(*room) is None
    await links.put(Scope("local", "root", "admin"), *room, "ada", revoked=True)
    barred = await bot.link_of(*room)
    assert barred is not None
    assert barred.state == "revoked"
    with pytest.raises(LinkRefused):
        await bot.redeem_link(*room, (await links.new_code(Scope("local", "ada"))).code)


@pytest.mark.req("S3-15")
async def test_an_account_may_guess_a_few_times_and_then_has_to_wait(bot: Client, place: Place) -> None:
    for _ in range(ATTEMPTS):
        with pytest.raises(LinkRefused):
            await bot.redeem_link("matrix", "@eve:example.org", "AAAA0000")
    code = (await place.threadline.messaging.links.new_code(Scope("local", "ada"))).code
    with pytest.raises(LinkLimited):
        await bot.redeem_link("matrix", "@eve:example.org", code)
    assert await bot.redeem_link("matrix", "@ada:example.org", code) == "ada"


@pytest.mark.req("SX-04")
async def test_who_may_not_act_is_told_so(bot: Client, place: Place) -> None:
    token = await token_for(place.threadline, "ada")
    async with connect(place.url, token=token, retry=IMPATIENT) as ada:
        with pytest.raises(ImpersonationRefused):
            await ada.acting_for("bob").threads()
        assert (await ada.threads()).items == ()
    async with connect(place.url, token="tl_local_" + "0" * 64, retry=IMPATIENT) as unknown:
        with pytest.raises(TokenRefused):
            await unknown.acting_for("bob").threads()
    with pytest.raises(ImpersonationRefused):
        await bot.acting_for("system").threads()
    with pytest.raises(InvalidName):
        bot.acting_for("a" * 257)
    viewing = await token_for(place.threadline, "bot", "viewer", acts_for_users=True)
    async with connect(place.url, token=viewing, retry=IMPATIENT) as viewer:
        with pytest.raises(RoleRefused):
            await viewer.acting_for("ada").create_thread()
