"""A bot that holds a platform's connection: what it delivers, claims and settles. No homeserver."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from tests.client.platforms import ASKING, acting_client
from tests.messaging.conftest import Stage, texts
from threadline.bootstrap import open as open_threadline
from threadline.core.errors import NotFound
from threadline.core.platform_messages import Arrival, Opened, Outcome, Permanent, Released, Sent, Transient
from threadline.core.room_messages import RoomMessage, RoomPayload, RoomRequest, decode
from threadline.core.threads import Scope
from threadline.messaging.bridges import Room
from threadline.messaging.receipts import Receipt
from threadline.messaging.rooms import room_of
from threadline.testing.clock import ManualClock

REHEARSAL = msgspec.structs.replace(ASKING, agent="rehearsal")
ADA, ROOM = "@ada:example.org", "!room:example.org"


class Bot:
    """The only user of the bridge in a test."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.bridges = stage.threadline.bridges
        self._events = 0

    async def deliver(self, text: str, *, auto_link: bool = True, **more: Any) -> Receipt:
        self._events += 1
        given = {"key": f"$event-{self._events}", "sender": ADA, "place": ROOM, "recipient": ROOM, **more}
        arrival = Arrival(platform="matrix", text=text, sent_at=self.stage.clock.now(), **given)
        return await self.bridges.receive(self.stage.tenant_id, arrival, "test", auto_link=auto_link)

    async def next(self, outcome: Outcome | None = None) -> RoomPayload:
        """Claims the next delivery and settles it, as sent unless said otherwise."""
        async with asyncio.timeout(30):
            (row,) = await self.bridges.claim(self.stage.tenant_id, "matrix", "bot", limit=1, wait_seconds=25)
        assert await self.bridges.settle(self.stage.tenant_id, "matrix", "bot", row.id, outcome or Sent())
        return decode(row.payload)

    async def text(self) -> str:
        """The text of the next delivery that has one."""
        while True:
            message = await self.next()
            assert isinstance(message, RoomMessage)
            if message.text:
                return message.text

    async def ask(self, text: str, **more: Any) -> str:
        await self.deliver(text, **more)
        return await self.text()

    async def invited(self) -> None:
        """Ada has a space with a first room."""
        await self.deliver("", key=f"invite {ROOM}", kind="invitation")
        assert isinstance(await self.next(Opened("!c1:example.org", "https://c1", "!space:example.org")), RoomRequest)
        assert "I made you a space" in await self.text()

    async def rooms(self) -> dict[str | None, str]:
        bound = await self.stage.as_user(ADA).bindings(surface="matrix")
        return {each.label or "space": str(room_of(each)) for each in bound}

    async def history(self, place: str = ROOM) -> list[str]:
        binding = await self.stage.as_user(ADA).binding("matrix", f"{place} {ADA}")
        assert binding is not None
        return texts(await self.stage.as_user(ADA).messages(binding.thread_id))


@pytest.fixture
def bot(stage: Stage) -> Bot:
    return Bot(stage)


@pytest.fixture
def small_bot(small_stage: Stage) -> Bot:
    return Bot(small_stage)


@pytest.mark.req("S2-04", "S2-15")
async def test_a_message_is_answered_once_however_often_it_is_delivered(bot: Bot) -> None:
    receipts = await asyncio.gather(*(bot.deliver("Hello", key="$one") for _ in range(5)))
    assert sorted(receipt.decision for receipt in receipts) == ["accepted"] + ["duplicate"] * 4
    assert await bot.text() == "Hello, you."
    assert await bot.history() == ["Hello", "Hello, you."]
    assert await bot.bridges.claim(bot.stage.tenant_id, "matrix", "bot") == []


@pytest.mark.req("S2-17")
async def test_an_account_without_a_link_is_told_how_to_link_once(small_bot: Bot) -> None:
    first = await small_bot.deliver("Hello", auto_link=False)
    assert (first.decision, first.user_id) == ("denied_unverified", None)
    assert "not linked yet" in await small_bot.text()
    assert (await small_bot.deliver("Hello?", auto_link=False)).decision == "denied_unverified"
    assert await small_bot.bridges.claim(small_bot.stage.tenant_id, "matrix", "bot") == []


async def test_a_code_links_an_account_and_opens_its_space(small_bot: Bot) -> None:
    stage = small_bot.stage
    code = (await stage.threadline.messaging.links.new_code(Scope(stage.tenant_id, "ada"), "matrix")).code
    receipt = await small_bot.deliver(f"!link {code}", auto_link=False)
    assert (receipt.decision, receipt.user_id) == ("linked", "ada")
    assert "linked now" in await small_bot.text()
    assert isinstance(await small_bot.next(Opened("!c1:example.org", "https://c1", "!space:x")), RoomRequest)
    assert {room_of(each) for each in await stage.as_user("ada").bindings()} == {"!c1:example.org", "!space:x"}


@pytest.mark.req("S2-05", "S2-07")
async def test_an_opened_room_is_bound_to_its_thread_and_the_user_is_told(bot: Bot) -> None:
    await bot.invited()
    await bot.deliver("!new Research")
    request = await bot.next(Opened("!c2:example.org", "https://c2"))
    assert isinstance(request, RoomRequest)
    assert (request.name, request.binding.label, request.space) == ("Research", "C2", "!space:example.org")
    assert await bot.text() == "C2 “Research” is ready. You are invited: https://c2"
    assert await bot.rooms() == {"space": "!space:example.org", "C1": "!c1:example.org", "C2": "!c2:example.org"}


@pytest.mark.req("S2-06")
@pytest.mark.parametrize("command", ["!new Research", "!branch Fork"])
async def test_a_refused_room_leaves_no_thread_and_no_label(bot: Bot, command: str) -> None:
    await bot.invited()
    await bot.ask("Hello", place="!c1:example.org", recipient="!c1:example.org")
    before = await bot.stage.system.row_counts()
    await bot.deliver(command, place="!c1:example.org")
    await bot.next(Permanent("not today"))
    assert await bot.text() == "The homeserver refused to open a room: not today. Nothing was changed."
    after = await bot.stage.system.row_counts()
    assert {table for table in after if after[table] != before[table]} <= {"inbox", "outbox"}
    await bot.deliver("!new", place="!c1:example.org")
    request = await bot.next(Opened("!c2:example.org", "https://c2"))
    assert isinstance(request, RoomRequest)
    assert request.binding.label == "C2"


@pytest.mark.req("S2-06")
async def test_a_room_that_could_not_be_opened_now_is_requested_again(small_bot: Bot) -> None:
    await small_bot.invited()
    await small_bot.deliver("!new")
    await small_bot.next(Transient("the homeserver is down"))
    small_bot.stage.clock.advance(1)
    request = await small_bot.next(Opened("!c2:example.org", "https://c2"))
    assert isinstance(request, RoomRequest)
    assert "C2 is ready" in await small_bot.text()


async def test_two_invitations_at_the_same_time_open_one_space(bot: Bot) -> None:
    await asyncio.gather(
        *(bot.deliver("", key=f"invite {each}", kind="invitation", place=each, recipient=each) for each in "ab")
    )
    claimed = await bot.bridges.claim(bot.stage.tenant_id, "matrix", "bot")
    assert sorted(type(decode(row.payload)).__name__ for row in claimed) == ["RoomMessage", "RoomRequest"]


@pytest.mark.req("S2-17")
async def test_the_last_question_can_be_edited_and_retracted_and_no_earlier_one(bot: Bot) -> None:
    await bot.ask("Helo", key="$first")
    await bot.ask("Hello", kind="edit", target="$first", key="$edit")
    assert await bot.history() == ["Hello", "Hello, you."]
    await bot.ask("My number is 42", key="$second")
    for text, target in (("Too late", "$edit"), ("!new", "$second")):
        assert (await bot.deliver(text, kind="edit", target=target)).decision == "ignored"
    assert (await bot.deliver("", kind="retraction", target="$edit")).decision == "ignored"
    assert (await bot.deliver("", kind="retraction", target="$second", key="$back")).decision == "command"
    assert (await bot.deliver("", kind="retraction", target="$second", key="$back")).decision != "command"
    assert await bot.history() == ["Hello", "Hello, you."]


@pytest.mark.req("S2-09", "S2-17")
async def test_a_text_that_does_not_name_the_bot_is_an_answer_or_nothing(small_bot: Bot) -> None:
    await small_bot.ask("Hello", shared=True)
    assert (await small_bot.deliver("1", shared=True, is_addressed=False)).decision == "ignored"
    await small_bot.ask("!clear", shared=True)
    assert (await small_bot.deliver("!yes", shared=True, is_addressed=False)).decision == "command"
    assert "Cleared." in await small_bot.text()


async def test_a_claim_is_settled_only_by_the_worker_that_holds_it(small_bot: Bot) -> None:
    bridges, tenant_id = small_bot.bridges, small_bot.stage.tenant_id
    await small_bot.deliver("!help")
    (row,) = await bridges.claim(tenant_id, "matrix", "bot", claim_seconds=10)
    assert not await bridges.settle(tenant_id, "matrix", "another", row.id, Sent())
    small_bot.stage.clock.advance(11)
    (again,) = await bridges.claim(tenant_id, "matrix", "another")
    assert (again.id, again.attempts) == (row.id, 1)
    assert not await bridges.settle(tenant_id, "matrix", "bot", row.id, Sent())
    assert await bridges.settle(tenant_id, "matrix", "another", row.id, Sent())


@pytest.mark.req("S2-15", "S3-22")
async def test_a_restarted_bot_gets_at_once_what_the_killed_one_had_claimed(bot: Bot) -> None:
    bridges, tenant_id = bot.bridges, bot.stage.tenant_id
    await bot.deliver("!help")
    (row,) = await bridges.claim(tenant_id, "matrix", "device-1", claim_seconds=300)
    assert await bridges.claim(tenant_id, "matrix", "device-2", holding=[]) == []
    assert await bridges.claim(tenant_id, "matrix", "device-1", holding=[row.id]) == []
    (again,) = await bridges.claim(tenant_id, "matrix", "device-1", holding=[])
    assert (again.id, again.attempts) == (row.id, 1)
    assert await bridges.settle(tenant_id, "matrix", "device-1", row.id, Sent())


@pytest.mark.req("S3-22")
@pytest.mark.parametrize("may_be_sent", [False, True])
async def test_a_claim_that_is_given_back_is_due_at_once(small_bot: Bot, may_be_sent: bool) -> None:
    bridges, tenant_id = small_bot.bridges, small_bot.stage.tenant_id
    await small_bot.deliver("!help")
    (row,) = await bridges.claim(tenant_id, "matrix", "device-1", claim_seconds=300)
    assert await bridges.settle(tenant_id, "matrix", "device-1", row.id, Released(may_be_sent))
    (again,) = await bridges.claim(tenant_id, "matrix", "device-2")
    assert (again.id, again.is_ambiguous) == (row.id, may_be_sent)


async def test_nothing_is_claimed_for_a_bot_that_is_gone(small_bot: Bot) -> None:
    async def is_gone() -> bool:
        return True

    await small_bot.deliver("!help")
    claim = small_bot.bridges.claim(small_bot.stage.tenant_id, "matrix", "device-1", wait_seconds=5, is_gone=is_gone)
    assert await claim == []
    assert {row.status for row in await small_bot.stage.outbox()} == {"waiting"}


async def test_only_platforms_with_a_bot_of_their_own_are_bridged(small_bot: Bot) -> None:
    assert small_bot.bridges.platform("matrix") == "matrix"
    for platform in ("slack", "fax"):
        with pytest.raises(NotFound):
            small_bot.bridges.platform(platform)


@pytest.mark.req("S2-01", "S2-15")
async def test_lost_rooms_are_bound_again_once(bot: Bot) -> None:
    space = Room("!space:x", ADA, "lost-thread", is_space=True)
    room = Room("!c4:x", ADA, "lost-thread", "C4")
    restored = [
        await bot.bridges.restore(bot.stage.tenant_id, "matrix", each, auto_link=True)
        for each in (room, space, room, space)
    ]
    assert restored == [True, True, False, False]
    assert not await bot.bridges.restore(bot.stage.tenant_id, "matrix", Room("!r:x", "@eve:x", "t"))
    assert await bot.rooms() == {"C4": "!c4:x", "space": "!space:x"}
    await bot.deliver("!new", place="!c4:x")
    request = await bot.next(Opened("!c5:x", "https://c5"))
    assert isinstance(request, RoomRequest)
    assert request.binding.label == "C5"


@pytest.mark.req("S2-03")
async def test_a_bot_in_another_process_has_the_same_calls_over_http(clock: ManualClock) -> None:
    async with open_threadline(settings=REHEARSAL) as threadline, acting_client(threadline) as client:
        bridge = client.bridge("matrix")
        arrival = Arrival("matrix", "$one", ADA, ROOM, ROOM, "Hello", clock.now())
        accepted = await bridge.deliver(arrival, auto_link=True)
        assert (accepted.decision, accepted.user_id) == ("accepted", ADA)
        assert accepted.turn_id
        assert (await bridge.deliver(arrival, auto_link=True)).decision == "duplicate"
        told: list[str] = []
        while not any(told):
            for lost in await bridge.claim("bot", wait_seconds=5):
                assert await bridge.claim("bot", holding=[lost.id]) == []
            for delivery in await bridge.claim("bot", holding=[]):
                assert await bridge.settle("bot", delivery.id, Released(may_be_sent=False))
            for delivery in await bridge.claim("bot"):
                message = decode(delivery.payload)
                assert isinstance(message, RoomMessage)
                told.append(message.text)
                assert await bridge.settle("bot", delivery.id, Sent())
                assert not await bridge.settle("bot", delivery.id, Sent())
        (place,) = await bridge.places()
        assert (place.place, place.sender, place.user_id) == (ROOM, ADA, ADA)
        assert await bridge.restore_place("!other:x", ADA, "a-lost-thread", label="C9")
        assert {each.label for each in await bridge.places()} == {None, "C9"}
