"""Wrong arguments: every store raises the same error with the same text, and stores nothing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from threadline.core.channels import User
from threadline.core.checks import LARGEST_INTEGER
from threadline.core.errors import InvalidInput, InvalidName, InvalidText, LimitExceeded, NotFound, ThreadlineError
from threadline.core.threads import NewThread, ThreadChanges
from threadline.ports import Store, StoreSession
from threadline.testing.conformance.message_builders import (
    assistant_message,
    create_thread_with,
    exchange,
    history,
    user_message,
)

TOO_LARGE = LARGEST_INTEGER + 1
NAIVE = dt.datetime(2026, 1, 1)  # noqa: DTZ001 the missing time zone is the fault


class Wrong(NamedTuple):
    """A call on a thread `t` of two messages, and what it raises."""

    call: Callable[[Any], Awaitable[object]]
    error: type[ThreadlineError]
    text: str


WRONG = {
    "threads, limit 0": Wrong(
        lambda s: s.threads(limit=0), InvalidInput, "`limit` must be 1–1000000000, got 0"
    ),
    "threads, limit too large": Wrong(
        lambda s: s.threads(limit=TOO_LARGE), InvalidInput, "`limit` must be 1–1000000000, got 1000000001"
    ),
    "threads, offset negative": Wrong(
        lambda s: s.threads(offset=-1), InvalidInput, "`offset` must be 0–1000000000, got -1"
    ),
    "threads, offset over 32 bits": Wrong(
        lambda s: s.threads(offset=2**31), InvalidInput, "`offset` must be 0–1000000000, got 2147483648"
    ),
    "threads, offset over 64 bits": Wrong(
        lambda s: s.threads(offset=2**80), InvalidInput, "`offset` must be 0–1000000000, got an integer of 81 bits"
    ),
    "threads, limit a string": Wrong(
        lambda s: s.threads(limit="5"), InvalidInput, "`limit` must be an integer, got str"
    ),
    "search, limit 0": Wrong(
        lambda s: s.search("a", limit=0), InvalidInput, "`limit` must be 1–1000000000, got 0"
    ),
    "search, NUL": Wrong(
        lambda s: s.search("a\0"), InvalidText, "`query` must not contain NUL characters"
    ),
    "messages, limit negative": Wrong(
        lambda s: s.messages("t", limit=-1), InvalidInput, "`limit` must be 0–1000000000, got -1"
    ),
    "messages, first over 32 bits": Wrong(
        lambda s: s.messages("t", first=2**31), InvalidInput, "`first` must be 0–1000000000, got 2147483648"
    ),
    "messages, unknown timeline": Wrong(
        lambda s: s.messages("t", timeline_id="no-such"), NotFound, "timeline 'no-such' not found"
    ),
    "messages, empty timeline id": Wrong(
        lambda s: s.messages("t", timeline_id=""), NotFound, "timeline '' not found"
    ),
    "messages, unknown thread and timeline": Wrong(
        lambda s: s.messages("no-such", timeline_id="x"), NotFound, "thread 'no-such' not found"
    ),
    "last_turns, negative": Wrong(
        lambda s: s.last_turns("t", -1), InvalidInput, "`turns` must be 0–1000000000, got -1"
    ),
    "last_turns, 0 of an unknown thread": Wrong(
        lambda s: s.last_turns("no-such", 0), NotFound, "thread 'no-such' not found"
    ),
    "append, nothing": Wrong(
        lambda s: s.append("t", []), InvalidInput, "`messages` must contain at least one message, got none"
    ),
    "append, expected_count over 32 bits": Wrong(
        lambda s: s.append("t", [user_message("x")], expected_count=2**31),
        InvalidInput,
        "`expected_count` must be 0–1000000000, got 2147483648",
    ),
    "append, NUL in the key": Wrong(
        lambda s: s.append("t", [user_message("x")], key="k\0"), InvalidText, "`key` must not contain NUL characters"
    ),
    "branch, past the head": Wrong(
        lambda s: s.branch("t", NewThread(), at=2),
        InvalidInput,
        "thread 't' has no message 2: read its `message_count`",
    ),
    "branch, over 32 bits": Wrong(
        lambda s: s.branch("t", NewThread(), at=2**31), InvalidInput, "`at` must be -1–1000000000, got 2147483648"
    ),
    "move, past the head": Wrong(
        lambda s: s.move("t", 2), InvalidInput, "thread 't' has no message 2: read its `message_count`"
    ),
    "save, past the head": Wrong(
        lambda s: s.save("t", "name", at=2), InvalidInput, "thread 't' has no message 2: read its `message_count`"
    ),
    "save, over 32 bits": Wrong(
        lambda s: s.save("t", "name", at=2**31), InvalidInput, "`at` must be -1–1000000000, got 2147483648"
    ),
    "save, no name": Wrong(
        lambda s: s.save("t", " "), InvalidName, "saved point name must not be empty"
    ),
    "save, long name": Wrong(
        lambda s: s.save("t", "n" * 101), LimitExceeded, "saved point name length must be at most 100, got 101"
    ),
    "put_summary, past the head": Wrong(
        lambda s: s.put_summary("t", 2, "text"), InvalidInput, "thread 't' has no message 2: read its `message_count`"
    ),
    "restore_thread, not deleted": Wrong(
        lambda s: s.restore_thread("t"), NotFound, "deleted thread 't' not found"
    ),
    "restore_thread, unknown": Wrong(
        lambda s: s.restore_thread("no-such"), NotFound, "deleted thread 'no-such' not found"
    ),
    "thread, NUL in the id": Wrong(
        lambda s: s.thread("t\0"), InvalidText, "`thread_id` must not contain NUL characters"
    ),
    "thread, lone surrogate in the id": Wrong(
        lambda s: s.thread("\ud800"), InvalidText, "`thread_id` must not contain lone surrogates (half a character)"
    ),
    "thread, id of another type": Wrong(
        lambda s: s.thread(5), InvalidInput, "`thread_id` must be a string, got int"
    ),
    "create_thread, id outside its alphabet": Wrong(
        lambda s: s.create_thread(NewThread(id="a b")),
        InvalidName,
        "thread id must match [A-Za-z0-9._:-]{1,128}, got 'a b'",
    ),
    "create_thread, unprintable state key": Wrong(
        lambda s: s.create_thread(NewThread(state_key="a\nb")),
        InvalidName,
        "state key must be 1 to 256 printable characters, got 'a\\nb'",
    ),
    "create_thread, NUL in the title": Wrong(
        lambda s: s.create_thread(NewThread(title="a\0b")), InvalidText, "`title` must not contain NUL characters"
    ),
    "update_thread, NUL in the model": Wrong(
        lambda s: s.update_thread("t", ThreadChanges(model="a\0b")),
        InvalidText,
        "`model` must not contain NUL characters",
    ),
    "requeue, NUL in the id": Wrong(
        lambda s: s.requeue("\0"), InvalidText, "`outbox_id` must not contain NUL characters"
    ),
    "bind, unknown surface": Wrong(
        lambda s: s.bind("fax", "room", "t"),
        InvalidInput,
        "`surface` must be one of web, api, cli, slack, telegram, whatsapp, matrix, got 'fax'",
    ),
    "prune_threads, no time zone": Wrong(
        lambda s: s.prune_threads(idle_since=NAIVE),
        InvalidInput,
        "`idle_since` must have a time zone, got 2026-01-01T00:00:00",
    ),
    "put_user, empty id": Wrong(
        lambda s: s.put_user(User("")), InvalidName, "user id must be 1–256 printable characters, got ''"
    ),
}  # fmt: skip


class TestWrongArguments:
    @pytest.mark.parametrize("name", WRONG)
    async def test_a_wrong_argument_has_one_error_and_one_text(self, alice: StoreSession, name: str) -> None:
        """An argument of the wrong type, an integer outside its range, and text with a NUL character or a lone
        surrogate raise InvalidInput. InvalidInput if `limit` is below 1, or `offset` below 0. InvalidInput if `limit`
        is negative. InvalidInput if `messages` is empty. InvalidInput if `at` is past the head. InvalidInput if the
        history has no message `seq`. NotFound if there is no deleted thread with this id"""
        await create_thread_with(alice, "a", "b", new=NewThread(id="t"))
        before = await alice.row_counts()
        with pytest.raises(WRONG[name].error) as raised:
            await WRONG[name].call(alice)
        assert (type(raised.value), str(raised.value)) == (WRONG[name].error, WRONG[name].text)
        assert await alice.row_counts() == before
        assert await history(alice, "t") == ["a", "b"]

    async def test_undo_without_a_user_message(self, alice: StoreSession) -> None:
        """InvalidInput if the history has no user message"""
        thread = await alice.create_thread(NewThread(id="t"))
        await alice.append(thread.id, [assistant_message("hello")])
        with pytest.raises(InvalidInput, match=r"^thread 't' has no user message to undo$"):
            await alice.undo(thread.id)

    async def test_no_turns_are_an_empty_list(self, alice: StoreSession) -> None:
        """[] if `turns` is 0."""
        thread = await create_thread_with(alice, "a", "b")
        assert await alice.last_turns(thread.id, 0) == []
        assert await alice.messages(thread.id, limit=0) == []

    async def test_reads_of_an_unknown_thread(self, alice: StoreSession) -> None:
        """None if the thread or the message does not exist. [] if the thread does not exist."""
        assert await alice.message("no-such", "m1") is None
        assert await alice.turns("no-such") == []
        assert await alice.active_turns("no-such") == []

    async def test_a_saved_point_has_one_spelling(self, alice: StoreSession) -> None:
        """The name is stored in Unicode's NFC, without spaces around it."""
        thread = await create_thread_with(alice, "a", "b")
        saved = await alice.save(thread.id, "  cafe\u0301 ")
        assert saved.name == "café"
        assert [point.name for point in await alice.saved_points()] == ["café"]

    async def test_other_metadata_is_still_the_same_message(self, alice: StoreSession) -> None:
        """with message ids that are already in this history in this order with this role and content, nothing is
        written"""
        thread = await alice.create_thread(NewThread())
        (first,) = exchange("a")
        await alice.append(thread.id, [first])
        assert (await alice.append(thread.id, [msgspec.structs.replace(first, metadata_json=b'{"a":1}')])).replayed

    async def test_the_largest_values_are_accepted(self, store: Store, alice: StoreSession) -> None:
        await create_thread_with(alice, "a", "b", new=NewThread(id="t"))
        assert len((await alice.threads(limit=LARGEST_INTEGER)).items) == 1
        assert (await alice.threads(offset=LARGEST_INTEGER)).items == ()
        assert len(await alice.messages("t", last=LARGEST_INTEGER, limit=LARGEST_INTEGER)) == 2
        assert len(await alice.last_turns("t", LARGEST_INTEGER, before=LARGEST_INTEGER)) == 2
        assert len(await alice.search("a", limit=LARGEST_INTEGER)) == 1
        assert await alice.outbox(limit=LARGEST_INTEGER) == []
