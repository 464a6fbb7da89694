"""The gateway conformance suite, continued: values beside the log, and moves with an expected head.

Import it beside `threadline.testing.gateway`, with the same fixture.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Awaitable

import pytest

from threadline.core.errors import (
    DuplicateId,
    HeadMoved,
    InvalidInput,
    KeyReused,
    LimitExceeded,
    NotFound,
    RoleRefused,
    ThreadlineError,
    ValueChanged,
)
from threadline.core.ids import new_state_key
from threadline.core.messages import assistant, user
from threadline.core.threads import ExpectedHead
from threadline.core.values import DeleteValue, PutValue
from threadline.ports import Gateway, GatewayThread

_SECRET = b'{"api_key": "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"}'


async def _texts(thread: GatewayThread) -> list[str]:
    return [message.text for message in await thread.messages()]


@pytest.mark.req("G-09")
async def test_a_value_is_kept_byte_for_byte(gateway: Gateway) -> None:
    """It is stored as given: never masked, searched, shown to a model or on the page"""
    thread = await gateway.create_thread()
    for values in (thread.values, gateway.values):
        key, data = f"a/b:{new_state_key()} é", _SECRET + bytes(range(256))
        version = await values.put("tests", key, data, expected_version=0)
        found = await values.get("tests", key)
        assert found is not None
        assert (found.namespace, found.key, found.version, found.size) == ("tests", key, version, len(data))
        assert (found.data, found.expires_at, found.updated_at.tzinfo) == (data, None, dt.UTC)
        with pytest.raises(ValueChanged) as caught:
            await values.put("tests", key, b"late", expected_version=0)
        assert caught.value.current_version == version
        again = await values.put("tests", key, b"", expected_version=version, ttl=dt.timedelta(hours=1))
        found = await values.get("tests", key)
        assert found is not None
        assert found.expires_at is not None
        assert (again > version, found.data) == (True, b"")
        assert await values.delete("tests", key, expected_version=again) is True
        assert await values.delete("tests", key) is False
        assert await values.get("tests", key) is None
    assert await gateway.search("abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH") == []


@pytest.mark.req("G-09")
async def test_values_are_listed_by_prefix_and_read_together(gateway: Gateway) -> None:
    values = (await gateway.create_thread()).values
    await values.write(*[PutValue("tests", f"k/{n}", str(n).encode()) for n in range(5)], PutValue("tests", "z", b"z"))
    page = await values.list("tests", prefix="k/", limit=2)
    assert [(value.key, value.size, value.data) for value in page] == [("k/0", 1, None), ("k/1", 1, None)]
    page = await values.list("tests", prefix="k/", limit=2, cursor=page.next_cursor, with_data=True)
    assert [value.data for value in page] == [b"2", b"3"]
    newest = await values.list("tests", prefix="k/", descending=True, limit=1)
    assert [value.key for value in newest] == ["k/4"]
    assert {key: value.data for key, value in (await values.get_many("tests", ["z", "k/0", "?"])).items()} == {
        "k/0": b"0",
        "z": b"z",
    }
    assert (await values.list("other")).items == ()


@pytest.mark.req("G-09")
async def test_several_changes_are_made_together_or_not_at_all(gateway: Gateway) -> None:
    values = (await gateway.create_thread()).values
    (version,) = await values.write(PutValue("tests", "a", b"1"))
    with pytest.raises(ValueChanged):
        await values.write(PutValue("tests", "b", b"2"), DeleteValue("tests", "a", expected_version=version + 1))
    assert await values.get("tests", "b") is None
    versions = await values.write(PutValue("tests", "b", b"2"), DeleteValue("tests", "a"), DeleteValue("tests", "?"))
    assert (versions[1:], await values.get("tests", "a")) == ([version, 0], None)


@pytest.mark.req("G-09")
async def test_a_large_value_is_kept_and_a_larger_one_is_refused(gateway: Gateway) -> None:
    values = (await gateway.create_thread()).values
    large = bytes(range(251)) * 20_000
    await values.put("tests", "large", large)
    found = await values.get("tests", "large")
    assert found is not None
    assert found.data == large
    with pytest.raises(LimitExceeded):
        await values.put("tests", "large", bytes(64 * 1024 * 1024 + 1))


@pytest.mark.req("G-09")
async def test_the_tenants_values_are_read_by_all_and_written_by_administrators(gateway: Gateway) -> None:
    values, key = gateway.tenant_values, new_state_key()
    assert await values.get("tests", key) is None
    try:
        await values.put("tests", key, b"for all")
    except RoleRefused:
        # The gateway's user is a member.
        assert await values.get("tests", key) is None
    else:
        assert (await values.list("tests", prefix=key, with_data=True)).items[0].data == b"for all"


@pytest.mark.req("G-09")
async def test_messages_and_values_are_stored_together_or_not_at_all(gateway: Gateway) -> None:
    thread = await gateway.create_thread()
    key = new_state_key()
    changes = [PutValue("tests", "state", b"1", expected_version=0), PutValue("tests", key, b"u", scope="user")]
    appended = await thread.append("first", key="k1", values=changes)
    state = await thread.values.get("tests", "state")
    assert state is not None
    assert (state.data, appended.value_versions[0]) == (b"1", state.version)
    assert (await gateway.values.list("tests", prefix=key)).items[0].key == key
    with pytest.raises(ValueChanged):
        await thread.append("second", values=changes)
    with pytest.raises(HeadMoved):
        await thread.append("second", expected_count=5, values=[PutValue("tests", "state", b"2")])
    again = await thread.append("first", key="k1", values=changes)
    assert (again.replayed, again.value_versions, await _texts(thread)) == (True, (), ["first"])
    unchanged = await thread.values.get("tests", "state")
    assert unchanged is not None
    assert unchanged.version == state.version


@pytest.mark.req("G-09")
async def test_values_that_cannot_be_stored_are_refused(gateway: Gateway) -> None:
    thread = await gateway.create_thread()
    values = thread.values
    with pytest.raises(InvalidInput):
        await values.put("tests", "k", "text")  # type: ignore[arg-type]  # what a caller without types may pass
    with pytest.raises(InvalidInput):
        await values.put("", "k", b"")
    with pytest.raises(InvalidInput):
        await values.put("tests", "k" * 513, b"")
    with pytest.raises(InvalidInput):
        await values.put("tests", "k", b"", ttl=dt.timedelta(0))
    with pytest.raises(InvalidInput):
        await values.put("tests", "k", b"", expected_version=-1)
    with pytest.raises(InvalidInput):
        await values.write(PutValue("tests", "k", b""), DeleteValue("tests", "k"))
    with pytest.raises(InvalidInput):
        await thread.append("x", values=[b"data"])  # type: ignore[list-item]  # likewise
    await thread.delete()
    for call in (values.get("tests", "k"), values.list("tests"), values.put("tests", "k", b"")):
        with pytest.raises(NotFound):
            await call


@pytest.mark.req("G-10")
async def test_a_move_with_a_stale_head_changes_nothing(gateway: Gateway) -> None:
    """HeadMoved, and nothing is changed, if it is elsewhere by now."""
    thread = await gateway.create_thread()
    await thread.append("a", assistant("b"), "c")
    first = thread.timeline_id
    name = new_state_key()
    await thread.save(name, at=0)
    for stale in (ExpectedHead(expected_count=2), ExpectedHead(expected_timeline="elsewhere")):
        for call in (
            thread.rewind(0, **stale),
            thread.undo(**stale),
            thread.load(name, **stale),
            thread.switch(first, **stale),
        ):
            with pytest.raises(HeadMoved) as caught:
                await call
            assert caught.value.current_count == 3
    assert (await thread.refresh()).timeline_id == first
    await thread.rewind(1, expected_count=3, expected_timeline=first)
    await thread.undo(expected_count=2, expected_timeline=thread.timeline_id)
    await thread.switch(first, expected_count=0)
    await thread.load(name, expected_count=3, expected_timeline=first)
    assert await _texts(thread) == ["a"]


@pytest.mark.req("G-10")
async def test_rewind_and_append_are_one_call(gateway: Gateway) -> None:
    thread = await gateway.create_thread()
    await thread.append("a", assistant("b"), "c")
    first, kept = thread.timeline_id, (await thread.messages())[1]
    new = user("C", id=new_state_key())
    appended = await thread.append(new, after=kept.id, expected_count=3, expected_timeline=first)
    assert (await _texts(thread), appended.first_seq, thread.message_count) == (["a", "b", "C"], 2, 3)
    assert thread.timeline_id != first
    assert [message.text for message in await thread.messages(timeline=first)] == ["a", "b", "c"]
    # A repeat, although the head is not where it was expected: nothing moves, also not what was added since.
    await thread.append("D")
    again = await thread.append(new, after=kept.id, expected_count=3, expected_timeline=first)
    assert (again.replayed, await _texts(thread)) == (True, ["a", "b", "C", "D"])
    once = await thread.append("start again", after=-1, key="k1")
    assert (await _texts(thread), once.first_seq) == (["start again"], 0)
    assert (await thread.append("start again", after=-1, key="k1")).replayed
    with pytest.raises(KeyReused):
        await thread.append("other", after=-1, key="k1")


@pytest.mark.req("G-10")
async def test_an_append_after_a_point_that_fails_moves_nothing(gateway: Gateway) -> None:
    thread = await gateway.create_thread()
    message = user("a", id=new_state_key())
    await thread.append(message, assistant("b"))
    first = thread.timeline_id
    failures: list[tuple[type[ThreadlineError], Awaitable[object]]] = [
        (HeadMoved, thread.append("x", after=0, expected_count=1)),
        (HeadMoved, thread.append("x", after=0, expected_timeline="elsewhere")),
        (HeadMoved, thread.append("x", expected_timeline="elsewhere")),
        (InvalidInput, thread.append("x", after=2)),
        (NotFound, thread.append("x", after="nowhere")),
        (DuplicateId, thread.append(user("other", id=message.id), after=0)),
        (ValueChanged, thread.append("x", after=0, values=[PutValue("tests", "k", b"", expected_version=3)])),
    ]
    for kind, call in failures:
        with pytest.raises(kind):
            await call
    assert ((await thread.refresh()).timeline_id, await _texts(thread)) == (first, ["a", "b"])


@pytest.mark.req("G-10")
async def test_of_concurrent_moves_from_one_head_one_succeeds(gateway: Gateway) -> None:
    """HeadMoved, and nothing is changed, if it is elsewhere by now."""
    thread = await gateway.create_thread()
    await thread.append(*[str(n) for n in range(12)])
    popped: list[str] = []

    async def pop() -> None:
        mine = await gateway.thread(thread.id)
        while True:
            seen = await mine.refresh()
            (newest,) = await mine.messages(newest=1, timeline=seen.timeline_id)
            try:
                await mine.rewind(
                    newest.seq,
                    before=True,
                    expected_count=seen.message_count,
                    expected_timeline=seen.timeline_id,
                )
            except HeadMoved:
                continue
            popped.append(newest.text)
            return

    await asyncio.gather(*(pop() for _ in range(10)))
    assert sorted(popped, key=int) == [str(n) for n in range(2, 12)]
    assert await _texts(thread) == ["0", "1"]
