"""Inbox and outbox: each arrival is claimed once, each delivery is one worker's at a time, and time is the store's
clock's."""

from __future__ import annotations

import asyncio

import pytest

from threadline.core.channels import OutboxRow, OutboxStatus
from threadline.core.errors import Conflict, DuplicateId, NotFound, RoleRefused
from threadline.core.threads import NewThread
from threadline.ports import Transaction
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.message_builders import add_turn, clean_text


async def waiting(system: Transaction, clock: ManualClock, *ids: str) -> list[OutboxRow]:
    """Rows for alice, a second apart, all due."""
    rows = []
    for id in ids:
        rows.append(
            await system.enqueue("slack", f"C-{id}", clean_text(f"to {id}"), turn_id=None, owner_id="alice", id=id)
        )
        clock.advance()
    return rows


def ids(rows: list[OutboxRow]) -> list[str]:
    return [row.id for row in rows]


class TestInbox:
    async def test_the_first_claim_gets_the_row(self, system: Transaction, clock: ManualClock) -> None:
        """Claims the arrival with this key: the new row, with status `claimed`; None if it was claimed before.
        `reply_to` is the place to which the answer is sent."""
        row = await system.claim_inbox(
            "slack", "Ev1", fingerprint="f", correlation_id="c", reply_to="C1", owner_id="alice"
        )
        assert row is not None
        assert (row.platform, row.key, row.status, row.decision) == ("slack", "Ev1", "claimed", None)
        assert (row.fingerprint, row.correlation_id, row.reply_to, row.owner_id) == ("f", "c", "C1", "alice")
        assert row.created_at == row.updated_at == clock.now()
        assert await system.inbox_row("slack", "Ev1") == row
        assert await system.claim_inbox("slack", "Ev1", fingerprint="g") is None
        assert await system.inbox_row("slack", "Ev1") == row
        assert await system.inbox_row("slack", "Ev2") is None

    @pytest.mark.req("S3-18")
    async def test_a_key_is_the_platforms_and_the_tenants(self, system: Transaction, other_tenant: Transaction) -> None:
        """Claims what arrived under this key"""
        assert await system.claim_inbox("slack", "1") is not None
        assert await system.claim_inbox("telegram", "1") is not None
        assert await other_tenant.claim_inbox("slack", "1", owner_id="alice") is not None

    @pytest.mark.req("S3-17")
    async def test_of_a_hundred_claims_at_once_one_gets_the_row(self, system: Transaction) -> None:
        """Claims are exclusive: only one of any number of workers gets a row."""
        claims = await asyncio.gather(*(system.claim_inbox("slack", "Ev1") for _ in range(100)))
        assert sum(claim is not None for claim in claims) == 1

    async def test_what_came_of_it_is_recorded(self, system: Transaction, clock: ManualClock) -> None:
        await system.claim_inbox("slack", "Ev1", owner_id="alice")
        at = clock.advance()
        assert await system.settle_inbox("slack", "Ev1", status="done", decision="executed", turn_id="turn-1") is True
        row = await system.inbox_row("slack", "Ev1")
        assert row is not None
        assert (row.status, row.decision, row.turn_id, row.updated_at) == ("done", "executed", "turn-1", at)
        assert await system.settle_inbox("slack", "Ev2", status="done") is False
        assert await system.claim_inbox("slack", "Ev1") is None

    async def test_a_row_is_its_owners_and_the_system_scopes(
        self, system: Transaction, alice: Transaction, bob: Transaction
    ) -> None:
        """The system scope sees the tenant's rows, a user their own"""
        row = await system.claim_inbox("slack", "Ev1", owner_id="alice")
        await system.claim_inbox("slack", "Ev2")
        assert await alice.inbox_row("slack", "Ev1") == row
        assert [await bob.inbox_row("slack", key) for key in ("Ev1", "Ev2")] == [None, None]
        assert await bob.settle_inbox("slack", "Ev1", status="stolen") is False

    async def test_only_the_system_scope_names_another_owner(self, system: Transaction, bob: Transaction) -> None:
        """only the system scope may name another owner (RoleRefused)"""
        with pytest.raises(RoleRefused):
            await bob.claim_inbox("slack", "Ev1", owner_id="alice")
        with pytest.raises(RoleRefused):
            await bob.enqueue("slack", "C1", clean_text("x"), turn_id=None, owner_id="alice")
        assert await system.inbox_row("slack", "Ev1") is None
        assert await system.outbox() == []

    @pytest.mark.req("S3-23")
    async def test_what_was_accepted_and_not_answered_is_found(
        self, system: Transaction, alice: Transaction, clock: ManualClock
    ) -> None:
        """Rows with status `accepted` whose turn has ended or does not exist, oldest first. System scope."""
        thread = await alice.create_thread(NewThread())
        for name in ("runs", "ended", "gone", "answered"):
            await system.claim_inbox("slack", name, owner_id="alice")
            status = "done" if name == "answered" else "accepted"
            await system.settle_inbox("slack", name, status=status, turn_id=f"turn-{name}")
            clock.advance()
        for name in ("ended", "runs"):
            await add_turn(alice, f"turn-{name}", thread.id, "slack")
        assert await alice.request_stop("turn-ended")
        assert [row.key for row in await system.unanswered()] == ["ended", "gone"]
        assert [row.key for row in await system.unanswered(limit=1)] == ["ended"]
        with pytest.raises(RoleRefused):
            await alice.unanswered()

    @pytest.mark.req("S3-25")
    async def test_what_is_settled_can_be_dropped(self, system: Transaction, clock: ManualClock) -> None:
        """Removes arrivals and deliveries from before `before`; those not answered or delivered stay. Returns how many
        rows. Histories do not depend on them."""
        await system.claim_inbox("slack", "old", reply_to="C1", owner_id="alice")
        await system.claim_inbox("slack", "open")
        await system.settle_inbox("slack", "old", status="done", decision="executed")
        await waiting(system, clock, "sent", "dead", "kept")
        await system.claim_outbox("w", until=clock.after(30), limit=2)
        await system.settle_outbox("sent", "w", status="sent")
        await system.settle_outbox("dead", "w", status="dead")
        at = clock.advance(10)
        await system.claim_inbox("slack", "new")
        await system.settle_inbox("slack", "new", status="done")
        assert await system.drop_settled(before=at) == 2
        assert [await system.inbox_row("slack", key) is None for key in ("old", "open", "new")] == [True, False, False]
        assert ids(await system.outbox()) == ["kept", "dead"]

    async def test_only_the_system_scope_drops(self, alice: Transaction, clock: ManualClock) -> None:
        """System scope."""
        with pytest.raises(RoleRefused):
            await alice.drop_settled(before=clock.now())


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
        """Stores the result of a claimed row and counts the attempt."""
        await waiting(system, clock, "o1")
        await system.claim_outbox("w1", until=clock.after(30))
        at = clock.advance()
        assert await system.settle_outbox("o1", "w1", status="sent") is True
        (row,) = await system.outbox()
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

    async def test_only_the_system_scope_claims(
        self, alice: Transaction, system: Transaction, clock: ManualClock
    ) -> None:
        """System scope."""
        await waiting(system, clock, "o1")
        with pytest.raises(RoleRefused):
            await alice.claim_outbox("w1", until=clock.after(30))

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
        """Makes a dead row wait again, with its attempts reset."""
        await waiting(system, clock, "o1")
        await system.claim_outbox("w1", until=clock.after(30))
        await system.settle_outbox("o1", "w1", status="dead", error="410")
        assert await system.claim_outbox("w1", until=clock.after(30)) == []
        at = clock.advance(100)
        row = await system.requeue("o1")
        assert (row.status, row.attempts, row.next_attempt_at) == ("waiting", 0, at)
        assert ids(await system.claim_outbox("w1", until=clock.after(30))) == ["o1"]

    @pytest.mark.parametrize("status", ["waiting", "claimed", "sent", "window_closed"])
    async def test_only_a_dead_row_is_requeued(
        self, system: Transaction, clock: ManualClock, status: OutboxStatus
    ) -> None:
        """NotFound; Conflict if it is not dead."""
        with pytest.raises(NotFound, match="nowhere"):
            await system.requeue("nowhere")
        await waiting(system, clock, "o1")
        if status != "waiting":
            await system.claim_outbox("w1", until=clock.after(30))
        if status in ("sent", "window_closed"):
            await system.settle_outbox("o1", "w1", status=status)
        (row,) = await system.outbox()
        assert row.status == status
        with pytest.raises(Conflict):
            await system.requeue("o1")
        assert await system.outbox() == [row]
