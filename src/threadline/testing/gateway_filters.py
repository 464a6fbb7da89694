"""The part of the gateway conformance suite about filters of thread lists."""

from __future__ import annotations

import datetime as dt

import pytest

from threadline.core.errors import InvalidCursor, InvalidInput, LimitExceeded, NotFound
from threadline.core.ids import new_state_key
from threadline.core.messages import new_message
from threadline.core.parts import TextPart
from threadline.ports import Gateway


@pytest.mark.req("G-10")
async def test_lists_are_filtered(gateway: Gateway) -> None:
    mark = new_state_key()
    first = await gateway.create_thread(metadata={"mark": mark, "n": 1, "tags": [f"tag {mark}", "é&?"]})
    second = await gateway.create_thread(metadata={"mark": mark, "n": 2}, agent_id="rehearsal")
    await first.ask("Hello")
    both = await gateway.threads(where={"mark": mark})
    assert [thread.id for thread in both] == [first.id, second.id]
    assert [thread.id for thread in await gateway.threads(where={"mark": mark, "n": 2})] == [second.id]
    assert [thread.id for thread in await gateway.threads(tag=f"tag {mark}")] == [first.id]
    assert [thread.id for thread in await gateway.threads(where={"mark": mark}, agent="rehearsal")] == [second.id]
    assert [thread.id for thread in await gateway.threads(where={"mark": mark}, surface="slack")] == []
    later = (await second.refresh()).updated_at + dt.timedelta(microseconds=1)
    assert [thread.id for thread in await gateway.threads(where={"mark": mark}, since=later)] == [first.id]
    assert [thread.id for thread in await gateway.threads(where={"mark": mark}, until=later)] == [second.id]


@pytest.mark.req("G-10")
async def test_filtered_lists_are_read_to_their_end_by_cursor(gateway: Gateway) -> None:
    mark = new_state_key()
    made = [(await gateway.create_thread(metadata={"mark": mark})).id for _ in range(5)]
    seen, cursor = [], None
    while True:
        page = await gateway.threads(where={"mark": mark}, limit=2, cursor=cursor)
        seen += [thread.id for thread in page]
        cursor = page.next_cursor
        if cursor is None:
            break
        with pytest.raises(InvalidCursor):
            await gateway.threads(where={"mark": "another"}, cursor=cursor)
    assert sorted(seen) == sorted(made)


async def test_a_filter_that_cannot_be_compared_is_refused(gateway: Gateway) -> None:
    for where in ({"k": 1.5}, {"k": ["x"]}, {1: "x"}, "k=v", {"k": "\0"}, {"k": 10**15}):
        with pytest.raises(InvalidInput):
            await gateway.threads(where=where)  # type: ignore[arg-type]  # wrong on purpose
    for wrong in ({"surface": "fax"}, {"since": "yesterday"}, {"until": 5}, {"tag": 5}):
        with pytest.raises(InvalidInput):
            await gateway.threads(**wrong)
    with pytest.raises(LimitExceeded):
        await gateway.threads(where={"k": "x" * 300})


@pytest.mark.req("P-01")
async def test_threads_are_searched_by_title_and_message(gateway: Gateway) -> None:
    word = new_state_key()
    titled = await gateway.create_thread(title=f"Drawing of {word}", metadata={"mark": word})
    crowd = await gateway.create_thread(title="Crowd", agent_id="rehearsal")
    await crowd.append(*(f"number {number} of {word}" for number in range(5)))
    page = await gateway.search_threads(word)
    assert [(found.thread_id, found.is_title_match, found.hit_count, len(found.hits)) for found in page] == [
        (titled.id, True, 0, 0), (crowd.id, False, 5, 3),
    ]  # fmt: skip
    assert (page.items[0].title, page.items[0].state_key) == (titled.info.title, titled.info.state_key)
    assert page.items[1].hits == tuple(await gateway.search(word))[:3]
    first = await gateway.search_threads(word, limit=1, passages=1)
    rest = await gateway.search_threads(word, limit=1, passages=1, cursor=first.next_cursor)
    assert [*first, *rest] == [page.items[0], *(await gateway.search_threads(word, passages=1)).items[1:]]
    assert rest.next_cursor is None
    assert [found.thread_id for found in await gateway.search_threads(word, where={"mark": word})] == [titled.id]
    assert [found.thread_id for found in await gateway.search_threads(word, agent="rehearsal")] == [crowd.id]
    assert len(await gateway.search(word, agent="rehearsal")) == 5
    assert await gateway.search(word, surface="slack") == []
    with pytest.raises(InvalidCursor):
        await gateway.search_threads("other", cursor=first.next_cursor)
    for wrong in ({"limit": 0}, {"limit": 101}, {"passages": 21}, {"passages": -1}, {"surface": "fax"}):
        with pytest.raises(InvalidInput):
            await gateway.search_threads(word, **wrong)
    with pytest.raises(InvalidInput):
        await gateway.search_threads("  ")


@pytest.mark.req("P-01")
async def test_a_window_around_a_hit_is_read(gateway: Gateway) -> None:
    thread = await gateway.create_thread()
    await thread.append(*(f"padding {number}" for number in range(60)), "a zyxomma flies", "the end")
    (hit,) = await gateway.search("zyxom")
    window = await thread.messages(around=hit.message_id, within=2)
    assert [message.seq for message in window] == [58, 59, 60, 61]
    assert window[2].id == hit.message_id
    assert [message.seq for message in await thread.messages(around=1, within=2)] == [0, 1, 2, 3]
    assert len(await thread.messages(around=30)) == 51
    assert await thread.messages(around=1_000, within=2) == []
    for wrong in ({"around": 5, "newest": 2}, {"around": 5, "last": 7}, {"around": -1}, {"around": 5, "within": 501}):
        with pytest.raises(InvalidInput):
            await thread.messages(**wrong)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(NotFound):
        await thread.messages(around="nowhere")


@pytest.mark.req("G-10")
async def test_an_assistant_message_may_have_no_parts(gateway: Gateway) -> None:
    thread = await gateway.create_thread()
    await thread.append("A question", new_message("assistant", ()))
    assert [len(message.parts) for message in await thread.messages()] == [1, 0]
    with pytest.raises(InvalidInput):
        await thread.append(new_message("user", ()))
    await thread.ask("Another one")
    assert [type(part) for part in (await thread.messages())[2].parts] == [TextPart]
