"""Probes: for every operation, a call with the ids of another user.

A probe is called twice, with unknown ids and with a victim's, and must get the same answer. Answers are compared, so a
probe leaves out what differs by chance. `in_tenant` names the error another user of the tenant gets where an id is
unique in the whole tenant. Reads come before writes, so that they see the victim's data unchanged.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeAlias

from threadline.core.access import NewToken
from threadline.core.channels import Agent, User
from threadline.core.portable import TABLES
from threadline.core.thread_filters import ThreadFilter
from threadline.core.threads import NewThread, ThreadChanges
from threadline.core.turns import Chunk
from threadline.core.usage import USAGE_GROUPS, Charge, UsageQuery
from threadline.ports import Transaction
from threadline.testing.conformance.message_builders import (
    clean_json,
    clean_text,
    create_thread_with,
    texts,
    user_message,
)
from threadline.testing.conformance.sample_data import FIRST_DAY, LAST_DAY, SECRET, UNKNOWN, Ids

Question: TypeAlias = Callable[[Transaction, Ids], Awaitable[Any]]

NOW = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
LATER = dt.datetime(2026, 1, 1, 13, tzinfo=dt.UTC)


class Probe(NamedTuple):
    verb: str
    ask: Question
    in_tenant: str | None = None


PROBES: list[Probe] = []


def probe(verb: str, *, in_tenant: str | None = None) -> Callable[[Question], Question]:
    def register(question: Question) -> Question:
        PROBES.append(Probe(verb, question, in_tenant))
        return question

    return register


def asks(verb: str, *fields: str, **given: Any) -> None:
    """A probe that passes the victim's ids on, by these names, and reports the answer."""

    async def ask(tx: Transaction, ids: Ids) -> Any:
        return await getattr(tx, verb)(*(getattr(ids, field) for field in fields), **given)

    PROBES.append(Probe(verb, ask))


def another_user(tx: Transaction, ids: Ids) -> str:
    """The victim's user id; for the same id in another tenant, an unknown one."""
    return UNKNOWN.user_id if ids.user_id == tx.scope.user_id else ids.user_id


asks("thread", "thread_id")
asks("thread", "thread_id", deleted=True)
asks("thread_by_key", "state_key")
asks("threads", archived=None)
asks("threads", archived=None, matching=ThreadFilter(surface="api", since_us=0))
asks("tenant_threads", archived=None)
asks("messages", "thread_id")
asks("last_turns", "thread_id", turns=3)
asks("message", "thread_id", "message_id")
asks("search", query=SECRET)
asks("search_threads", query=SECRET)
asks("timelines", "thread_id")
asks("saved_points")
asks("usage", query=UsageQuery(by=USAGE_GROUPS, first_day=FIRST_DAY, last_day=LAST_DAY))
asks("saved_point", "saved_name")
asks("bindings")
asks("context", "agent_id")
asks("contexts")
asks("agent", "agent_id")
asks("agents")
asks("user", "user_id")
asks("links")
asks("outbox")
asks("turn", "turn_id")
asks("turn", "running_id")
asks("turn_by_key", "turn_key")
asks("active_turns", "thread_id")
asks("turns", "thread_id")
asks("is_stop_requested", "running_id")
asks("due_turns", lease_seconds=30)
asks("lease_workers")
asks("lease_time")
asks("chunks", "running_id")
asks("tool_runs", "running_id")
asks("credentials", platform="slack")
asks("all_credentials")
asks("unanswered")
asks("inbox")
asks("summary", "thread_id")
asks("tokens")
asks("token_by_hash", "token_hash")
asks("acts")

asks("update_thread", "thread_id", changes=ThreadChanges(title="mine now", archived=True))
asks("append", "thread_id", messages=[user_message("forged", "forged")])
asks("branch", "thread_id", new=NewThread(id="stolen"))
asks("move", "thread_id", seq=0)
asks("undo", "thread_id")
asks("switch", "thread_id", "timeline_id")
asks("save", "thread_id", name="stolen")
asks("load", "thread_id", "saved_name")
asks("forget_saved_point", "saved_name")
asks("clear_context", "agent_id")
asks("delete_agent", "agent_id")
asks("requeue", "outbox_id")
asks("lease_turn", "running_id", worker="thief", seconds=30)
asks("claim_turns", worker="thief", seconds=30, within_seconds=1e6)
asks("renew_lease", "running_id", fence=1, worker="thief", seconds=30)
asks("requeue_all", statuses=["dead", "window_closed"])
asks("outbox_row", "outbox_id")
asks("outbox_backlog")
asks("outbox_workers")
asks("release_lease", "running_id", fence=1)
asks("request_stop", "running_id")
asks("put_chunks", "running_id", fence=1, chunks=[Chunk(2, b"{}")])
asks("drop_chunks", older_than=dt.timedelta(hours=-1))
asks("drop_settled", before=NOW)
asks("delete_credentials", platform="slack")
asks("put_credentials", platform="telegram", key_id="forged", sealed=b"forged")
asks("put_summary", "thread_id", seq=0, text=clean_text("forged"))
asks("claim_compaction", "thread_id", seconds=60)
asks("release_compaction", "thread_id")
asks("suggest_title", "thread_id", title=clean_text("forged"))
asks("revoke_token", "token_id")
asks("disable_user", "user_id")
asks("enable_user", "user_id")
asks("limit_tokens", "user_id", role="viewer")
asks("note_use", "token_id", used_at=LATER)
asks("drop_permits", before=NOW)
asks("delete_thread", "thread_id")
asks("restore_thread", "thread_id")
asks("holds")
asks("add_hold", "thread_id", reason=clean_text("forged"), created_by="mallory")
asks("remove_hold", "thread_id")
asks("overdue_threads", age=LATER, archived=LATER, deleted=LATER)
asks("drop_acts", before=LATER)
asks("purge_thread", "thread_id")


@probe("surfaces")
async def _(tx: Transaction, ids: Ids) -> Any:
    return await tx.surfaces([ids.thread_id])


@probe("users")
async def _(tx: Transaction, ids: Ids) -> Any:
    return sorted({user.id for user in await tx.users()} - {tx.scope.user_id})


@probe("binding")
async def _(tx: Transaction, ids: Ids) -> Any:
    return await tx.binding("matrix", ids.place)


@probe("bindings")
async def _(tx: Transaction, ids: Ids) -> Any:
    return await tx.bindings(surface="matrix", thread_id=ids.thread_id)


@probe("link")
async def _(tx: Transaction, ids: Ids) -> Any:
    return await tx.link("slack", ids.platform_user_id)


@probe("inbox_row")
async def _(tx: Transaction, ids: Ids) -> Any:
    return await tx.inbox_row("slack", ids.inbox_key)


@probe("messages")
async def _(tx: Transaction, ids: Ids) -> Any:
    own = await create_thread_with(tx, "mine")
    return texts(await tx.messages(own.id, timeline_id=ids.timeline_id))


@probe("bind")
async def _(tx: Transaction, ids: Ids) -> Any:
    await tx.bind("matrix", "outsiders-place", ids.thread_id)


@probe("create_thread", in_tenant="DuplicateId")
async def _(tx: Transaction, ids: Ids) -> Any:
    return (await tx.create_thread(NewThread(id=ids.thread_id))).id


@probe("create_thread")
async def _(tx: Transaction, ids: Ids) -> Any:
    return (await tx.create_thread(NewThread(state_key=ids.state_key))).state_key


@probe("append")
async def _(tx: Transaction, ids: Ids) -> Any:
    own = await create_thread_with(tx)
    done = await tx.append(own.id, [user_message("mine", ids.message_id)], key=ids.key)
    return done.replayed, done.message_ids


@probe("move")
async def _(tx: Transaction, ids: Ids) -> Any:
    own = await create_thread_with(tx, "mine")
    await tx.move(own.id, 0, timeline_id=ids.timeline_id)


@probe("switch")
async def _(tx: Transaction, ids: Ids) -> Any:
    own = await create_thread_with(tx, "mine")
    await tx.switch(own.id, ids.timeline_id)


@probe("load")
async def _(tx: Transaction, ids: Ids) -> Any:
    own = await create_thread_with(tx, "mine")
    await tx.load(own.id, ids.saved_name)


@probe("save")
async def _(tx: Transaction, ids: Ids) -> Any:
    own = await create_thread_with(tx, "mine")
    return (await tx.save(own.id, ids.saved_name)).name


@probe("unbind")
async def _(tx: Transaction, ids: Ids) -> Any:
    return await tx.unbind("matrix", ids.place)


@probe("bind", in_tenant="DuplicateId")
async def _(tx: Transaction, ids: Ids) -> Any:
    own = await tx.create_thread(NewThread())
    return (await tx.bind("matrix", ids.place, own.id)).place


@probe("set_context")
async def _(tx: Transaction, ids: Ids) -> Any:
    return (await tx.set_context(ids.agent_id, clean_text("mine"))).context


@probe("put_agent")
async def _(tx: Transaction, ids: Ids) -> Any:
    return (await tx.put_agent(Agent(ids.agent_id, "Mine", "rehearsal"))).name


@probe("put_user")
async def _(tx: Transaction, ids: Ids) -> Any:
    return (await tx.put_user(User(another_user(tx, ids), "Mallory", "admin"))).role


@probe("sender")
async def _(tx: Transaction, ids: Ids) -> Any:
    return await tx.sender("slack", ids.platform_user_id)


@probe("delete_link")
async def _(tx: Transaction, ids: Ids) -> Any:
    return await tx.delete_link("slack", ids.platform_user_id)


@probe("put_link", in_tenant="DuplicateId")
async def _(tx: Transaction, ids: Ids) -> Any:
    return (await tx.put_link("slack", ids.platform_user_id, tx.scope.user_id, "verified")).state


@probe("put_link")
async def _(tx: Transaction, ids: Ids) -> Any:
    return (await tx.put_link("telegram", "another-user", another_user(tx, ids), "verified")).state


@probe("redeem_link_code")
async def _(tx: Transaction, ids: Ids) -> Any:
    return await tx.redeem_link_code(ids.code_hash, "slack", NOW)


@probe("put_link_code", in_tenant="DuplicateId")
async def _(tx: Transaction, ids: Ids) -> Any:
    await tx.put_link_code(ids.code_hash, "slack", LATER)


@probe("settle_inbox")
async def _(tx: Transaction, ids: Ids) -> Any:
    return await tx.settle_inbox("slack", ids.inbox_key, status="stolen")


@probe("claim_inbox", in_tenant="None")
async def _(tx: Transaction, ids: Ids) -> Any:
    row = await tx.claim_inbox("slack", ids.inbox_key, owner_id=tx.scope.user_id)
    return None if row is None else row.key


@probe("settle_outbox")
async def _(tx: Transaction, ids: Ids) -> Any:
    return await tx.settle_outbox(ids.outbox_id, "w1", status="sent")


@probe("report_outbox")
async def _(tx: Transaction, ids: Ids) -> Any:
    return await tx.report_outbox(ids.outbox_id, was="dead", status="sent")


@probe("claim_outbox")
async def _(tx: Transaction, ids: Ids) -> Any:
    return await tx.claim_outbox("thief", until=LATER)


@probe("enqueue", in_tenant="DuplicateId")
async def _(tx: Transaction, ids: Ids) -> Any:
    own = tx.scope.user_id
    row = await tx.enqueue("slack", "C9", clean_text("mine"), turn_id=None, owner_id=own, id=ids.outbox_id)
    return row.payload


@probe("expire_leases")
async def _(tx: Transaction, ids: Ids) -> Any:
    return await tx.expire_leases("w1", turn_id=ids.running_id)


@probe("start_tool_run")
async def _(tx: Transaction, ids: Ids) -> Any:
    return await tx.start_tool_run(ids.running_id, 1, ids.call_id, "tool", clean_json({}), repeatable=True)


@probe("finish_tool_run")
async def _(tx: Transaction, ids: Ids) -> Any:
    return await tx.finish_tool_run(ids.running_id, 1, ids.call_id, clean_json({"forged": True}))


@probe("create_token")
async def _(tx: Transaction, ids: Ids) -> Any:
    return (await tx.create_token(NewToken(ids.token_id, ids.token_hash, tx.scope.user_id, "Mine", "admin"))).name


@probe("usage")
async def _(tx: Transaction, ids: Ids) -> Any:
    return await tx.usage(UsageQuery(first_day=FIRST_DAY, last_day=LAST_DAY, user_id=another_user(tx, ids)))


@probe("count_usage")
async def _(tx: Transaction, ids: Ids) -> Any:
    await tx.count_usage(Charge(ids.agent_id, "forged"))


@probe("take_permits")
async def _(tx: Transaction, ids: Ids) -> Any:
    return await tx.take_permits(ids.token_id, window=NOW, wanted=1, limit=10)


@probe("record_act")
async def _(tx: Transaction, ids: Ids) -> Any:
    return (await tx.record_act("token.forged", "mine", actor_id=another_user(tx, ids))).act


@probe("read_rows")
async def _(tx: Transaction, ids: Ids) -> Any:
    return [await tx.read_rows(table) for table in TABLES]


@probe("write_rows")
async def _(tx: Transaction, ids: Ids) -> Any:
    await tx.write_rows("users", [(another_user(tx, ids), "Mallory", "admin", None, 0)])


@probe("prune_threads")
async def _(tx: Transaction, ids: Ids) -> Any:
    await tx.prune_threads(idle_since=LATER)


@probe("purge_user")
async def _(tx: Transaction, ids: Ids) -> Any:
    await tx.purge_user(another_user(tx, ids))


@probe("purge_tenant")
async def _(tx: Transaction, ids: Ids) -> Any:
    await tx.purge_tenant()


@probe("row_counts")
async def _(tx: Transaction, ids: Ids) -> Any:
    return sorted(table for table, rows in (await tx.row_counts()).items() if rows > 100)
