"""Which events are messages to the bot, and their text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadline.matrix.events_in import (
    ReplyTarget,
    Retraction,
    RoomText,
    Unreadable,
    accepted_invitation,
    is_own_join,
    read,
    read_recipient,
    to_arrival,
)

ME = "@bot:here.test"
NEW = {"msgtype": "m.text", "body": "hi"}


def event(content: Any, kind: str = "m.room.message", sender: str = "@alice:here.test", **more: Any) -> dict[str, Any]:
    return {"event_id": "$e", "type": kind, "sender": sender, "content": content, "origin_server_ts": 1, **more}


def words(content: dict[str, Any], name: str | None = None) -> RoomText:
    found = read("!r", event({"msgtype": "m.text", **content}), ME, name)
    assert isinstance(found, RoomText)
    return found


@pytest.mark.req("S2-17")
@pytest.mark.parametrize(
    "ignored",
    [
        event({"msgtype": "m.text", "body": "hi"}, sender=ME),
        event({"msgtype": "m.notice", "body": "hi"}),
        event({"msgtype": "m.text", "body": "* hi", "m.relates_to": {"rel_type": "m.replace", "event_id": "$x"}}),
        event({"msgtype": "m.text", "body": "* hi", "m.new_content": NEW, "m.relates_to": {"rel_type": "m.replace"}}),
        event({}, unsigned={"redacted_because": {}}),
        event({}, kind="m.room.encrypted", unsigned={"redacted_because": {}}),
        event({}),
        event({"msgtype": "m.text", "body": 3}),
        event({"msgtype": "m.text"}),
        event({"msgtype": "org.example.poll", "body": "?"}),
        event("text"),
        event({"body": "hi"}, kind="m.reaction"),
        event({"redacts": 3}, kind="m.room.redaction"),
        {},
    ],
)
def test_events_that_are_not_for_the_bot_are_ignored(ignored: dict[str, Any]) -> None:
    assert read("!r", ignored, ME) is None


@pytest.mark.parametrize(
    ("body", "name", "text", "named"),
    [
        ("hello", None, "hello", False),
        ("bot: hello", None, "hello", True),
        ("Bot, hello", None, "hello", True),
        ("bottle: hello", None, "bottle: hello", False),
        ("bot is a word", None, "bot is a word", False),
        ("@bot:here.test hello", None, "hello", True),
        ("@bot:here.tester hello", None, "@bot:here.tester hello", False),
        ("Thread Line: hello", "Thread Line", "hello", True),
        ("ask @bot:here.test about it", None, "ask @bot:here.test about it", True),
        ("", None, "", False),
    ],
)
def test_the_bots_name_before_a_text_is_no_part_of_it(body: str, name: str | None, text: str, named: bool) -> None:
    found = words({"body": body}, name)
    assert (found.text, found.names_me) == (text, named)


def test_a_mention_says_that_a_bare_name_is_the_bots() -> None:
    found = words({"body": "bot hello", "m.mentions": {"user_ids": [ME]}})
    assert (found.text, found.names_me) == ("hello", True)
    assert not words({"body": "hello", "m.mentions": {"user_ids": ["@other:here.test"]}}).names_me


def test_what_a_reply_quotes_is_no_part_of_it() -> None:
    relation = {"m.in_reply_to": {"event_id": "$q"}}
    assert words({"body": "> <@x:y> old\n> more\n\nnew", "m.relates_to": relation}).text == "new"
    assert words({"body": "> a quote of mine"}).text == "> a quote of mine"


def test_a_thread_is_known_by_its_first_message() -> None:
    assert words({"body": "x", "m.relates_to": {"rel_type": "m.thread", "event_id": "$root"}}).thread == "$root"


def test_an_edit_says_the_new_words_and_what_they_stand_in_for() -> None:
    relation = {"rel_type": "m.replace", "event_id": "$x"}
    found = words({"body": "* hi", "m.new_content": NEW, "m.relates_to": relation})
    assert (found.text, found.edits) == ("hi", "$x")


def test_a_file_is_named_and_not_fetched() -> None:
    assert words({"msgtype": "m.file", "body": "a.pdf"}).text == "[file: a.pdf]"
    assert words({"msgtype": "m.image", "body": "A cat", "filename": "cat.png"}).text == "[image: cat.png]"


def test_a_message_without_its_key_and_a_redaction_are_told_apart() -> None:
    assert isinstance(read("!r", event({}, kind="m.room.encrypted"), ME), Unreadable)
    taken = read("!r", event({"redacts": "$x"}, kind="m.room.redaction"), ME)
    assert isinstance(taken, Retraction)
    assert (taken.event_id, taken.sender, taken.target) == ("$e", "@alice:here.test", "$x")


def test_the_bot_came_with_its_join_and_not_with_its_new_name() -> None:
    join = event({"membership": "join"}, kind="m.room.member", sender=ME, state_key=ME)
    assert is_own_join(join, ME)
    assert not is_own_join({**join, "unsigned": {"prev_content": {"membership": "join"}}}, ME)
    assert not is_own_join({**join, "state_key": "@alice:here.test"}, ME)
    assert accepted_invitation(join, ME) is None
    invited = {"prev_content": {"membership": "invite"}, "prev_sender": "@alice:here.test"}
    assert accepted_invitation({**join, "unsigned": invited}, ME) == "@alice:here.test"


TEXT = RoomText("!r", "$e", "@alice:here.test", "hello")


def test_an_arrival_has_the_events_own_id_and_replies_in_the_room() -> None:
    arrival = to_arrival(TEXT, is_shared=False)
    assert arrival is not None
    assert (arrival.key, arrival.sender, arrival.place, arrival.recipient) == ("$e", "@alice:here.test", "!r", "!r")
    assert (arrival.kind, arrival.text, arrival.is_addressed) == ("message", "hello", True)


def test_replies_in_a_shared_room_or_a_thread_name_the_message_they_answer() -> None:
    for shared, thread, target in (
        (True, None, ReplyTarget("!r", "$e")),
        (False, "$root", ReplyTarget("!r", "$e", "$root")),
        (False, None, ReplyTarget("!r")),
    ):
        arrival = to_arrival(TEXT._replace(thread=thread, names_me=True), is_shared=shared)
        assert arrival is not None
        assert read_recipient(arrival.recipient) == target


@pytest.mark.parametrize(
    ("text", "names_me", "addressed"),
    [
        ("hello", False, None),
        ("hello", True, True),
        ("!help", False, True),
        ("!nothing", False, None),
        ("2", False, False),
    ],
)
def test_in_a_shared_room_only_names_commands_and_numbers_arrive(
    text: str, names_me: bool, addressed: bool | None
) -> None:
    arrival = to_arrival(TEXT._replace(text=text, names_me=names_me), is_shared=True)
    assert (None if arrival is None else arrival.is_addressed) == addressed


def test_edits_and_redactions_name_the_message_they_change() -> None:
    edit = to_arrival(TEXT._replace(edits="$x"), is_shared=False)
    retraction = to_arrival(Retraction("!r", "$e", "@alice:here.test", "$x"), is_shared=False)
    assert edit is not None
    assert retraction is not None
    assert [(each.kind, each.target) for each in (edit, retraction)] == [("edit", "$x"), ("retraction", "$x")]


@given(st.recursive(st.none() | st.text() | st.integers(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_no_content_makes_reading_fail(content: Any) -> None:
    for kind in ("m.room.message", "m.room.encrypted", "m.room.redaction"):
        read("!r", event(content, kind=kind), ME)
        read("!r", event({"msgtype": "m.text", "body": "x", "m.relates_to": content, "m.mentions": content}), ME)
