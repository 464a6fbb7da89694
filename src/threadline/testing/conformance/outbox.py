"""The outbox: each delivery is one worker's at a time, in order for each recipient, and time is the store's clock's."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest

from threadline.core.channels import OutboxBacklog, OutboxRow, OutboxStatus
from threadline.core.errors import Conflict, DuplicateId, NotFound, RoleRefused
from threadline.core.turns import Surface
from threadline.ports import Transaction
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.message_builders import clean_text


async def waiting(system: Transaction, clock: ManualClock, *ids: str) -> list[OutboxRow]:
    """Rows for alice, a second apart, all due."""
    rows = []
    for id in ids:
        rows.append(
            await system.enqueue("slack", f"C-{id}", clean_text(f"to {id}"), turn_id=None, owner_id="alice", id=id)
        )
        clock.advance()
    return rows


async def undelivered(system: Transaction, clock: ManualClock, id: str, status: OutboxStatus) -> None:
    """A row for alice with this status, a second before the clock."""
    platform: Surface = "whatsapp" if status == "window_closed" else "slack"
    await system.enqueue(platform, f"P-{id}", clean_text("x"), turn_id=None, owner_id="alice", id=id)
    await system.claim_outbox("w1", until=clock.after(30))
    await system.settle_outbox(id, "w1", status=status, error=f"error of {id}")
    clock.advance()


def ids(rows: list[OutboxRow]) -> list[str]:
    return [row.id for row in rows]


class TestEnqueueing:
    async def test_a_row_waits_from_now_on(self, system: Transaction, clock: ManualClock) -> None:
        """Adds a row that waits for delivery."""
        row = await system.enqueue("slack", "C1", clean_text("hello"), turn_id="turn-1", owner_id="alice")
        assert (row.platform, row.recipient, row.payload) == ("slack", "C1", "hello")
        assert (row.turn_id, row.owner_id, row.status, row.attempts) == ("turn-1", "alice", "waiting", 0)
        assert row.next_attempt_at == row.created_at == clock.now()
        assert (row.claimed_by, row.claimed_until, row.last_error, row.sent_at) == (None,) * 4
        assert await system.outbox() == [row]

    async def test_an_id_is_enqueued_once(self, system: Transaction, clock: ManualClock) -> None:
        """If the id exists, returns that row and writes nothing"""
        (row,) = await waiting(system, clock, "o1")
        again = await system.enqueue("slack", "C2", clean_text("other"), turn_id=None, owner_id="alice", id="o1")
        assert again == row
        assert await system.outbox() == [row]

    async def test_another_owners_row_is_not_shown(
        self, system: Transaction, bob: Transaction, clock: ManualClock
    ) -> None:
        """DuplicateId if the row belongs to another owner."""
        await waiting(system, clock, "o1")
        with pytest.raises(DuplicateId):
            await bob.enqueue("slack", "C2", clean_text("mine"), turn_id=None, owner_id="bob", id="o1")

    async def test_the_outbox_is_listed_newest_first(
        self, system: Transaction, alice: Transaction, bob: Transaction, clock: ManualClock
    ) -> None:
        """Newest first."""
        await waiting(system, clock, "o2", "o1", "o3")
        await system.claim_outbox("w", until=clock.after(30), limit=1)
        assert ids(await system.outbox()) == ids(await alice.outbox()) == ["o3", "o1", "o2"]
        assert ids(await system.outbox(limit=2)) == ["o3", "o1"]
        assert ids(await system.outbox(status="claimed")) == ["o2"]
        assert ids(await system.outbox(status="waiting")) == ["o3", "o1"]
        assert await bob.outbox() == []


class TestDelivering:
    @pytest.mark.req("S3-22")
    async def test_due_rows_are_claimed_oldest_first(self, system: Transaction, clock: ManualClock) -> None:
        """Rows of the tenant that are due (waiting and past their time, or claimed and past their claim), oldest first,
        now claimed by this worker."""
        await waiting(system, clock, "o3", "o1", "o2")
        rows = await system.claim_outbox("w1", until=clock.after(30), limit=2)
        assert ids(rows) == ["o3", "o1"]
        assert {(row.status, row.claimed_by, row.claimed_until) for row in rows} == {("claimed", "w1", clock.after(30))}
        assert ids(await system.claim_outbox("w2", until=clock.after(30))) == ["o2"]
        assert await system.claim_outbox("w3", until=clock.after(30)) == []

    async def test_a_worker_claims_only_for_the_platforms_it_names(
        self, system: Transaction, clock: ManualClock
    ) -> None:
        """With `platforms`, only rows for these: a worker claims what it can send."""
        await system.enqueue("matrix", "!room", clean_text("x"), turn_id=None, owner_id="alice", id="m1")
        await system.enqueue("slack", "D1", clean_text("x"), turn_id=None, owner_id="alice", id="s1")
        assert await system.claim_outbox("w1", until=clock.after(30), platforms=[]) == []
        assert ids(await system.claim_outbox("w1", until=clock.after(30), platforms=["telegram", "slack"])) == ["s1"]
        assert ids(await system.claim_outbox("w2", until=clock.after(30))) == ["m1"]

    @pytest.mark.req("S3-22")
    async def test_two_workers_never_get_one_row(self, system: Transaction, clock: ManualClock) -> None:
        """Claims are exclusive: only one of any number of workers gets a row."""
        await waiting(system, clock, *(f"o{n:02}" for n in range(20)))
        claims = [system.claim_outbox(f"w{n}", until=clock.after(30), limit=3) for n in range(20)]
        claimed = [id for rows in await asyncio.gather(*claims) for id in ids(rows)]
        assert sorted(claimed) == [f"o{n:02}" for n in range(20)]

    @pytest.mark.req("S3-22")
    async def test_a_stale_claim_is_taken_over(self, system: Transaction, clock: ManualClock) -> None:
        """False if this worker no longer has the claim."""
        await waiting(system, clock, "o1")
        await system.claim_outbox("w1", until=clock.after(30))
        clock.advance(29)
        assert await system.claim_outbox("w2", until=clock.after(30)) == []
        clock.advance(1)
        assert ids(await system.claim_outbox("w2", until=clock.after(30))) == ["o1"]
        assert await system.settle_outbox("o1", "w1", status="sent") is False
        assert await system.settle_outbox("o1", "w2", status="sent") is True
        assert await system.settle_outbox("o1", "w2", status="sent") is False
        assert await system.settle_outbox("nowhere", "w2", status="sent") is False

    async def test_a_sent_row_is_done(self, system: Transaction, clock: ManualClock) -> None:
        """Stores the result of a claimed row, with the platform's id of the message, and counts the attempt."""
        await waiting(system, clock, "o1")
        await system.claim_outbox("w1", until=clock.after(30))
        at = clock.advance()
        assert await system.settle_outbox("o1", "w1", status="sent", message_id="C1:17.4") is True
        (row,) = await system.outbox()
        assert row.message_id == "C1:17.4"
        assert (row.status, row.attempts, row.sent_at, row.claimed_by) == ("sent", 1, at, None)
        clock.advance(1_000)
        assert await system.claim_outbox("w1", until=clock.after(30)) == []

    @pytest.mark.req("S3-22")
    async def test_a_retry_waits_for_its_time(self, system: Transaction, clock: ManualClock) -> None:
        """Stores the result of a claimed row and counts the attempt."""
        await waiting(system, clock, "o1")
        for attempt, delay in enumerate((5, 10, 20), start=1):
            await system.claim_outbox("w1", until=clock.after(30))
            retry_at = clock.after(delay)
            assert await system.settle_outbox(
                "o1", "w1", status="waiting", next_attempt_at=retry_at, error=f"error {attempt}"
            )
            (row,) = await system.outbox()
            assert (row.status, row.attempts, row.next_attempt_at) == ("waiting", attempt, retry_at)
            assert (row.last_error, row.claimed_by, row.sent_at) == (f"error {attempt}", None, None)
            clock.advance(delay - 1)
            assert await system.claim_outbox("w1", until=clock.after(30)) == []
            clock.advance(1)
        assert ids(await system.claim_outbox("w1", until=clock.after(30))) == ["o1"]

    @pytest.mark.req("S3-22", "S3-24")
    async def test_one_recipients_rows_are_delivered_in_order(self, system: Transaction, clock: ManualClock) -> None:
        """Rows for one recipient are delivered in order: a row is due only when no earlier one for its recipient is
        waiting or claimed."""
        for id, recipient in (("a1", "A"), ("a2", "A"), ("b1", "B"), ("a3", "A")):
            await system.enqueue("slack", recipient, clean_text("x"), turn_id=None, owner_id="alice", id=id)
        await system.enqueue("telegram", "A", clean_text("x"), turn_id=None, owner_id="alice", id="t1")
        assert ids(await system.claim_outbox("w1", until=clock.after(30))) == ["a1", "b1", "t1"]
        assert await system.claim_outbox("w2", until=clock.after(30)) == []
        await system.settle_outbox("a1", "w1", status="waiting", next_attempt_at=clock.after(5), error="503")
        assert await system.claim_outbox("w2", until=clock.after(30)) == []
        clock.advance(5)
        assert ids(await system.claim_outbox("w2", until=clock.after(30))) == ["a1"]
        await system.settle_outbox("a1", "w2", status="dead", error="410")
        assert ids(await system.claim_outbox("w2", until=clock.after(30))) == ["a2"]
        await system.settle_outbox("a2", "w2", status="sent")
        assert ids(await system.claim_outbox("w2", until=clock.after(30))) == ["a3"]

    @pytest.mark.req("S3-22")
    async def test_a_claim_taken_over_is_marked_and_counted(self, system: Transaction, clock: ManualClock) -> None:
        """A claim that is taken over counts as an attempt, and its `last_error` says that the result is unknown."""
        await waiting(system, clock, "o1")
        (first,) = await system.claim_outbox("w1", until=clock.after(30))
        assert (first.attempts, first.last_error) == (0, None)
        clock.advance(30)
        (second,) = await system.claim_outbox("w2", until=clock.after(30))
        assert second.attempts == 1
        assert second.last_error is not None
        assert second.last_error.startswith("ambiguous")

    @pytest.mark.req("S3-22")
    async def test_claims_of_workers_that_are_gone_are_due_at_once(
        self, system: Transaction, clock: ManualClock
    ) -> None:
        """Claims of the workers in `gone` are due at once. The rows in `holding` are not claimed: this worker has
        them. The workers that have claims, sorted."""
        await waiting(system, clock, "o1", "o2", "o3", "o4")
        await system.claim_outbox("dead", until=clock.after(30), limit=1)
        await system.claim_outbox("alive", until=clock.after(30), limit=1)
        assert await system.outbox_workers() == ["alive", "dead"]
        assert ids(await system.claim_outbox("w", until=clock.after(30), limit=1, gone=["nobody"])) == ["o3"]
        (taken,) = await system.claim_outbox("w", until=clock.after(30), gone=["dead"], holding=["o3", "o4"])
        assert (taken.id, taken.claimed_by, taken.attempts, taken.is_ambiguous) == ("o1", "w", 1, True)
        again = await system.claim_outbox("w", until=clock.after(30), gone=["w"], holding=["o1"])
        assert ids(again) == ["o3", "o4"]
        clock.advance(31)
        assert ids(await system.claim_outbox("w", until=clock.after(30), holding=["o1", "o3", "o4"])) == ["o2"]

    async def test_only_the_system_scope_claims(
        self, alice: Transaction, system: Transaction, clock: ManualClock
    ) -> None:
        """System scope."""
        await waiting(system, clock, "o1")
        with pytest.raises(RoleRefused):
            await alice.claim_outbox("w1", until=clock.after(30))
        with pytest.raises(RoleRefused):
            await alice.outbox_workers()

    async def test_another_tenants_rows_are_never_claimed(
        self, system: Transaction, other_tenant: Transaction, clock: ManualClock
    ) -> None:
        """Rows of the tenant that are due"""
        await other_tenant.enqueue("slack", "C1", clean_text("x"), turn_id=None, owner_id="alice", id="o1")
        assert await system.claim_outbox("w1", until=clock.after(30)) == []


class TestReporting:
    async def test_a_row_is_what_the_platform_says_later(self, system: Transaction, clock: ManualClock) -> None:
        """Stores a later report of the platform: the row changes from status `was` to `status`. False if its status is
        not `was`."""
        await waiting(system, clock, "o1")
        assert await system.report_outbox("o1", was="waiting", status="sent") is False
        await system.claim_outbox("w1", until=clock.after(30))
        await system.settle_outbox("o1", "w1", status="waiting", next_attempt_at=clock.after(5), error="ambiguous")
        at = clock.advance()
        assert await system.report_outbox("o1", was="waiting", status="sent") is True
        (row,) = await system.outbox()
        assert (row.status, row.attempts, row.sent_at, row.last_error) == ("sent", 1, at, None)
        assert await system.report_outbox("o1", was="waiting", status="sent") is False
        assert await system.report_outbox("o1", was="sent", status="window_closed", error="131047") is True
        (row,) = await system.outbox()
        assert (row.status, row.sent_at, row.last_error) == ("window_closed", None, "131047")
        assert await system.report_outbox("nowhere", was="sent", status="dead") is False

    async def test_only_the_system_scope_hears_reports(self, alice: Transaction) -> None:
        """System scope."""
        with pytest.raises(RoleRefused):
            await alice.report_outbox("o1", was="sent", status="dead")


class TestRequeueing:
    @pytest.mark.req("S3-22")
    async def test_a_dead_row_waits_again(self, system: Transaction, clock: ManualClock) -> None:
        """Makes a dead or window-closed row wait again, with its attempts reset, in its old place."""
        await waiting(system, clock, "o1")
        await system.claim_outbox("w1", until=clock.after(30))
        await system.settle_outbox("o1", "w1", status="dead", error="410")
        assert await system.claim_outbox("w1", until=clock.after(30)) == []
        at = clock.advance(100)
        row = await system.requeue("o1")
        assert (row.status, row.attempts, row.next_attempt_at, row.queued_at) == ("waiting", 0, at, at)
        assert ids(await system.claim_outbox("w1", until=clock.after(30))) == ["o1"]

    @pytest.mark.parametrize("status", ["waiting", "claimed", "sent"])
    async def test_only_an_undelivered_row_is_requeued(
        self, system: Transaction, clock: ManualClock, status: OutboxStatus
    ) -> None:
        """NotFound; Conflict if it has another status."""
        with pytest.raises(NotFound, match="nowhere"):
            await system.requeue("nowhere")
        await waiting(system, clock, "o1")
        if status != "waiting":
            await system.claim_outbox("w1", until=clock.after(30))
        if status == "sent":
            await system.settle_outbox("o1", "w1", status=status)
        (row,) = await system.outbox()
        assert row.status == status
        with pytest.raises(Conflict, match=f"is {status}: only a dead or window-closed one"):
            await system.requeue("o1")
        assert await system.requeue_all(["dead", "window_closed"]) == 0
        assert await system.outbox() == [row]

    @pytest.mark.req("S3-22", "H-05")
    async def test_undelivered_rows_are_requeued_together_in_their_order(
        self, system: Transaction, other_tenant: Transaction, clock: ManualClock
    ) -> None:
        """Requeues every row with one of these statuses, for this platform and recipient, enqueued at or after `since`.
        How many."""
        await other_tenant.enqueue("slack", "A", clean_text("x"), turn_id=None, owner_id="alice", id="theirs")
        since = clock.now()
        for id in ("s1", "s2", "w1", "later"):
            await undelivered(system, clock, id, "dead" if id[0] == "s" else "window_closed")
            since = clock.now() if id == "w1" else since
        assert await system.requeue_all(["dead"], platform="telegram") == 0
        assert await system.requeue_all(["dead"], since=since) == 0
        assert await system.requeue_all(["sent", "waiting"]) == 0
        assert await system.requeue_all(["window_closed"], platform="whatsapp", recipient="P-w1") == 1
        assert await system.requeue_all(["dead", "window_closed"], since=since) == 1
        at = clock.advance(7)
        assert await system.requeue_all(["dead", "window_closed"]) == 2
        rows = await system.claim_outbox("w1", until=clock.after(30))
        assert ids(rows) == ["s1", "s2", "w1", "later"]
        assert {row.queued_at for row in rows[:2]} == {at}
        assert [row.queued_at - row.created_at for row in await other_tenant.outbox()] == [dt.timedelta()]

    @pytest.mark.req("H-05")
    async def test_a_user_requeues_only_their_own_rows(
        self, system: Transaction, alice: Transaction, bob: Transaction, clock: ManualClock
    ) -> None:
        """The system scope requeues the tenant's rows, a user their own."""
        await undelivered(system, clock, "o1", "window_closed")
        assert await bob.requeue_all(["window_closed"]) == 0
        assert await alice.requeue_all(["window_closed"]) == 1

    @pytest.mark.req("S3-22")
    async def test_what_is_not_delivered_is_counted(
        self, system: Transaction, alice: Transaction, clock: ManualClock
    ) -> None:
        """What is not delivered, by platform and status, sorted by both: how many rows, since when, and the error of
        the oldest row that has one."""
        assert await system.outbox_backlog() == []
        began = clock.now()
        await undelivered(system, clock, "s1", "dead")
        second = clock.now()
        await undelivered(system, clock, "s2", "dead")
        await undelivered(system, clock, "s3", "sent")
        third = clock.now()
        await undelivered(system, clock, "w1", "window_closed")
        at = clock.now()
        await system.enqueue("matrix", "!room", clean_text("x"), turn_id=None, owner_id="alice")
        await system.requeue("s1")
        assert await system.outbox_backlog() == [
            OutboxBacklog("matrix", "waiting", 1, at, None),
            OutboxBacklog("slack", "dead", 1, second, "error of s2"),
            OutboxBacklog("slack", "waiting", 1, began, "error of s1"),
            OutboxBacklog("whatsapp", "window_closed", 1, third, "error of w1"),
        ]
        with pytest.raises(RoleRefused):
            await alice.outbox_backlog()
        assert ids(await system.outbox(platform="slack")) == ["s3", "s2", "s1"]
        assert ids(await system.outbox(platform="slack", status="dead")) == ["s2"]

    async def test_a_row_is_found_by_its_id(
        self, system: Transaction, alice: Transaction, bob: Transaction, clock: ManualClock
    ) -> None:
        """The system scope sees the tenant's rows, a user their own"""
        (row,) = await waiting(system, clock, "o1")
        assert await system.outbox_row("o1") == await alice.outbox_row("o1") == row
        assert await bob.outbox_row("o1") is None
        assert await system.outbox_row("o2") is None
