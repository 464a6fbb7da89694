"""Hidden messages and parts: no read shows them, wherever they are part of a history; a purge removes them."""

from __future__ import annotations

import pytest

from threadline.core.errors import NotFound
from threadline.core.hidden_parts import HiddenPart
from threadline.core.messages import new_message
from threadline.core.parts import TextPart
from threadline.core.sealing import Sealed
from threadline.core.threads import NewThread
from threadline.core.turn_commits import Accepted, TurnAcceptance
from threadline.core.turns import Lease, Turn, TurnEnd
from threadline.ports import Transaction
from threadline.testing.conformance.message_builders import (
    assistant_message,
    clean_text,
    create_thread_with,
    exchange,
    history,
    seal,
    texts,
    user_message,
)


class TestHiddenParts:
    async def test_a_hidden_message_is_in_no_read(self, alice: Transaction) -> None:
        """Hides messages, or parts of them, from every read and search"""
        thread = await create_thread_with(alice, "one", "zebra", "three", "four")
        (_, hidden, *_) = await alice.messages(thread.id)
        assert await alice.hide_parts(thread.id, [HiddenPart(thread.timeline_id, 1)]) == 1
        assert await history(alice, thread.id) == ["one", "three", "four"]
        assert await alice.messages(thread.id, first=1, last=1) == []
        assert texts(await alice.last_turns(thread.id, 2)) == ["one", "three", "four"]
        assert await alice.message(thread.id, hidden.id) is None
        assert await alice.search("zebra") == []

    async def test_its_seq_stays_taken(self, alice: Transaction) -> None:
        """Their seqs stay taken. No read returns a hidden message: its seq is missing then."""
        thread = await create_thread_with(alice, "one", "two")
        await alice.hide_parts(thread.id, [HiddenPart(thread.timeline_id, 1)])
        assert (await alice.append(thread.id, exchange("three"))).first_seq == 2
        assert [message.seq for message in await alice.messages(thread.id)] == [0, 2]

    async def test_turns_are_counted_without_hidden_questions(self, alice: Transaction) -> None:
        """from the `turns`-th last user message on"""
        thread = await create_thread_with(alice, "1", "2", "3", "4", "5", "6", "7", "8")
        await alice.hide_parts(thread.id, [HiddenPart(thread.timeline_id, seq) for seq in (4, 5, 6, 7)])
        assert texts(await alice.last_turns(thread.id, 1)) == ["3", "4"]
        assert texts(await alice.last_turns(thread.id, 9)) == ["1", "2", "3", "4"]
        assert texts(await alice.last_turns(thread.id, 1, before=2)) == ["1", "2"]

    async def test_a_hidden_part_is_left_out_of_its_message(self, alice: Transaction) -> None:
        """or parts of them"""
        thread = await alice.create_thread(NewThread())
        said = new_message("assistant", (TextPart("lion"), TextPart("zebra"), TextPart("gnu")))
        await alice.append(thread.id, [seal(said)])
        await alice.hide_parts(thread.id, [HiddenPart(thread.timeline_id, 0, 1)])
        (message,) = await alice.messages(thread.id)
        assert (message.parts, message.hidden) == ((TextPart("lion"), TextPart("gnu")), (1,))
        (hit,) = await alice.search("lion")
        assert "zebra" not in hit.snippet

    async def test_branches_hide_it_too(self, alice: Transaction) -> None:
        """of every history that contains them"""
        thread = await create_thread_with(alice, "one", "two", "three")
        early = await alice.branch(thread.id, NewThread())
        await alice.hide_parts(thread.id, [HiddenPart(thread.timeline_id, 1)])
        late = await alice.branch(thread.id, NewThread())
        for each in (early, late):
            await alice.append(each.id, exchange("more"))
            assert await history(alice, each.id) == ["one", "three", "more"]
            assert texts(await alice.last_turns(each.id, 9)) == ["one", "three", "more"]

    async def test_summaries_that_cover_it_are_removed(self, alice: Transaction) -> None:
        """Hides messages, or parts of them, from every read and search of every history that contains them, and removes
        the summaries that cover them."""
        thread = await create_thread_with(alice, "one", "two", "three", "four")
        await alice.put_summary(thread.id, 1, clean_text("one and two"))
        branch = await alice.branch(thread.id, NewThread())
        await alice.append(branch.id, exchange("five"))
        await alice.put_summary(branch.id, 4, clean_text("all"))
        await alice.put_summary(thread.id, 3, clean_text("one to four"))
        await alice.hide_parts(thread.id, [HiddenPart(thread.timeline_id, 2)])
        for each in (thread, branch):
            summary = await alice.summary(each.id)
            assert summary is not None
            assert summary.text == "one and two"

    async def test_hiding_again_changes_nothing(self, alice: Transaction) -> None:
        """Returns how many marks are new."""
        thread = await create_thread_with(alice, "one", "two")
        marks = [HiddenPart(thread.timeline_id, 0), HiddenPart(thread.timeline_id, 1)]
        assert await alice.hide_parts(thread.id, marks[:1]) == 1
        assert await alice.hide_parts(thread.id, marks) == 1
        assert await alice.hide_parts(thread.id, marks) == 0

    async def test_a_turn_is_hidden_with_its_messages(self, alice: Transaction) -> None:
        """`turn_id` is the turn whose messages these are, for `is_turn_hidden`. Whether the messages of this turn were
        hidden with its id. False for an unknown turn."""
        thread = await create_thread_with(alice, "one", "two")
        await alice.hide_parts(thread.id, [HiddenPart(thread.timeline_id, 0)])
        assert not await alice.is_turn_hidden("turn-1")
        await alice.hide_parts(thread.id, [HiddenPart(thread.timeline_id, 0)], turn_id="turn-1")
        assert await alice.is_turn_hidden("turn-1")
        assert not await alice.is_turn_hidden("turn-2")

    async def test_what_does_not_exist_cannot_be_hidden(self, alice: Transaction, bob: Transaction) -> None:
        """NotFound, and nothing is hidden: there is no such thread, or none of its timelines has a message at one
        of the places."""
        thread = await create_thread_with(alice, "one", "two")
        place = HiddenPart(thread.timeline_id, 0)
        other = await create_thread_with(alice, "other")
        theirs = await create_thread_with(bob, "theirs")
        for tx, thread_id, parts in (
            (bob, thread.id, [place]),
            (bob, theirs.id, [place]),
            (alice, "unknown", [place]),
            (alice, other.id, [place]),
            (alice, thread.id, [place, HiddenPart(thread.timeline_id, 2)]),
        ):
            with pytest.raises(NotFound):
                await tx.hide_parts(thread_id, parts)
        assert await history(alice, thread.id) == ["one", "two"]

    async def test_a_continued_reply_leaves_later_messages_hidden(self, alice: Transaction) -> None:
        """A copy that a continued reply makes of a hidden message is hidden too."""
        thread = await create_thread_with(alice, "book it")
        asking, done = assistant_message("may I?", "reply-1"), assistant_message("done", "reply-1")
        await alice.append(thread.id, [asking])
        turn = await _accept(alice, thread.id, assistant_message("yes", "reply-1"), replaces="reply-1")
        await alice.append(thread.id, [user_message("secret"), assistant_message("kept")])
        stored = await alice.thread(thread.id)
        assert stored is not None
        await alice.hide_parts(thread.id, [HiddenPart(stored.timeline_id, 2)])
        outcome = await alice.finish_turn(turn.id, turn.fence, TurnEnd("executed"), reply=done)
        assert isinstance(outcome, Turn)
        assert await history(alice, thread.id) == ["book it", "done", "kept"]

    async def test_a_purge_removes_it(self, alice: Transaction, system: Transaction) -> None:
        """Their seqs stay taken, and the stored rows stay until a purge."""
        thread = await create_thread_with(alice, "one", "two")
        await alice.hide_parts(thread.id, [HiddenPart(thread.timeline_id, 0)])
        counts = await system.row_counts()
        assert (counts["messages"], counts["hidden_parts"]) == (2, 1)
        await alice.purge_thread(thread.id)
        counts = await system.row_counts()
        assert (counts["messages"], counts["hidden_parts"]) == (0, 0)


async def _accept(tx: Transaction, thread_id: str, message: Sealed, *, replaces: str) -> Turn:
    new = TurnAcceptance(
        turn_id="turn-1",
        surface="web",
        message=message,
        thread_id=thread_id,
        replaces=replaces,
        lease=Lease("w1", 60),
    )
    outcome = await tx.accept_turn(new)
    assert isinstance(outcome, Accepted)
    return outcome.turn
