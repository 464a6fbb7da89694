"""Rooms with one thread for everyone, on every database and without a homeserver: what is whose."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.messaging.conftest import Stage, texts
from tests.messaging.test_bridges import ADA, ROOM, Bot
from threadline.core.approval_questions import NOT_ASKED_TEXT
from threadline.core.authors import read_author
from threadline.core.channels import User
from threadline.core.room_messages import RoomMessage
from threadline.core.turns import Turn
from threadline.core.usage import UsageQuery

BOB = "@bob:example.org"


class Shared(Bot):
    """Ada's room, in which Bob is as well."""

    async def say(self, sender: str, text: str, **more: Any) -> str:
        return await self.ask(text, sender=sender, sender_name=sender[1:4].title(), shared=True, **more)

    async def turns(self, user_id: str) -> list[Turn]:
        session = self.stage.as_user(ADA)
        binding = await session.binding("matrix", ROOM)
        assert binding is not None
        said = await session.messages(binding.thread_id)
        found = [await session.turn(each.turn_id) for each in said if each.turn_id is not None]
        return [turn for turn in found if turn is not None and turn.asked_by == user_id]

    async def used(self) -> dict[str | None, tuple[int, int]]:
        today = self.stage.clock.now().date()
        rows = await self.stage.system.usage(UsageQuery(by=("user",), first_day=today, last_day=today))
        return {row.user_id: (row.turns, row.input_tokens) for row in rows}


@pytest.fixture
async def room(stage: Stage) -> Shared:
    shared = Shared(stage)
    assert await shared.say(ADA, "Alone") == "Hello, you."
    assert await shared.say(BOB, "Alone as well") == "Hello, you."
    assert "one chat for everyone" in await shared.say(ADA, "!share", is_by_moderator=True)
    return shared


@pytest.mark.req("M-06")
async def test_everyone_writes_into_the_owners_thread_and_only_the_owner_has_it(room: Shared) -> None:
    for sender in (ADA, BOB):
        await room.say(sender, f"I am {sender}")
    ada, bob = room.stage.as_user(ADA), room.stage.as_user(BOB)
    binding = await ada.binding("matrix", ROOM)
    assert binding is not None
    said = [each for each in await ada.messages(binding.thread_id) if each.role == "user"]
    authors = [read_author(each.metadata) for each in said]
    assert room.stage.agent.prompt_texts()[-1] == ("user", f"{BOB} (Bob): I am {BOB}")
    assert [each and (each.id, each.name) for each in authors] == [(ADA, "Ada"), (BOB, "Bob")]
    assert await bob.thread(binding.thread_id) is None
    assert await bob.binding("matrix", ROOM) is None
    # What each had here alone is not bound any more, and still theirs.
    for user, session in ((ADA, ada), (BOB, bob)):
        assert await session.binding("matrix", f"{ROOM} {user}") is None
        kept = [each for each in (await session.threads()).items if each.id != binding.thread_id]
        assert [texts(await session.messages(each.id))[0][:5] for each in kept] == ["Alone"]


@pytest.mark.req("M-06")
async def test_usage_is_counted_for_who_asked(room: Shared) -> None:
    before = await room.used()
    await room.say(BOB, "Something")
    await room.say(BOB, "Something else")
    await room.say(ADA, "Me too")
    after = await room.used()
    assert {user: after[user][0] - before[user][0] for user in (ADA, BOB)} == {ADA: 1, BOB: 2}
    assert {turn.owner_id for turn in await room.turns(BOB)} == {ADA}


@pytest.mark.req("M-06")
async def test_an_arrival_that_is_delivered_again_is_one_turn_also_after_sharing_ended(room: Shared) -> None:
    receipts = await asyncio.gather(*(room.deliver("Once", key="$once", sender=BOB, shared=True) for _ in range(4)))
    assert sorted(each.decision for each in receipts) == ["accepted"] + ["duplicate"] * 3
    assert {each.user_id for each in receipts if each.turn is not None} == {ADA}
    await room.text()
    assert "chat of their own" in await room.say(ADA, "!share off")
    again = await room.deliver("Once", key="$once", sender=BOB, shared=True)
    assert again.decision == "duplicate"


@pytest.mark.req("M-06")
async def test_a_room_whose_owner_is_disabled_is_not_shared_and_can_be_shared_by_another(room: Shared) -> None:
    await room.say(BOB, "For all")
    await room.stage.system.disable_user(ADA)
    assert await room.say(BOB, "For me") == "Hello, you."
    assert await room.stage.as_user(BOB).binding("matrix", f"{ROOM} {BOB}") is not None
    assert "one chat for everyone" in await room.say(BOB, "!share", is_by_moderator=True)
    binding = await room.stage.as_user(BOB).binding("matrix", ROOM)
    assert binding is not None
    assert binding.owner_id == BOB


@pytest.mark.req("M-06")
async def test_a_viewer_is_refused_and_nothing_of_it_is_in_the_thread(room: Shared) -> None:
    await room.stage.system.put_user(User(BOB, role="viewer"))
    assert "read but not write" in await room.say(BOB, "Let me")
    ada = room.stage.as_user(ADA)
    binding = await ada.binding("matrix", ROOM)
    assert binding is not None
    assert await ada.messages(binding.thread_id) == []


@pytest.mark.req("M-06")
async def test_only_who_asked_answers_a_question_and_only_while_they_may_write(room: Shared) -> None:
    await room.say(ADA, "!agent rehearsal")
    await room.deliver("stamp hello", sender=BOB, sender_name="Bob", shared=True)
    asked = await room.next()
    assert isinstance(asked, RoomMessage)
    assert asked.question is not None
    answer = {"kind": "answer", "shared": True}
    assert f"Only {BOB}, who asked" in await room.ask(f"yes:{asked.question}", sender=ADA, **answer)
    await room.stage.system.put_user(User(BOB, role="viewer"))
    assert await room.ask(f"yes:{asked.question}", sender=BOB, **answer) == NOT_ASKED_TEXT
    await room.stage.system.put_user(User(BOB, role="member"))
    assert "`stamp`: done" in await room.ask(f"yes:{asked.question}", sender=BOB, **answer)
    assert [turn.asked_by for turn in await room.turns(BOB)] == [BOB, BOB]
