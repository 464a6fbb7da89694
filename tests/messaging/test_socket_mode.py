"""Slack's Socket Mode: deliveries over a connection that the service opens, by Slack's rules about acknowledgements."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from tests.messaging.conftest import Stage
from threadline.core import jsontext
from threadline.core.errors import SettingsInvalid, StoreFailed
from threadline.core.threads import Scope
from threadline.messaging.credentials import missing_secrets
from threadline.messaging.inbox import Inbox
from threadline.messaging.socket_mode import SocketMode
from threadline.testing.platforms import FakeSlack, NotAcknowledged


@asynccontextmanager
async def connected(stage: Stage, count: int = 1, **changes: Any) -> AsyncIterator[FakeSlack]:
    """So many processes that are connected to the stage's Slack."""
    slack = stage.slack
    receivers = [stage.threadline.messaging.open_receiver(stage.threadline.inbox, "slack") for _ in range(count)]
    for receiver in receivers:
        assert isinstance(receiver, SocketMode)
        for name, value in changes.items():
            setattr(receiver, name, value)
    running = [asyncio.create_task(receiver.run(stage.tenant_id)) for receiver in receivers]
    try:
        await slack.sockets.until_connected(slack.sockets.opened + count)
        yield slack
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


@pytest.mark.req("H-04")
async def test_a_message_over_socket_mode_is_acknowledged_when_it_is_stored_and_answered(stage: Stage) -> None:
    await stage.link(stage.slack)
    async with connected(stage) as slack:
        body = slack.write("hello")
        event = json.loads(body)["event"]
        acknowledged = await slack.push(body)
        assert list(acknowledged) == ["envelope_id"]
        row = await stage.system.inbox_row("slack", f"{event['channel']}:{event['ts']}")
        assert row is not None
        assert row.decision == "accepted"
        (reply,) = await slack.replies(1)
        assert reply.text == "Hello, you."


@pytest.mark.req("H-04")
async def test_buttons_and_slash_commands_come_over_socket_mode_too(small_stage: Stage) -> None:
    await small_stage.link(small_stage.slack)
    async with connected(small_stage) as slack:
        await slack.push(slack.command("/help"))
        assert "!branch" in (await slack.replies(1))[0].text
        pressed = {"type": "block_actions", "user": {"id": slack.person}, "actions": []}
        assert await slack.sockets.push("interactive", pressed)


@pytest.mark.req("H-04")
async def test_what_is_not_stored_is_not_acknowledged_and_what_is_repeated_is_answered_once(
    small_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await small_stage.link(small_stage.slack)
    # Slack waits three seconds, and repeats at once, after one minute and after five.
    small_stage.slack.sockets.ack_seconds, small_stage.slack.sockets.retry_seconds = 0.5, (0.0, 0.0, 0.0)
    receive, is_up = Inbox.receive, asyncio.Event()

    async def fail_while_down(inbox: Inbox, *given: Any) -> Any:
        receipt = await receive(inbox, *given)
        if not is_up.is_set():
            # The commit's response was lost.
            raise StoreFailed("the database is down")
        return receipt

    monkeypatch.setattr(Inbox, "receive", fail_while_down)
    async with connected(small_stage) as slack:
        with pytest.raises(NotAcknowledged):
            await slack.push(slack.write("hello"))
        assert slack.sockets.attempts == 4
        is_up.set()
        slack.sockets.ack_seconds = 60.0
        assert await slack.push(slack.write("and again"))
        assert [reply.text for reply in await slack.replies(2)] == ["Hello, you."] * 2
        assert len(await small_stage.turns()) == 2


@pytest.mark.req("H-04")
async def test_a_connection_that_slack_wants_to_refresh_is_replaced_before_it_ends(small_stage: Stage) -> None:
    await small_stage.link(small_stage.slack)
    async with connected(small_stage) as slack:
        for reason in ("refresh_requested", "warning"):
            opened = slack.sockets.opened
            announced = asyncio.create_task(slack.sockets.disconnect(reason, drain_seconds=30))
            # While the old connection is still open.
            await slack.sockets.until_connected(opened + 1)
            assert not announced.done()
            announced.cancel()
            assert await slack.push(slack.write(f"after a {reason}"))
        await slack.replies(2)


@pytest.mark.req("H-04")
async def test_a_connection_that_breaks_is_opened_again_and_failures_are_repeated_more_and_more_rarely(
    small_stage: Stage,
) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    await small_stage.link(small_stage.slack)
    async with connected(small_stage, sleep=sleep) as slack:
        for number in range(4):
            opened = slack.sockets.opened
            slack.sockets.cut_off()
            await slack.sockets.until_connected(opened + 1)
            assert await slack.push(slack.write(f"message {number}"))
        assert pauses == [1.0, 2.0, 4.0, 8.0]
        await slack.replies(4)


@pytest.mark.req("H-04")
async def test_several_processes_share_the_deliveries_and_each_message_is_answered_once(stage: Stage) -> None:
    await stage.link(stage.slack)
    async with connected(stage, count=3) as slack:
        assert len(slack.sockets.connections) == 3
        bodies = [slack.write(f"message {number}") for number in range(9)]
        # Each twice: Slack repeats what was acknowledged too late, to any of the connections.
        await asyncio.gather(*(slack.push(body) for body in bodies * 2))
        await slack.replies(9)
        assert len(await stage.turns()) == 9
    assert len(slack.sent) == 9


@pytest.mark.req("H-04")
async def test_a_stopped_process_stores_and_acknowledges_what_it_has_begun(
    small_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await small_stage.link(small_stage.slack)
    receive, storing, may_store = Inbox.receive, asyncio.Event(), asyncio.Event()

    async def receive_slowly(inbox: Inbox, *given: Any) -> Any:
        storing.set()
        await may_store.wait()
        return await receive(inbox, *given)

    monkeypatch.setattr(Inbox, "receive", receive_slowly)
    slack = small_stage.slack
    receiver = small_stage.threadline.messaging.open_receiver(small_stage.threadline.inbox, "slack")
    running = asyncio.create_task(receiver.run(small_stage.tenant_id))
    await slack.sockets.until_connected()
    pushed = asyncio.create_task(slack.push(slack.write("hello")))
    await storing.wait()
    running.cancel()
    await asyncio.sleep(0)
    may_store.set()
    assert await pushed
    with suppress(asyncio.CancelledError):
        await running
    assert slack.sockets.attempts == 1
    assert slack.sockets.connections == []


@pytest.mark.req("H-04")
async def test_frames_that_cannot_be_read_are_acknowledged_once_and_end_nothing(small_stage: Stage) -> None:
    await small_stage.link(small_stage.slack)
    async with connected(small_stage) as slack:
        for frame in ("", "[]", "{", '{"type": 7}', '{"type": "hello"}', '{"type": "surprise", "payload": {}}'):
            await slack.sockets.send_all(frame)
        broken = {"type": "event_callback", "event": {"type": "message"}}
        for kind, payload in (
            ("events_api", broken),
            ("events_api", None),
            ("interactive", 7),
            ("slash_commands", {}),
            ("slash_commands", []),
            ("surprise", {}),
        ):
            assert await slack.sockets.push(kind, payload)
        assert slack.sockets.attempts == 6
        digest = hashlib.sha256(jsontext.dump(broken, "event")).hexdigest()
        row = await small_stage.system.inbox_row("slack", f"broken-{digest}-0")
        assert row is not None
        assert row.status == "dead"
        assert await slack.push(slack.write("hello"))
        await slack.replies(1)


@pytest.mark.req("H-04")
@pytest.mark.parametrize(("token", "error"), [("xapp-other", "invalid_auth"), ("xoxb-fake", "not_allowed_token_type")])
async def test_a_token_that_slack_refuses_ends_it_with_the_fix(small_stage: Stage, token: str, error: str) -> None:
    secrets = {**small_stage.slack.secrets, "app_token": token}
    admin = Scope(small_stage.tenant_id, "root", "admin")
    await small_stage.threadline.messaging.credentials.put(admin, "slack", secrets)
    receiver = small_stage.threadline.messaging.open_receiver(small_stage.threadline.inbox, "slack")
    with pytest.raises(SettingsInvalid, match=f"{error}.*credentials set slack") as refused:
        await receiver.run(small_stage.tenant_id)
    assert token not in str(refused.value)


@pytest.mark.req("H-04")
async def test_an_address_that_is_not_slacks_is_never_opened(small_stage: Stage) -> None:
    sockets = small_stage.slack.sockets
    for url in ("wss://slack.com.example.com/", "ws://wss.slack.com/", "wss://127.0.0.1/", "http://x.slack.com/", "x"):
        sockets.new_url = lambda url=url: url  # type: ignore[method-assign, misc]
        failed = asyncio.Event()

        async def sleep(_: float, failed: asyncio.Event = failed) -> None:
            failed.set()
            await asyncio.Event().wait()

        receiver = small_stage.threadline.messaging.open_receiver(small_stage.threadline.inbox, "slack")
        assert isinstance(receiver, SocketMode)
        receiver.sleep = sleep
        running = asyncio.create_task(receiver.run(small_stage.tenant_id))
        async with asyncio.timeout(60):
            await failed.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert sockets.opened == 0


@pytest.mark.req("H-04")
async def test_the_credentials_of_either_way_to_receive_are_enough(small_stage: Stage) -> None:
    every = small_stage.slack.secrets
    codec = small_stage.slack_codec
    assert missing_secrets(codec, {"bot_token"}) == "signing_secret or app_token"
    assert missing_secrets(codec, every.keys() - {"signing_secret"}) is None
    assert missing_secrets(codec, every.keys() - {"app_token"}) is None
