"""Threads and user views of the library, on both databases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import threadline
from threadline.library import ThreadHandle, UserView

pytestmark = pytest.mark.parametrize("database", ["file", "postgres"], indirect=True)


@pytest.fixture
async def ada(database: str, tenant_id: str) -> AsyncIterator[UserView]:
    async with threadline.open(database) as opened:
        yield opened.as_user("ada", tenant=tenant_id)


async def texts(thread: ThreadHandle) -> list[str]:
    return [message.text for message in await thread.messages()]


@pytest.mark.req("S1-07")
async def test_an_append_against_an_old_head_is_refused_with_the_count_of_the_new_one(ada: UserView) -> None:
    thread = await ada.create_thread()
    await thread.append("one", expected_count=0)
    with pytest.raises(threadline.HeadMoved) as refused:
        await thread.append("two", expected_count=0)
    assert refused.value.current_count == 1
    await thread.append("two", expected_count=1)
    assert await texts(thread) == ["one", "two"]


@pytest.mark.req("S1-07")
async def test_of_a_race_for_the_first_message_one_wins_and_the_others_are_told(ada: UserView) -> None:
    thread = await ada.create_thread()
    hands = [await ada.thread(thread.id) for _ in range(8)]
    outcomes = await asyncio.gather(
        *(hand.append(str(n), expected_count=0) for n, hand in enumerate(hands)), return_exceptions=True
    )
    lost = [outcome for outcome in outcomes if isinstance(outcome, threadline.HeadMoved)]
    assert len(lost) == 7
    assert len(await texts(thread)) == 1


@pytest.mark.req("S4-03")
async def test_changing_what_is_not_there_names_it_and_deleting_it_is_no_error(ada: UserView) -> None:
    thread = await ada.create_thread()
    await thread.append("soon gone")
    await thread.purge()
    with pytest.raises(threadline.NotFound, match=thread.id):
        await thread.update(title="Nothing")
    await thread.delete()
    with pytest.raises(threadline.NotFound, match=thread.id):
        await thread.messages()
    assert await ada.search("gone") == []
    with pytest.raises(threadline.NotFound, match=thread.id):
        await ada.restore_thread(thread.id)


@pytest.mark.req("S4-04")
async def test_what_was_talked_in_last_is_listed_first_with_its_counts(ada: UserView) -> None:
    older, newer = [await ada.create_thread(title=title) for title in ("older", "newer")]
    assert [thread.title for thread in (await ada.threads()).items] == ["newer", "older"]
    await older.append("and now this")
    listed = (await ada.threads(limit=1)).items
    assert [(thread.title, thread.message_count) for thread in listed] == [("older", 1)]
    assert newer.info.message_count == 0


@pytest.mark.req("S4-06")
async def test_loading_replaces_the_history_and_keeps_the_system_prompt(ada: UserView) -> None:
    thread = await ada.create_thread(system_prompt="Be brief.")
    await thread.append("kept")
    await thread.save("then")
    await thread.append("left behind")
    await thread.load("then")
    assert await texts(thread) == ["kept"]
    assert thread.info.system_prompt == "Be brief."


@pytest.mark.parametrize("parts", ["text", ("text",), ({"type": "text", "text": "x"},)])
async def test_parts_of_another_type_are_named(ada: UserView, parts: object) -> None:
    thread = await ada.create_thread()
    with pytest.raises(
        threadline.InvalidInput, match=r"each part of a message must be a part such as threadline\.TextPart"
    ):
        await thread.append(threadline.NewMessage("user", parts))  # type: ignore[arg-type]
    assert await texts(thread) == []
