"""What clients and agents put into a message besides text: sources, files, data parts, metadata; live and reloaded."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

import threadline as public
from tests.scripted_agent import ScriptedAgent
from tests.service.running_service import CHAT, THREADS, Client
from threadline import events
from threadline.bootstrap import Threadline
from threadline.client import connect

PICTURE = "data:image/png;base64,iVBORw0KGgo="
SAID: list[Any] = [
    "Look: ",
    events.Source("s1", "https://example.org", "An example"),
    events.SourceDocument("s2", "application/pdf", "A report", "report.pdf"),
    events.File("image/png", PICTURE, "plot.png"),
    events.Data("weather", {"city": "Porto", "celsius": None}, id="w"),
    events.Data("progress", {"percent": 50}, transient=True),
    events.Data("weather", {"city": "Porto", "celsius": 17}, id="w"),
    events.MessageMetadata({"model": "m-1", "timing": {"first": 1}, "status": "mine"}),
    events.MessageMetadata({"timing": {"last": 2}}),
    "done.",
]
PARTS = [
    {"type": "text", "text": "Look: done."},
    {"type": "source-url", "sourceId": "s1", "url": "https://example.org", "title": "An example"},
    {
        "type": "source-document",
        "sourceId": "s2",
        "mediaType": "application/pdf",
        "title": "A report",
        "filename": "report.pdf",
    },
    {"type": "file", "mediaType": "image/png", "url": PICTURE, "filename": "plot.png"},
    {"type": "data-weather", "data": {"city": "Porto", "celsius": 17}, "id": "w"},
]
METADATA = {"model": "m-1", "timing": {"first": 1, "last": 2}}


async def stored(client: Client, key: str) -> list[dict[str, Any]]:
    return (await client.http.get(f"{THREADS}/{key}")).json()["messages"]  # type: ignore[no-any-return]


@pytest.mark.req("C-02")
async def test_what_an_agent_emits_is_streamed_stored_and_reloaded(
    client: Client, scripted_agent: ScriptedAgent
) -> None:
    scripted_agent.lines = SAID
    chunks = await client.ask("Show me", "k1")
    shown = {chunk["type"]: chunk for chunk in chunks}
    assert shown["source-url"] == {
        "type": "source-url",
        "sourceId": "s1",
        "url": "https://example.org",
        "title": "An example",
    }
    assert shown["source-document"] == PARTS[2]
    assert shown["file"] == {"type": "file", "mediaType": "image/png", "url": PICTURE}
    assert [chunk for chunk in chunks if chunk["type"] == "data-weather"] == [
        {"type": "data-weather", "data": {"city": "Porto", "celsius": None}, "id": "w"},
        {"type": "data-weather", "data": {"city": "Porto", "celsius": 17}, "id": "w"},
    ]
    assert shown["data-progress"] == {"type": "data-progress", "data": {"percent": 50}, "transient": True}
    assert [chunk["messageMetadata"] for chunk in chunks if chunk["type"] == "message-metadata"] == [
        {"model": "m-1", "timing": {"first": 1}},
        {"timing": {"last": 2}},
    ]
    reply = (await stored(client, "k1"))[1]
    assert (reply["parts"], reply["metadata"]) == (PARTS, METADATA)


@pytest.mark.req("C-02")
async def test_a_stream_made_from_the_stored_reply_has_the_same_content(
    client: Client, threadline: Threadline, scripted_agent: ScriptedAgent
) -> None:
    scripted_agent.lines = SAID
    me = threadline.as_user()
    thread = await me.create_thread()
    reply = thread.ask("Show me")
    live = [event async for event in reply]
    turn = await reply.ended()
    session = threadline.store.scoped(me.scope)
    assert await session.drop_chunks(older_than=dt.timedelta(days=-1)) > 0
    replayed = [each.event async for each in threadline.streams.read(me.scope, turn.id)]
    for kind in (events.Source, events.SourceDocument, events.File):
        assert [event for event in replayed if isinstance(event, kind)] == [
            event for event in live if isinstance(event, kind)
        ]
    assert [event for event in replayed if isinstance(event, events.Data)] == [
        events.Data("weather", {"city": "Porto", "celsius": 17}, id="w")
    ]
    assert [event for event in replayed if isinstance(event, events.MessageMetadata)] == [
        events.MessageMetadata(METADATA)
    ]


@pytest.mark.req("C-02")
async def test_the_client_and_an_import_have_the_same_content(
    client: Client, threadline: Threadline, scripted_agent: ScriptedAgent
) -> None:
    scripted_agent.lines = SAID
    async with connect(client.url) as remote:
        thread = await remote.create_thread()
        reply = thread.ask("Show me")
        shown = [event async for event in reply]
        assert events.File("image/png", PICTURE, "plot.png") in shown
        assert events.Data("progress", {"percent": 50}, transient=True) in shown
        message = (await thread.messages())[-1]
    assert public.SourceDocumentPart("s2", "application/pdf", "A report", "report.pdf") in message.parts
    assert message.metadata == METADATA
    exported = await client.http.get(f"{THREADS}/{thread.id}/export?format=jsonl")
    assert exported.status_code == 200, exported.text
    copy = exported.text.replace(thread.id, "imported-thread")
    assert "source-document" in copy
    markdown = (await client.http.get(f"{THREADS}/{thread.id}/export?format=markdown")).text
    assert "*Source: A report*" in markdown
    assert '"celsius":17' in markdown


@pytest.mark.req("C-02")
async def test_metadata_and_data_parts_of_a_user_message_are_stored_and_returned(
    client: Client, scripted_agent: ScriptedAgent
) -> None:
    parts = [
        {"type": "text", "text": "Where am I?"},
        {"type": "data-place", "data": {"lat": 41.1, "token": "hunter2-hunter2"}, "id": "p1"},
    ]
    message = {"role": "user", "id": "m1", "parts": parts, "metadata": {"sentAt": 1, "password": "hunter2-hunter2"}}
    answer = await client.http.post(CHAT, json={"id": "k2", "messages": [message]})
    assert answer.status_code == 200, answer.text
    asked = (await stored(client, "k2"))[0]
    assert asked["metadata"] == {"sentAt": 1, "password": "[masked:password]"}
    assert asked["parts"][1] == {"type": "data-place", "data": {"lat": 41.1, "token": "[masked:token]"}, "id": "p1"}
    assert scripted_agent.prompt_texts() == [("user", "Where am I?")]


@pytest.mark.req("C-02")
@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"metadata": [1]}, "`metadata` of the message must be an object, got an array"),
        ({"metadata": {"x": "y" * 70_000}}, "metadata size in bytes must be at most 65536"),
        ({"parts": [{"type": "data-x"}]}, "part of a user message must be text, file or data-NAME with `data`"),
        ({"parts": [{"type": "data-", "data": 1}]}, "part of a user message must be text, file or data-NAME"),
        ({"parts": [{"type": "data-x", "data": 1, "id": 5}]}, "`id` must be a string"),
        ({"parts": [{"type": "data-x", "data": 1}]}, "the message must"),
    ],
)
async def test_invalid_metadata_and_data_parts_are_refused(client: Client, change: dict[str, Any], fault: str) -> None:
    message = {"role": "user", "parts": [{"type": "text", "text": "Hi"}], **change}
    answer = await client.http.post(CHAT, json={"id": "k3", "messages": [message]})
    assert 400 <= answer.status_code < 500
    assert fault in answer.text
    assert await stored(client, "k3") == []


@pytest.mark.req("S1-20", "C-02")
async def test_a_final_text_that_differs_follows_on_the_wire(client: Client, scripted_agent: ScriptedAgent) -> None:
    scripted_agent.lines = ["It is in Lisbon.", events.FinalText("It is in Porto.")]
    chunks = await client.ask("Where?", "k4")
    at = [chunk["type"] for chunk in chunks].index("data-corrected")
    assert chunks[at]["transient"] is True
    corrected = [chunk["delta"] for chunk in chunks[at:] if chunk["type"] == "text-delta"]
    assert corrected == ["It is in Porto."]
    assert await client.messages("k4") == [("user", "Where?"), ("assistant", "It is in Porto.")]


@pytest.mark.req("S1-10", "C-02")
async def test_metadata_beyond_its_limit_is_left_out_and_the_reply_kept(
    client: Client, scripted_agent: ScriptedAgent
) -> None:
    scripted_agent.lines = ["Said.", events.MessageMetadata({"x": "y" * 70_000})]
    assert (await client.ask("Go", "k5"))[-1]["type"] == "error"
    reply = (await stored(client, "k5"))[1]
    assert reply["metadata"] == {"status": "dispatch_failed", "limit": "metadata size in bytes"}
    assert reply["parts"] == [{"type": "text", "text": "Said."}]
