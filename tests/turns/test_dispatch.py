"""A question without a thread: answered with what the user pinned, and nothing of it is stored."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from tests.scripted_agent import ScriptedAgent, make_threadline
from threadline.bootstrap import Threadline
from threadline.core.channels import ContextSnapshot
from threadline.core.errors import InvalidMessage, StoreFailed, StoreUnavailable
from threadline.core.event_fold import Fold
from threadline.core.events import TextDelta
from threadline.core.threads import Scope
from threadline.library import UserView
from threadline.ports import Store, Transaction, Watch
from threadline.replies import DenyAll
from threadline.settings import Settings
from threadline.testing.clock import ManualClock


async def answered(threadline: Threadline, me: UserView, body: dict[str, Any]) -> str:
    prompt = await threadline.dispatcher.prompt(me.scope, "scripted", body)
    agent = await threadline.directory.find(me.scope, "scripted")
    events = [event async for event in threadline.dispatcher.run(me.scope, agent, prompt, DenyAll(), Fold())]
    return "".join(event.text for event in events if isinstance(event, TextDelta))


@pytest.mark.req("S1-17", "S0-04", "S0-16")
async def test_dispatch_without_a_thread_stores_no_thread(
    threadline: Threadline, me: UserView, scripted_agent: ScriptedAgent
) -> None:
    await me.contexts.set("scripted", "Be brief.")
    before = await threadline.store.scoped(me.scope).row_counts()
    assert await answered(threadline, me, {"role": "user", "content": "Hi"}) == "Hello, you."
    assert scripted_agent.prompt_texts() == [("system", "Persisted user context:\nBe brief."), ("user", "Hi")]
    after = await threadline.store.scoped(me.scope).row_counts()
    assert after == {**before, "usage_days": 1}


@pytest.mark.req("S0-06")
async def test_messages_keep_their_order_after_the_snapshot(
    threadline: Threadline, me: UserView, scripted_agent: ScriptedAgent
) -> None:
    await me.contexts.set("scripted", "Be brief.")
    said = [{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}, {"role": "user", "content": "3"}]
    await answered(threadline, me, {"messages": said})
    assert [words for _, words in scripted_agent.prompt_texts()] == [
        "Persisted user context:\nBe brief.",
        "1",
        "2",
        "3",
    ]


@pytest.mark.req("S0-07", "S0-08")
@pytest.mark.parametrize("body", [{}, {"messages": "no array"}, {"content": "  "}, {"messages": []}, {"messages": [1]}])
async def test_a_body_without_a_message_is_not_dispatched(
    threadline: Threadline, me: UserView, scripted_agent: ScriptedAgent, body: dict[str, Any]
) -> None:
    with pytest.raises(InvalidMessage):
        await answered(threadline, me, body)
    assert scripted_agent.prompts == []


class Forgetful:
    """A store whose snapshots cannot be read."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def scoped(self, scope: Scope) -> Transaction:
        return _WithoutContexts(self._store.scoped(scope))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def watch(self, scope: Scope, turn_id: str) -> AbstractAsyncContextManager[Watch]:
        return self._store.watch(scope, turn_id)


class _WithoutContexts:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)

    async def context(self, agent_id: str) -> ContextSnapshot | None:
        raise StoreUnavailable("the snapshot's page cannot be read")


@pytest.mark.req("S0-09")
async def test_a_snapshot_that_cannot_be_read_is_left_out_logged_and_counted(
    store: Store,
    settings: Settings,
    clock: ManualClock,
    scripted_agent: ScriptedAgent,
    caplog: pytest.LogCaptureFixture,
) -> None:
    tl = make_threadline(Forgetful(store), settings, clock, scripted_agent)
    me = tl.as_user()
    with pytest.raises(StoreFailed):
        await me.contexts.get("scripted")
    assert (await (await me.create_thread()).ask("Hi")).text == "Hello, you."
    assert await answered(tl, me, {"content": "Hi"}) == "Hello, you."
    assert tl.metrics.value("threadline_snapshot_read_failures_total") == 2
    assert [record.message for record in caplog.records].count("snapshot not read") == 2
