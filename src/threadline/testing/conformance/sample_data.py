"""Sample data: a user with a row in each table, for tests of isolation and purges.

Every text in it contains the word SECRET, so that any leak can be found.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec

from threadline.core.access import NewToken
from threadline.core.channels import Agent, User
from threadline.core.events import Usage
from threadline.core.hidden_parts import HiddenPart
from threadline.core.sign_ins import NewSignIn
from threadline.core.threads import NewThread, Scope, system_scope
from threadline.core.turns import Chunk, TurnEnd
from threadline.core.usage import Charge, UsageQuery
from threadline.core.values import ValueAddress, ValueWrite
from threadline.ports import Store, Transaction
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.message_builders import add_turn, clean_json, clean_text, exchange

FIRST_DAY, LAST_DAY = dt.date(2025, 1, 1), dt.date(2027, 1, 1)
SECRET = "xyzzy"


class Ids(msgspec.Struct, frozen=True):
    """The ids in one set of sample data."""

    user_id: str
    thread_id: str
    state_key: str
    timeline_id: str
    message_id: str
    key: str
    saved_name: str
    place: str
    agent_id: str
    platform_user_id: str
    code_hash: bytes
    inbox_key: str
    outbox_id: str
    turn_id: str
    turn_key: str
    running_id: str
    call_id: str
    token_id: str
    token_hash: bytes
    sign_in_id: str
    sign_in_hash: bytes
    acted_on: str
    namespace: str
    value_key: str


def names_for(user_id: str, world: str | None = None) -> Ids:
    """The ids of a user's sample data, except the timeline's, which the store generates."""
    named: dict[str, Any] = {field: f"{world or user_id}-{field}" for field in Ids.__struct_fields__}
    hashes = {field: named[field].encode() for field in ("code_hash", "token_hash", "sign_in_hash")}
    return Ids(**named | hashes | {"user_id": user_id})


UNKNOWN = names_for("unknown")


async def populate(store: Store, scope: Scope, clock: ManualClock, world: str | None = None) -> Ids:
    """Creates one row of every kind for the scope's user; with another `world`, a second set."""
    ids = names_for(scope.user_id, world)
    tx, system = store.scoped(scope), store.scoped(system_scope(scope.tenant_id))
    timeline_id = await _talk(tx, ids)
    await _settle_in(tx, system, ids, clock)
    await _take_turns(tx, ids, clock)
    await _administer(system, ids, clock)
    return msgspec.structs.replace(ids, timeline_id=timeline_id)


async def _talk(tx: Transaction, ids: Ids) -> str:
    new = NewThread(ids.thread_id, ids.state_key, f"{SECRET} title", system_prompt=f"{SECRET} prompt")
    thread = await tx.create_thread(new)
    said = exchange(f"{SECRET} asked", f"{SECRET} answered", f"{SECRET} asked again")
    said[0] = msgspec.structs.replace(said[0], id=ids.message_id)
    await tx.append(ids.thread_id, said, key=ids.key)
    await tx.put_summary(ids.thread_id, 1, clean_text(f"{SECRET} summary"))
    await tx.save(ids.thread_id, ids.saved_name)
    await tx.branch(ids.thread_id, NewThread(id=f"{ids.thread_id}-branch"), at=1)
    await tx.move(ids.thread_id, 1)
    await tx.move(ids.thread_id, 2, timeline_id=thread.timeline_id)
    await tx.hide_parts(ids.thread_id, [HiddenPart(thread.timeline_id, 2, part=9)], turn_id=ids.turn_id)
    kept = f"{SECRET} value".encode()
    for address in (("thread", ids.thread_id), ("user", tx.scope.user_id)):
        await tx.write_values(
            [ValueWrite(ValueAddress(*address, ids.namespace, ids.value_key), kept, len(kept), expires_us=2**52)]
        )
    return thread.timeline_id


async def _settle_in(tx: Transaction, system: Transaction, ids: Ids, clock: ManualClock) -> None:
    await system.put_user(User(ids.user_id, f"{SECRET} name"))
    await system.put_agent(Agent(ids.agent_id, "Agent", "rehearsal", system_prompt="Be brief."))
    await tx.bind("matrix", ids.place, ids.thread_id, label=f"{SECRET} label", metadata=clean_json({"a": SECRET}))
    await tx.set_context(ids.agent_id, clean_text(f"{SECRET} context"))
    await tx.put_link("slack", ids.platform_user_id, ids.user_id, "verified")
    await tx.put_link_code(ids.code_hash, "slack", clock.after(600))
    await system.put_credentials("slack", "key-1", f"{SECRET} sealed".encode())
    await system.claim_inbox("slack", ids.inbox_key, fingerprint=f"{SECRET} print", owner_id=ids.user_id)
    payload = clean_text(f"{SECRET} payload")
    await system.enqueue("slack", "C1", payload, turn_id=None, owner_id=ids.user_id, id=ids.outbox_id)
    for row in await system.claim_outbox("w1", until=clock.after(30)):
        await system.settle_outbox(row.id, "w1", status="dead", error=f"{SECRET} error")


async def _take_turns(tx: Transaction, ids: Ids, clock: ManualClock) -> None:
    await add_turn(tx, ids.turn_id, ids.thread_id, "web", key=ids.turn_key)
    turn = await tx.lease_turn(ids.turn_id, "w1", seconds=30)
    assert turn is not None
    charge = Charge(ids.agent_id, f"{SECRET} provider", f"{SECRET} model", Usage(3, 4), 5)
    end = TurnEnd("executed", error=f"{SECRET} error", usage={"a": SECRET}, charge=charge)
    await tx.finish_turn(ids.turn_id, turn.fence, end)
    await add_turn(tx, ids.running_id, ids.thread_id, "web")
    running = await tx.lease_turn(ids.running_id, "w1", seconds=3_000)
    assert running is not None
    await tx.put_chunks(ids.running_id, running.fence, [Chunk(1, f'{{"text":"{SECRET}"}}'.encode())])
    tool_input = clean_json({"word": SECRET})
    await tx.start_tool_run(ids.running_id, running.fence, ids.call_id, "tool", tool_input, repeatable=True)


async def _administer(system: Transaction, ids: Ids, clock: ManualClock) -> None:
    await system.create_token(NewToken(ids.token_id, ids.token_hash, ids.user_id, f"{SECRET} token", "member"))
    await system.note_use(ids.token_id, clock.now())
    link = NewSignIn(ids.sign_in_id, ids.sign_in_hash, ids.user_id, "member", "link", clock.after(2**30), is_open=False)
    await system.add_sign_in(link)
    await system.take_permits(ids.token_id, window=clock.now(), wanted=1, limit=10)
    await system.record_act("token.created", ids.acted_on, clean_json({"name": SECRET}), actor_id=ids.user_id)


async def view(store: Store, scope: Scope, ids: Ids) -> dict[str, Any]:
    """Everything that the user and the system scope can read of one set of sample data."""
    tx, system = store.scoped(scope), store.scoped(system_scope(scope.tenant_id))
    threads = [ids.thread_id, f"{ids.thread_id}-branch"]
    return {
        "threads": [await tx.thread(thread_id) for thread_id in threads],
        "listed": [thread for thread in (await tx.threads()).items if thread.id in threads],
        "messages": [await tx.messages(thread_id) for thread_id in threads],
        "timelines": [await tx.timelines(thread_id) for thread_id in threads],
        "old timeline": await tx.messages(ids.thread_id, timeline_id=ids.timeline_id),
        "summaries": [await tx.summary(thread_id) for thread_id in threads],
        "search_threads": sorted(
            each.thread_id for each in await tx.search_threads(SECRET) if each.thread_id in threads
        ),
        "search": sorted(hit.message_id for hit in await tx.search(SECRET) if hit.thread_id in threads),
        "values": await tx.read_values("thread", ids.thread_id, ids.namespace, [ids.value_key]),
        "user's values": await tx.list_values("user", scope.user_id, ids.namespace, with_data=True),
        "hidden": await tx.is_turn_hidden(ids.turn_id),
        "saved": await tx.saved_point(ids.saved_name),
        "binding": await tx.binding("matrix", ids.place),
        "context": await tx.context(ids.agent_id),
        "agent": await tx.agent(ids.agent_id),
        "user": await system.user(ids.user_id),
        "link": await tx.link("slack", ids.platform_user_id),
        "inbox": await tx.inbox_row("slack", ids.inbox_key),
        "outbox": [row for row in await tx.outbox() if row.id == ids.outbox_id],
        "turns": await tx.turns(ids.thread_id),
        "usage": await tx.usage(UsageQuery(first_day=FIRST_DAY, last_day=LAST_DAY, agent_id=ids.agent_id)),
        "stop": await tx.is_stop_requested(ids.running_id),
        "chunks": await tx.chunks(ids.running_id),
        "tools": await tx.tool_runs(ids.running_id),
        "sign-in": [each for each in await system.sign_ins(ids.user_id) if each.id == ids.sign_in_id],
        "token": await system.token_by_hash(ids.token_hash),
        "acts": [act for act in await system.acts() if act.target == ids.acted_on],
    }
