"""The client without `await`: the same objects, waited for."""

from __future__ import annotations

import pytest

from threadline.core.errors import ImpersonationRefused, NotFound
from threadline.core.events import TextDelta
from threadline.sync_api import connect_sync


def test_a_script_asks_reads_and_goes_back_without_await(service: str) -> None:
    with connect_sync(service) as me:
        thread = me.create_thread()
        assert "Hello" in thread.ask("Hello").wait().text
        words = "".join(event.text for event in thread.ask("calculate 6*7") if isinstance(event, TextDelta))
        assert words.endswith("6*7 is 42.")
        thread.undo()
        assert [message.role for message in thread.messages()] == ["user", "assistant"]
        assert b"Hello" in b"".join(thread.export("markdown"))
        me.contexts.set("rehearsal", "I like tea.")
        assert me.contexts.clear("rehearsal")
        with pytest.raises(NotFound):
            me.thread("no-such-thread")


def test_closing_what_came_from_the_client_leaves_the_client_open(service: str) -> None:
    with connect_sync(service) as me:
        thread = me.create_thread()
        reply = thread.ask("Hello")
        reply.accept()
        reply.close()
        with me.acting_for("ada") as view, pytest.raises(ImpersonationRefused):
            view.threads()
        assert "Hello" in reply.wait().text
