"""The client without `await`: the same objects, waited for."""

from __future__ import annotations

import pytest

from threadline.core.errors import ImpersonationRefused, NotFound
from threadline.core.events import TextDelta
from threadline.sync_api import connect_sync


def test_a_script_asks_reads_and_goes_back_without_await(service: str) -> None:
    with connect_sync(service) as me:
        thread = me.create_thread()
        assert "Hello" in thread.ask("Hello").message().text
        words = "".join(event.text for event in thread.ask("calculate 6*7") if isinstance(event, TextDelta))
        assert words.endswith("6*7 is 42.")
        thread.undo()
        assert [message.role for message in thread.messages()] == ["user", "assistant"]
        assert b"Hello" in b"".join(thread.export("markdown"))
        me.contexts.set("rehearsal", "I like tea.")
        assert me.contexts.clear("rehearsal")
        with pytest.raises(NotFound):
            me.thread("no-such-thread")


def test_a_reply_is_read_after_it_was_accepted(service: str) -> None:
    with connect_sync(service) as me:
        thread = me.create_thread()
        reply = thread.ask("Hello")
        reply.accept()
        with pytest.raises(ImpersonationRefused):
            me.acting_for("ada").threads()
        assert "Hello" in reply.message().text
