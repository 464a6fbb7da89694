"""A database copied into another, of either kind, holds the same; broken off, the copy is simply made again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.conftest import open_database, postgres_database
from threadline.bootstrap import Threadline
from threadline.core.access import NewToken
from threadline.core.channels import Agent, User
from threadline.core.errors import Conflict, RoleRefused
from threadline.core.hidden_parts import HiddenPart
from threadline.core.messages import NewMessage, assistant
from threadline.core.parts import OtherPart, TextPart, tool_part
from threadline.core.portable import TABLES
from threadline.core.sealing import CleanText, Sealer
from threadline.core.sign_ins import NewSignIn
from threadline.core.threads import Scope, system_scope
from threadline.core.values import PIECE_BYTES, ValueAddress, ValueWrite
from threadline.ports import Store
from threadline.settings import Settings
from threadline.testing.clock import ManualClock
from threadline.threads.database_copy import copy_database

Pair: TypeAlias = tuple[Store, Store]


@pytest.fixture(params=["file to postgres", "postgres to file", "file to file"])
async def pair(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Pair]:
    kinds = request.param.split(" to ")
    addresses = [
        str(tmp_path / f"{place}.db") if kind == "file" else await postgres_database()
        for place, kind in zip(("source", "target"), kinds, strict=True)
    ]
    stores = [await open_database(address, clock=clock) for address in addresses]
    yield stores[0], stores[1]
    for store in stores:
        await store.close()


async def populate(store: Store, tenant_id: str, clock: ManualClock) -> None:
    """Something in every table, odd values and abandoned timelines included."""
    tl = Threadline(store, Settings(tenant=tenant_id, agent="rehearsal"), clock)
    for name in ("ada", "bob"):
        me = tl.as_user(name)
        tx = store.scoped(me.scope)
        thread = await me.create_thread(title=f"{name}'s", metadata={"n": 2**70, "é": "ö"}, system_prompt="Be kind.")
        odd = (
            TextPart("text"),
            tool_part("t", "c1", {"big": 2**64}, output=None),
            OtherPart("x-new", b'{"type":"x-new" }'),
        )
        await thread.append(NewMessage("user", odd, metadata={"a": [1]}), assistant("long " * 400), key="k1")
        await thread.save("begun", at=0)
        fork = await thread.branch(at=1, title="Fork")
        await fork.append("Only here")
        await thread.ask("calculate 1+1")
        await thread.undo()
        await thread.ask("what did I say first?", key=f"turn-{name}")
        clock.advance()
        purged = await me.create_thread()
        await purged.append("kept in the branch")
        await purged.branch(title="Outlives its source")
        await purged.purge()
        await (await me.create_thread(title="Archived")).update(archived=True)
        await (await me.create_thread(title="Deleted")).delete()
        await tx.put_summary(thread.id, 0, CleanText("A summary"))
        await tx.bind(
            "slack", f"C-{name}", thread.id, label="general", metadata=Sealer().json({"platform_chat_id": "x"})
        )
        await me.contexts.set("rehearsal", f"I am {name}")
        await tx.put_link_code(name.encode(), "slack", clock.after(60))
        kept = ValueAddress("thread", thread.id, "tests", "state")
        await tx.write_values([ValueWrite(kept, bytes(3 * PIECE_BYTES), 3 * PIECE_BYTES, "key-1", expires_us=2**52)])
        stored = await tx.thread(thread.id)
        assert stored is not None
        last = (await tx.messages(thread.id))[-1]
        await tx.hide_parts(thread.id, [HiddenPart(stored.timeline_id, last.seq, 0)])
        turn = (await tx.turns(thread.id))[0]
        await tx.enqueue("slack", "C1", CleanText("hello"), turn_id=turn.id, owner_id=name)
    system = store.scoped(system_scope(tenant_id))
    await system.put_agent(Agent(id="a1", name="A", provider="remote", settings={"url": "x"}, enabled=False))
    await system.put_user(User(id="ada", display_name="Ada", role="admin"))
    await system.put_link("slack", "U1", "ada", "verified")
    await system.claim_inbox("slack", "E1", fingerprint="f", correlation_id="c", reply_to="C1", owner_id="ada")
    await system.claim_inbox("slack", "E2")
    await system.put_credentials("slack", "key-1", b"\x00sealed")
    await system.create_token(NewToken("t1", b"h" * 32, "ada", "laptop", "viewer", clock.after(60), True))
    await system.note_use("t1", clock.now())
    await system.record_act("token.created", "t1", Sealer().json({"role": "viewer"}), actor_id="ada")
    await system.add_sign_in(NewSignIn("s1", b"s" * 32, "ada", "member", "link", clock.after(600), "Firefox"))
    await system.add_hold("hold-1", CleanText("a case"), "ada", user_id="bob")
    await tl.runner.close()


async def rows_of(store: Store, tenant_id: str) -> dict[str, set[object]]:
    tx = store.scoped(system_scope(tenant_id))
    return {table: {repr(row) for row in (await tx.read_rows(table, limit=10_000)).rows} for table in TABLES}


@pytest.mark.req("SX-05")
async def test_a_copy_has_the_same_rows_and_can_be_continued(pair: Pair, tenant_id: str, clock: ManualClock) -> None:
    source, target = pair
    await populate(source, tenant_id, clock)
    copied = await copy_database(source, target, tenants=[tenant_id])
    before, after = await rows_of(source, tenant_id), await rows_of(target, tenant_id)
    assert after == before
    empty = {table for table, rows in before.items() if not rows}
    assert empty == set(), "this test is to put something into every table"
    assert all(copied[table] >= len(before[table]) for table in TABLES)
    there, here = (Threadline(store, Settings(tenant=tenant_id), clock).as_user("ada") for store in pair)
    assert [t.title for t in (await here.threads()).items] == [t.title for t in (await there.threads()).items]
    assert {hit.message_id for hit in await here.search("kept branch")} == {
        hit.message_id for hit in await there.search("kept branch")
    }
    thread = await here.thread((await there.threads()).items[0].id)
    count = thread.info.message_count
    await thread.append("It continues")
    assert [m.seq for m in await thread.messages()] == list(range(count + 1))


@pytest.mark.req("SX-05")
async def test_a_repeat_of_an_append_is_known_in_the_copy(pair: Pair, tenant_id: str, clock: ManualClock) -> None:
    source, target = pair
    me = Threadline(source, Settings(tenant=tenant_id), clock).as_user("ada")
    thread = await me.create_thread()
    first = await thread.append("Once", key="k1")
    await copy_database(source, target, tenants=[tenant_id])
    copy = await Threadline(target, Settings(tenant=tenant_id), clock).as_user("ada").thread(thread.id)
    again = await copy.append("Once", key="k1")
    assert again.replayed
    assert again.message_ids == first.message_ids
    assert copy.info.message_count == 1


async def test_a_copy_that_broke_off_is_made_again(pair: Pair, tenant_id: str, clock: ManualClock) -> None:
    source, target = pair
    await populate(source, tenant_id, clock)

    def pull_the_plug(rows: int) -> None:
        if rows > 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await copy_database(source, target, tenants=[tenant_id], progress=pull_the_plug)
    await copy_database(source, target, tenants=[tenant_id])
    assert await rows_of(target, tenant_id) == await rows_of(source, tenant_id)


async def test_a_target_that_holds_something_else_is_told(pair: Pair, tenant_id: str, clock: ManualClock) -> None:
    source, target = pair
    for store in pair:
        me = Threadline(store, Settings(tenant=tenant_id), clock).as_user("ada")
        await (await me.create_thread()).append("Mine alone")
    with pytest.raises(Conflict, match="differ"):
        await copy_database(source, target, tenants=[tenant_id])


async def test_only_the_system_scope_copies(store: Store, tenant_id: str) -> None:
    for scope in (Scope(tenant_id, "ada"), Scope(tenant_id, "ada", "admin")):
        tx = store.scoped(scope)
        with pytest.raises(RoleRefused):
            await tx.read_rows("messages")
        with pytest.raises(RoleRefused):
            await tx.write_rows("messages", [])
