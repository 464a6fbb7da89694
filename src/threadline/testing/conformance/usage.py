"""Counts of what was used: by whom they can be read, how they are grouped, what counts."""

from __future__ import annotations

import datetime as dt

import msgspec
import pytest

from threadline.core.events import Usage
from threadline.core.threads import Scope
from threadline.core.turns import Turn, TurnEnd
from threadline.core.usage import USAGE_GROUPS, Charge, UsageGroup, UsageQuery, UsageRow
from threadline.ports import Store, Transaction
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.message_builders import add_turn, create_thread_with

GPT = Charge("helper", "openai", "gpt", Usage(10, 5, 4, 2), 1_500)
LLAMA = Charge("helper", "openai", "llama", Usage(100, 50))


def query(clock: ManualClock, *by: UsageGroup, user_id: str | None = None, agent_id: str | None = None) -> UsageQuery:
    today = clock.now().date()
    return UsageQuery(by=by, first_day=today - dt.timedelta(30), last_day=today, user_id=user_id, agent_id=agent_id)


def counts(rows: list[UsageRow]) -> list[tuple[int, int, int]]:
    return [(row.turns, row.input_tokens, row.output_tokens) for row in rows]


async def end_turn(tx: Transaction, clock: ManualClock, turn_id: str, charge: Charge | None) -> Turn:
    thread = await create_thread_with(tx)
    await add_turn(tx, turn_id, thread.id)
    leased = await tx.lease_turn(turn_id, "w1", seconds=30)
    assert leased is not None
    ended = await tx.finish_turn(turn_id, leased.fence, TurnEnd("executed", charge=charge))
    assert isinstance(ended, Turn)
    return ended


class TestUsage:
    @pytest.mark.req("C-06", "C-07")
    async def test_a_turns_end_counts_its_charge_and_records_provider_and_model(
        self, alice: Transaction, clock: ManualClock
    ) -> None:
        """`finish_turn` counts the charge of a turn in its own commit."""
        ended = [await end_turn(alice, clock, f"t{n}", charge) for n, charge in enumerate((GPT, GPT, LLAMA, None))]
        assert [(turn.provider, turn.model) for turn in ended] == [
            ("openai", "gpt"),
            ("openai", "gpt"),
            ("openai", "llama"),
            (None, None),
        ]
        assert await alice.turn("t0") == ended[0]
        (gpt, llama) = await alice.usage(query(clock, *USAGE_GROUPS))
        assert gpt == UsageRow(
            day=clock.now().date(),
            user_id="alice",
            agent_id="helper",
            provider="openai",
            model="gpt",
            kind="turn",
            turns=2,
            input_tokens=20,
            output_tokens=10,
            cached_tokens=8,
            reasoning_tokens=4,
            cost=0.000003,
        )
        assert (llama.model, llama.turns, llama.cost) == ("llama", 1, None)

    async def test_a_charge_that_its_caller_counts_is_only_stored_with_the_turn(
        self, alice: Transaction, clock: ManualClock
    ) -> None:
        thread = await create_thread_with(alice)
        await add_turn(alice, "t", thread.id)
        leased = await alice.lease_turn("t", "w1", seconds=30)
        assert leased is not None
        ended = await alice.finish_turn("t", leased.fence, TurnEnd("executed", charge=GPT, is_counted=False))
        assert isinstance(ended, Turn)
        assert (ended.provider, ended.model) == ("openai", "gpt")
        assert await alice.usage(query(clock)) == []

    async def test_a_turn_that_is_refused_counts_nothing(self, alice: Transaction, clock: ManualClock) -> None:
        turn = await end_turn(alice, clock, "t", GPT)
        await alice.finish_turn(turn.id, turn.fence, TurnEnd("executed", charge=GPT))
        await alice.finish_turn(turn.id, turn.fence - 1, TurnEnd("executed", charge=GPT))
        assert counts(await alice.usage(query(clock))) == [(1, 10, 5)]

    @pytest.mark.req("C-07")
    async def test_usage_is_grouped_by_day_user_agent_and_model(
        self, store: Store, tenant_id: str, clock: ManualClock
    ) -> None:
        """Adds what was used outside a stored turn to the count of the present day (UTC), for the scope's user.
        Only the kind `turn` is counted as a turn.

        One row for each group, ordered by day, user, agent, provider, model and kind; no rows if nothing was used, also
        without groups. Groups by model have the provider as well."""
        alice, bob = (store.scoped(Scope(tenant_id, user)) for user in ("alice", "bob"))
        admin = store.scoped(Scope(tenant_id, "root", "admin"))
        assert await admin.usage(query(clock)) == []
        await bob.count_usage(LLAMA)
        await alice.count_usage(GPT)
        clock.advance(86_400)
        await alice.count_usage(Charge("other", None, None, Usage(1, 1), 500))
        assert counts(await admin.usage(query(clock))) == [(3, 111, 56)]
        (total,) = await admin.usage(query(clock))
        assert (total.day, total.user_id, total.agent_id, total.provider, total.model) == (None,) * 5
        assert total.cost == 0.000002
        today = clock.now().date()
        days = await admin.usage(query(clock, "day"))
        assert [(row.day, row.turns) for row in days] == [(today - dt.timedelta(1), 2), (today, 1)]
        users = await admin.usage(query(clock, "user"))
        assert [(row.user_id, row.turns) for row in users] == [("alice", 2), ("bob", 1)]
        models = await admin.usage(query(clock, "model"))
        assert [(row.provider, row.model) for row in models] == [(None, None), ("openai", "gpt"), ("openai", "llama")]
        both = await admin.usage(query(clock, "agent", "user"))
        assert [(row.user_id, row.agent_id) for row in both] == [
            ("alice", "helper"), ("alice", "other"), ("bob", "helper"),
        ]  # fmt: skip
        assert counts(await admin.usage(query(clock, agent_id="helper", user_id="alice"))) == [(1, 10, 5)]
        await bob.count_usage(msgspec.structs.replace(LLAMA, kind="summary"))
        kinds = await bob.usage(query(clock, "kind"))
        assert [(row.kind, row.turns, row.input_tokens) for row in kinds] == [("summary", 0, 100), ("turn", 1, 100)]
        only_today = UsageQuery(first_day=today, last_day=today, agent_id="other")
        assert counts(await admin.usage(only_today)) == [(1, 1, 1)]

    @pytest.mark.req("C-07")
    async def test_administrators_see_the_tenant_and_others_see_themselves(
        self, store: Store, tenant_id: str, other_tenant: Transaction, clock: ManualClock
    ) -> None:
        """Admin and system scopes see the tenant's usage, a user sees their own."""
        for user in ("alice", "bob"):
            await store.scoped(Scope(tenant_id, user)).count_usage(GPT)
        for role, turns in (("viewer", 1), ("member", 1), ("admin", 2), ("system", 2)):
            tx = store.scoped(Scope(tenant_id, "alice", role))  # type: ignore[arg-type]
            assert [row.turns for row in await tx.usage(query(clock))] == [turns]
            found = await tx.usage(query(clock, user_id="bob"))
            assert [row.turns for row in found] == ([1] if turns == 2 else [])
        assert await other_tenant.usage(query(clock)) == []
        assert await other_tenant.usage(query(clock, user_id="alice")) == []

    async def test_usage_goes_with_its_user_and_stays_with_a_purged_thread(
        self, store: Store, alice: Transaction, system: Transaction, clock: ManualClock
    ) -> None:
        """Removed with its user or tenant, not with a thread."""
        turn = await end_turn(alice, clock, "t", GPT)
        await alice.purge_thread(turn.thread_id)
        assert counts(await alice.usage(query(clock))) == [(1, 10, 5)]
        await system.purge_user(alice.scope.user_id)
        assert await system.usage(query(clock)) == []

    async def test_a_request_may_name_its_model(self, alice: Transaction, clock: ManualClock) -> None:
        thread = await create_thread_with(alice)
        made = await add_turn(alice, "t", thread.id, model="gpt")
        assert (made.model, made.provider) == ("gpt", None)
        assert (await alice.turns(thread.id))[0].model == "gpt"
