"""Runs in the environment of the frameworks: sessions of Google's ADK, on the database that FRAMEWORK_TEST_DATABASE
names. ADK's own in-memory service is the oracle: its packages on PyPI have no tests of services."""

from __future__ import annotations

import asyncio
import os
import random
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.adk.agents import BaseAgent
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types

import threadline
from threadline.adapters.adk import ThreadlineSessionService
from threadline.core.parts import ToolPart

DATABASE = os.environ["FRAMEWORK_TEST_DATABASE"]
SECRET = "sk-proj-" + "Ab3dE5fG7hJ9kL1m" * 3
KEYS = ["plan", "token", "user:name", "user:password", "app:model", "temp:now", "", "user:", "a/b"]


@pytest.fixture
async def tl() -> AsyncIterator[threadline.Threadline]:
    async with threadline.open(DATABASE) as opened:
        yield opened


@pytest.fixture
def service(tl: threadline.Threadline) -> ThreadlineSessionService:
    # A tenant of its own: what an app shares is shared by all tests on the database.
    return ThreadlineSessionService(tl, tenant=f"t{uuid.uuid4().hex}")


def said(author: str, *parts: Any, delta: dict[str, Any] | None = None, **fields: Any) -> Event:
    found = [types.Part(text=part) if isinstance(part, str) else part for part in parts]
    content = types.Content(role="user" if author == "user" else "model", parts=found) if found else None
    return Event(author=author, content=content, actions=EventActions(state_delta=delta or {}), id=new(), **fields)


def new() -> str:
    return uuid.uuid4().hex


def plain(session: Any) -> Any:
    if session is None:
        return None
    # The times of sessions are the services' own.
    found = session.model_dump(mode="json", exclude={"last_update_time"})
    return {**found, "state": {key: value for key, value in found["state"].items() if not key.startswith("temp:")}}


async def outcome(call: Any) -> Any:
    try:
        return plain(await call)
    except (AlreadyExistsError, SessionNotFoundError) as exc:
        return type(exc)


@pytest.mark.parametrize("seed", range(6))
async def test_any_order_of_calls_gives_what_adks_own_service_gives(service: Any, seed: int) -> None:
    chance, oracle = random.Random(seed), InMemorySessionService()
    for number in range(30):
        place = {"app_name": chance.choice(["app", "a/b"]), "user_id": chance.choice(["ada", "bob b"])}
        one = {**place, "session_id": chance.choice(["s", " s ", "t/u"])}
        state = {key: chance.choice([1, None, [SECRET], {"k": "v"}]) for key in chance.sample(KEYS, 3)}
        match chance.choice(["create", "append", "append", "append", "get", "list", "delete", "user"]):
            case "create":
                created = [service.create_session(**one, state=state), oracle.create_session(**one, state=state)]
                assert await outcome(created[0]) == await outcome(created[1])
            case "append":
                event = said(chance.choice(["user", "agent"]), f"event {number} {SECRET}", delta=state)
                for each in (service, oracle):
                    session = await each.get_session(**one)
                    if session is not None:
                        await each.append_event(session, event.model_copy(deep=True))
            case "get":
                config = GetSessionConfig(num_recent_events=chance.choice([None, 0, 1, 3]))
                assert plain(await service.get_session(**one, config=config)) == plain(
                    await oracle.get_session(**one, config=config)
                )
            case "list":
                user = chance.choice([None, place["user_id"]])
                lists = [
                    await each.list_sessions(app_name=place["app_name"], user_id=user) for each in (service, oracle)
                ]
                found = [sorted((plain(each) for each in listed.sessions), key=str) for listed in lists]
                assert found[0] == found[1]
            case "delete":
                await service.delete_session(**one)
                await oracle.delete_session(**one)
            case "user":
                assert await service.get_user_state(**place) == await oracle.get_user_state(**place)
        assert plain(await service.get_session(**one)) == plain(await oracle.get_session(**one))


async def test_an_event_is_a_message_with_calls_and_results(tl: Any) -> None:
    service, user = ThreadlineSessionService(tl), uuid.uuid4().hex
    session = await service.create_session(app_name="trips", user_id=user, session_id="s")
    call = types.Part(function_call=types.FunctionCall(id="c1", name="look", args={"q": SECRET}))
    result = types.Part(function_response=types.FunctionResponse(id="c1", name="look", response={"found": 1}))
    picture = types.Part(inline_data=types.Blob(mime_type="image/png", data=b"\x89PNG"))
    for event in (said("user", "Look!", picture), said("agent", call), said("agent", result), said("agent", "Found.")):
        await service.append_event(session, event)
    thread = await tl.as_user(user).thread("trips/s")
    messages = await thread.messages()
    assert [(message.role, message.text) for message in messages] == [
        ("user", "Look!"),
        ("assistant", ""),
        ("assistant", ""),
        ("assistant", "Found."),
    ]
    (answered,) = messages[2].parts
    assert isinstance(answered, ToolPart)
    assert (answered.call_id, answered.output_value()) == ("c1", {"found": 1})
    assert SECRET.encode() not in b"".join(message.parts_json for message in messages)
    again = await service.get_session(app_name="trips", user_id=user, session_id="s")
    assert again is not None
    assert again.events == session.events
    assert await tl.as_user(user).search("Found")


async def test_a_session_that_was_changed_since_it_was_read_is_stale(service: Any) -> None:
    place = {"app_name": "app", "user_id": "ada", "session_id": "s"}
    await service.create_session(**place)
    first, second = [await service.get_session(**place) for _ in range(2)]
    await service.append_event(first, said("user", "one"))
    with pytest.raises(StaleSessionError):
        await service.append_event(second, said("user", "two", delta={"app:lost": 1}))
    await service.append_event(first, said("user", "three"))
    stored = await service.get_session(**place)
    assert [event.content.parts[0].text for event in stored.events] == ["one", "three"]
    assert stored.state == {}


async def test_of_events_appended_at_once_to_copies_of_a_session_one_is_stored(service: Any) -> None:
    place = {"app_name": "app", "user_id": "ada", "session_id": "s"}
    await service.create_session(**place)
    copies = [await service.get_session(**place) for _ in range(8)]
    done = await asyncio.gather(
        *(
            service.append_event(copy, said("user", str(number), delta={"n": number}))
            for number, copy in enumerate(copies)
        ),
        return_exceptions=True,
    )
    stored = await service.get_session(**place)
    assert sum(isinstance(each, Event) for each in done) == len(stored.events) == 1
    assert str(stored.state["n"]) == stored.events[0].content.parts[0].text


async def test_an_event_that_is_delivered_twice_is_stored_once(service: Any) -> None:
    place = {"app_name": "app", "user_id": "ada", "session_id": "s"}
    session = await service.create_session(**place)
    event = said("agent", "once", delta={"n": 1})
    for _ in range(2):
        await service.append_event(session, event)
    assert [each.id for each in session.events] == [event.id]
    assert (await service.get_session(**place)).events == [event]
    same_id = said("agent", "another").model_copy(update={"id": event.id})
    await service.append_event(session, same_id)
    assert (await service.get_session(**place)).events == [event, same_id]


async def test_a_session_is_read_from_a_time_on(service: Any) -> None:
    place = {"app_name": "app", "user_id": "ada", "session_id": "s"}
    session = await service.create_session(**place)
    for at in (100.5, 200.25, 300.125):
        await service.append_event(session, said("user", str(at), timestamp=at))
    found = await service.get_session(**place, config=GetSessionConfig(after_timestamp=200.25))
    assert [event.timestamp for event in found.events] == [200.25, 300.125]
    assert found.last_update_time == 300.125


async def test_what_others_add_to_the_thread_is_in_the_session(tl: Any) -> None:
    service, user = ThreadlineSessionService(tl), uuid.uuid4().hex
    await service.create_session(app_name="trips", user_id=user, session_id="s")
    thread = await tl.as_user(user).thread("trips/s")
    call = threadline.tool_part("look", "c1", {"q": 1}, output="found")
    await thread.append("From the page", threadline.assistant([call, threadline.TextPart("Done.")]))
    session = await service.get_session(app_name="trips", user_id=user, session_id="s")
    assert session is not None
    kinds = [(event.author, event.content.role) for event in session.events if event.content]
    assert kinds == [("user", "user"), ("trips", "model"), ("trips", "user"), ("trips", "model")]
    await service.append_event(session, said("user", "Thanks"))
    assert (await thread.messages())[-1].text == "Thanks"


class Echo(BaseAgent):
    async def _run_async_impl(self, ctx: Any) -> AsyncIterator[Event]:
        text = ctx.user_content.parts[0].text
        yield Event(
            author=self.name,
            invocation_id=ctx.invocation_id,
            content=types.Content(role="model", parts=[types.Part(text=f"You said {text}")]),
            actions=EventActions(state_delta={"count": ctx.session.state.get("count", 0) + 1}),
        )


def test_a_runner_without_an_event_loop_continues_its_session() -> None:
    user = uuid.uuid4().hex
    with threadline.open_sync(DATABASE) as tl:
        service = ThreadlineSessionService(tl)
        asyncio.run(service.create_session(app_name="echo", user_id=user, session_id="s"))
        for text in ("one", "two"):
            runner = Runner(agent=Echo(name="echo_agent"), app_name="echo", session_service=service)
            message = types.Content(role="user", parts=[types.Part(text=text)])
            assert list(runner.run(user_id=user, session_id="s", new_message=message))
        messages = tl.as_user(user).thread("echo/s").messages()
        stored = asyncio.run(service.get_session(app_name="echo", user_id=user, session_id="s"))
    assert [message.text for message in messages] == ["one", "You said one", "two", "You said two"]
    assert stored is not None
    assert stored.state["count"] == 2
