"""Accepting and finishing in one step: what the steps would have stored, or nothing at all."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from threadline.core.threads import NewThread, Thread
from threadline.core.turns import ACTIVE, Chunk, Lease, NewTurn, Turn, TurnEnd
from threadline.ports import Transaction
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.fixtures import LIMITS
from threadline.testing.conformance.message_builders import (
    assistant_message,
    clean_text,
    create_thread_with,
    history,
    user_message,
)


async def accept(
    tx: Transaction, clock: ManualClock, thread_id: str, turn_id: str = "turn-1", **given: Any
) -> tuple[Turn, Thread] | None:
    otherwise, message_id = given.pop("otherwise", None), given.pop("message_id", None)
    return await tx.accept_at_once(
        NewTurn(turn_id, thread_id, "web", **given),
        user_message("Is it far?", message_id),
        Lease("w1", clock.after(30)),
        otherwise=otherwise,
        title=clean_text("A title"),
    )


async def begun(tx: Transaction, clock: ManualClock, thread_id: str, turn_id: str = "turn-1") -> Turn:
    stored = await accept(tx, clock, thread_id, turn_id)
    assert stored is not None
    return stored[0]


class TestAcceptingAtOnce:
    async def test_the_request_the_turn_and_the_lease_are_stored(self, alice: Transaction, clock: ManualClock) -> None:
        """The common case of a request: `append`, `create_turn` and `lease_turn` in one step, in line with the user's
        other works (see `Store.transact`). A turn that names no agent has the thread's."""
        thread = await create_thread_with(alice, "before", "it", new=NewThread(agent_id="helper"))
        clock.advance()
        stored = await accept(alice, clock, thread.id, idempotency_key="key-1", request_hash=b"\x00\xff")
        assert stored is not None
        turn, after = stored
        assert (turn.status, turn.fence, turn.lease_owner, turn.lease_until) == ("running", 1, "w1", clock.after(30))
        assert (turn.owner_id, turn.agent_id, turn.request_seq, turn.created_at) == ("alice", "helper", 2, clock.now())
        assert (turn.idempotency_key, turn.request_hash) == ("key-1", b"\x00\xff")
        assert await alice.turn("turn-1") == turn
        assert await alice.thread(thread.id) == after
        assert (after.message_count, after.title, after.updated_at) == (3, "A title", clock.now())
        assert (await alice.messages(thread.id, first=2))[0].turn_id == "turn-1"

    async def test_a_thread_is_found_by_its_state_key_or_made(self, alice: Transaction, clock: ManualClock) -> None:
        """It goes to the thread `new.thread_id`; or, with `otherwise`, to the living thread under its state key, which
        is made under the id `new.thread_id` if there is none."""
        wanted = NewThread(state_key="lisbon", agent_id="helper", model="m1", metadata={"a": 1}, title="Lisbon")
        made = await accept(alice, clock, "thread-1", otherwise=wanted)
        assert made is not None
        assert made[1] == await alice.thread("thread-1") == await alice.thread_by_key("lisbon")
        assert (made[1].agent_id, made[1].model, made[1].metadata, made[1].title) == (
            "helper",
            "m1",
            {"a": 1},
            "Lisbon",
        )
        await alice.finish_turn("turn-1", 1, TurnEnd("executed"))
        found = await accept(alice, clock, "thread-2", "turn-2", otherwise=wanted)
        assert found is not None
        assert (found[1].id, found[0].request_seq) == ("thread-1", 1)
        assert await alice.thread("thread-2") is None

    @pytest.mark.parametrize("obstacle", ["turn", "key", "message", "thread", "room", "deleted"])
    async def test_nothing_is_stored_if_anything_stands_in_the_way(
        self, alice: Transaction, clock: ManualClock, obstacle: str
    ) -> None:
        """None, and nothing is stored, if anything stands in the way: the key or the message id was here before, a turn
        of the thread is active, the thread is not here or is full."""
        thread = await create_thread_with(
            alice, *(["said"] * (LIMITS.messages_per_thread if obstacle == "room" else 2))
        )
        other = await create_thread_with(alice, "elsewhere")
        if obstacle == "turn":
            await alice.create_turn(NewTurn("turn-0", thread.id, "web"))
        if obstacle == "key":
            await alice.create_turn(NewTurn("turn-0", other.id, "web", idempotency_key="key-1"))
        if obstacle == "deleted":
            await alice.delete_thread(thread.id)
        before = await alice.row_counts()
        standing = (await alice.messages(other.id))[0].id if obstacle == "message" else None
        thread_id = {"thread": "nowhere", "message": other.id}.get(obstacle, thread.id)
        assert await accept(alice, clock, thread_id, idempotency_key="key-1", message_id=standing) is None
        assert await alice.row_counts() == before

    async def test_of_many_at_once_one_is_accepted(self, alice: Transaction, clock: ManualClock) -> None:
        wanted = NewThread(state_key="lisbon")
        tries = [accept(alice, clock, f"thread-{n}", f"turn-{n}", otherwise=wanted) for n in range(12)]
        done = [each for each in await asyncio.gather(*tries) if each is not None]
        assert len(done) == 1
        assert len((await alice.threads()).items) == 1


class TestFinishingAtOnce:
    async def test_the_reply_the_stream_and_the_end_are_stored(self, alice: Transaction, clock: ManualClock) -> None:
        """The common case of an end: `put_chunks`, `append` and `finish_turn` in one step, for a turn that answers a
        user's message."""
        thread = await create_thread_with(alice, "before", "it")
        turn = await begun(alice, clock, thread.id)
        await alice.put_chunks(turn.id, 1, [Chunk(1, b'"a"')])
        clock.advance()
        end = TurnEnd("executed", usage={"input_tokens": 3}, seen={"turns": 1})
        reply = assistant_message("Not far.")
        ended = await alice.finish_at_once(turn, end, reply, [Chunk(1, b'"b"'), Chunk(2, b'"c"')], tokens=7)
        assert ended is not None
        assert (ended.status, ended.reply_seq, ended.finished_at) == ("executed", 3, clock.now())
        assert await alice.turn(turn.id) == ended
        assert await alice.chunks(turn.id) == [Chunk(1, b'"a"'), Chunk(2, b'"c"')]
        assert await history(alice, thread.id) == ["before", "it", "Is it far?", "Not far."]
        after = await alice.thread(thread.id)
        assert after is not None
        assert (after.token_count, after.updated_at) == (7, clock.now())
        assert (await alice.messages(thread.id, first=3))[0].turn_id == turn.id

    async def test_a_turn_may_end_without_a_reply(self, alice: Transaction, clock: ManualClock) -> None:
        thread = await create_thread_with(alice)
        turn = await begun(alice, clock, thread.id)
        ended = await alice.finish_at_once(turn, TurnEnd("dispatch_failed", error="no agent"), None, [])
        assert ended is not None
        assert (ended.status, ended.error, ended.reply_seq) == ("dispatch_failed", "no agent", None)
        assert await alice.turn(turn.id) == ended
        assert await history(alice, thread.id) == ["Is it far?"]

    @pytest.mark.parametrize("obstacle", ["fence", "ended", "moved", "deleted", "branch", "reply", "status"])
    async def test_nothing_is_stored_if_anything_stands_in_the_way(
        self, alice: Transaction, clock: ManualClock, obstacle: str
    ) -> None:
        """None, and nothing is stored, if anything stands in the way: the fence is old, the turn has ended, or its
        message is not on the thread's present timeline."""
        thread = await create_thread_with(alice, "before", "it")
        turn = await begun(alice, clock, thread.id)
        reply = assistant_message("Not far.")
        match obstacle:
            case "fence":
                clock.advance(30)
                assert await alice.lease_turn(turn.id, "w2", until=clock.after(30)) is not None
            case "ended":
                await alice.finish_turn(turn.id, 1, TurnEnd("stopped"))
            case "moved":
                await alice.move(thread.id, 1)
            case "branch":
                await alice.move(thread.id, 2)
            case "deleted":
                await alice.delete_thread(thread.id)
            case "reply":
                await alice.append(thread.id, [reply])
        end = TurnEnd(next(iter(ACTIVE)) if obstacle == "status" else "executed")
        before, standing = await alice.row_counts(), await alice.turn(turn.id)
        assert await alice.finish_at_once(turn, end, reply, [Chunk(1, b"1")]) is None
        assert await alice.row_counts() == before
        assert await alice.turn(turn.id) == standing

    async def test_of_many_at_once_one_ends_it(self, alice: Transaction, clock: ManualClock) -> None:
        thread = await create_thread_with(alice)
        turn = await begun(alice, clock, thread.id)
        tries = [
            alice.finish_at_once(turn, TurnEnd("executed", error=str(n)), assistant_message(f"{n}", f"reply-{n}"), [])
            for n in range(12)
        ]
        done = [each for each in await asyncio.gather(*tries) if each is not None]
        assert [await alice.turn(turn.id)] == done
        assert await history(alice, thread.id) == ["Is it far?", str(done[0].error)]

    async def test_an_old_holder_ends_nothing(self, alice: Transaction, clock: ManualClock) -> None:
        thread = await create_thread_with(alice)
        turn = await begun(alice, clock, thread.id)
        forged = msgspec.structs.replace(turn, fence=2)
        assert await alice.finish_at_once(forged, TurnEnd("executed"), assistant_message("forged"), []) is None
        assert await history(alice, thread.id) == ["Is it far?"]
