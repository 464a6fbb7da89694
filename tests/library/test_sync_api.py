"""The synchronous API: the same calls as the gateway protocols, without `await`."""

from __future__ import annotations

import inspect
import threading
from pathlib import Path

import pytest

import threadline
from threadline import NotFound, open_sync
from threadline.ports import Gateway, GatewayContexts, GatewayReply, GatewayThread
from threadline.sync_api import SyncContexts, SyncGateway, SyncThread
from threadline.sync_values import SyncReply


def test_a_script_without_await(tmp_path: Path) -> None:
    with open_sync(tmp_path / "t.db") as tl:
        me = tl.as_user("ada")
        thread = me.create_thread(title="Script")
        thread.append("One", threadline.assistant("Two"))
        assert [message.text for message in thread.messages()] == ["One", "Two"]
        assert [message.text for message in thread.stream()] == ["One", "Two"]
        assert thread.info.message_count == 2
        branch = thread.branch(title="Fork")
        assert branch.info.title == "Fork"
        reply = branch.ask("calculate 6*7", agent="rehearsal")
        assert "".join(reply.text()).endswith("42.")
        assert reply.message().text.endswith("42.")
        assert [type(event).__name__ for event in branch.ask("hello", agent="rehearsal")][-1] == "Finish"
        me.contexts.set("rehearsal", "Pinned")
        assert me.contexts.get("rehearsal").context == "Pinned"
        with pytest.raises(NotFound):
            me.thread("nothing")


def test_closing_ends_the_thread_it_ran_in(tmp_path: Path) -> None:
    with open_sync(tmp_path / "t.db") as tl:
        tl.as_user("ada").create_thread()
        running = [thread for thread in threading.enumerate() if thread.name == "threadline"]
    for thread in running:
        thread.join(10)
    assert [thread.is_alive() for thread in running] == [False]


def test_a_database_that_cannot_be_opened_is_told_and_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "bad.db").write_bytes(b"no database at all, and longer than any header would be" * 30)
    with pytest.raises(threadline.StoreFailed):
        open_sync(tmp_path / "bad.db")


def public(kind: type) -> dict[str, str]:
    """Every public member with its parameters."""
    members = {name: inspect.getattr_static(kind, name) for name in dir(kind) if not name.startswith("_")}
    return {
        name: str(list(inspect.signature(member).parameters.values())) if callable(member) else "property"
        for name, member in members.items()
    }


@pytest.mark.parametrize(
    ("synchronous", "protocol"),
    [(SyncGateway, Gateway), (SyncThread, GatewayThread), (SyncReply, GatewayReply), (SyncContexts, GatewayContexts)],
)
def test_every_call_has_its_synchronous_form_with_the_same_arguments(synchronous: type, protocol: type) -> None:
    extra = {SyncReply: {"message"}, SyncThread: {"info"}, SyncGateway: {"asynchronous"}}.get(synchronous, set())
    found = {name: shape for name, shape in public(synchronous).items() if name not in extra}
    assert found == public(protocol)
