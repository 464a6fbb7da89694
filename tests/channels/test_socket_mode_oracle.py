"""Slack's own Socket Mode client as oracle: it is content with what our stand-in says, so the stand-in may judge us.

It uses another WebSocket library than the stand-in and the product do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient

from threadline.channels.slack import Slack
from threadline.core.platform_messages import HttpResponse, SocketEnvelope
from threadline.testing.platforms import FakeSlack, NotAcknowledged, SlackSockets
from threadline.testing.platforms.loopback import ask


class OfficialClient:
    """It acknowledges everything, unless it is told not to."""

    def __init__(self, slack: FakeSlack) -> None:
        web = AsyncWebClient(base_url=f"{slack.api}/")
        self.client = SocketModeClient(slack.secrets["app_token"], web_client=web)
        self.client.socket_mode_request_listeners.append(self._take)
        self.requests: list[SocketModeRequest] = []
        self.acknowledges = True

    async def _take(self, client: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        self.requests.append(request)
        if self.acknowledges:
            await client.send_socket_mode_response(SocketModeResponse(request.envelope_id))


@pytest.fixture
async def slack() -> AsyncIterator[FakeSlack]:
    async with FakeSlack(sockets=SlackSockets(ack_seconds=1.0, retry_seconds=(0.0,))) as fake:
        yield fake


@pytest.fixture
async def official(slack: FakeSlack) -> AsyncIterator[OfficialClient]:
    found = OfficialClient(slack)
    await found.client.connect_to_new_endpoint(force=True)
    await slack.sockets.until_connected()
    yield found
    await AsyncBaseSocketModeClient.close(found.client)  # type: ignore[no-untyped-call]
    await found.client.aiohttp_client_session.close()


@pytest.mark.req("H-04")
async def test_the_official_client_gets_and_acknowledges_what_the_stand_in_sends(
    slack: FakeSlack, official: OfficialClient
) -> None:
    slack.sockets.ack_seconds = 60.0
    for body in (slack.write("hello"), slack.command("/help")):
        assert await slack.push(body)
    await slack.sockets.push("interactive", {"type": "block_actions"})
    assert [request.type for request in official.requests] == ["events_api", "slash_commands", "interactive"]
    assert official.requests[0].payload["event"]["text"] == "hello"
    assert official.requests[0].retry_attempt == 0
    assert official.requests[1].payload["command"] == "/help"


@pytest.mark.req("H-04")
async def test_what_the_official_client_does_not_acknowledge_comes_again(
    slack: FakeSlack, official: OfficialClient
) -> None:
    official.acknowledges = False
    with pytest.raises(NotAcknowledged):
        await slack.push(slack.write("hello"))
    first, second = official.requests
    assert first.payload == second.payload
    assert first.envelope_id != second.envelope_id
    assert second.retry_attempt == 1


@pytest.mark.req("H-04")
async def test_the_official_client_opens_a_new_connection_when_the_stand_in_asks_for_it(
    slack: FakeSlack, official: OfficialClient
) -> None:
    slack.sockets.ack_seconds = 60.0
    await slack.sockets.disconnect("refresh_requested", drain_seconds=0.0)
    await slack.sockets.until_connected(2)
    assert await slack.push(slack.write("hello"))


@pytest.mark.req("H-04")
async def test_our_codec_asks_for_a_connection_as_the_official_client_does(slack: FakeSlack) -> None:
    codec = Slack(slack.api)
    request = codec.build_socket_request(slack.secrets)
    answer = await ask(request.method, request.url, request.headers, request.body)
    found = codec.parse_socket_response(HttpResponse(answer.status, answer.headers, answer.body))
    assert isinstance(found, str)
    web = AsyncWebClient(base_url=f"{slack.api}/")
    opened = await web.apps_connections_open(app_token=slack.secrets["app_token"])
    assert opened["url"].partition("?")[0] == found.partition("?")[0]
    with pytest.raises(SlackApiError, match="not_allowed_token_type"):
        await web.apps_connections_open(app_token=slack.secrets["bot_token"])


@pytest.mark.req("H-04")
async def test_our_codec_reads_what_the_official_client_reads(slack: FakeSlack, official: OfficialClient) -> None:
    slack.sockets.ack_seconds = 60.0
    frames: asyncio.Queue[str] = asyncio.Queue()

    async def keep(_: Any, message: dict[str, Any], raw: str | None) -> None:
        frames.put_nowait(raw or "")

    official.client.message_listeners.append(keep)
    assert await slack.push(slack.write("hello"))
    async with asyncio.timeout(60):
        # The greeting may come first.
        while not isinstance(envelope := Slack().parse_frame(await frames.get()), SocketEnvelope):
            assert envelope is None
    assert envelope.id == official.requests[0].envelope_id
    assert [arrival.text for arrival in envelope.delivery.arrivals] == ["hello"]
    response = SocketModeResponse(envelope.id).to_dict()
    assert Slack().build_acknowledgement(envelope.id) == f'{{"envelope_id":"{response["envelope_id"]}"}}'
