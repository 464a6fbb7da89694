"""LiveViews: signs of life on a platform while a reply is written.

Where the platform has drafts or streams, the reply is shown as far as it is written; elsewhere people see that it is
being written. A view may be lost: it ends with the turn or with this process, and nothing of it is stored. What arrives
for certain is the reply's outbox row; it takes the place of a stream's message.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from threadline.core.errors import ThreadlineError
from threadline.core.event_fold import Fold
from threadline.core.events import Event
from threadline.core.parts import plain_text
from threadline.core.platform_messages import UNTIMED, Arrival, HttpRequest, HttpResponse, Transient
from threadline.core.reply_text import arrived_as
from threadline.core.threads import Scope
from threadline.core.turns import Surface, Turn
from threadline.messaging.credentials import Credentials
from threadline.messaging.live_streams import LiveStream, LiveStreams
from threadline.ports import Channel, Http, LiveChannel, Store, StreamingChannel

log = logging.getLogger("threadline.messaging")

# Platforms limit how often one conversation may be changed, to about once a second.
_DRAFT_SECONDS = 1.5
# A sign that comes later than the next one is of no use.
_SEND_SECONDS = 5.0


class LiveViews:
    """`after_seconds`: replies that arrive sooner need no sign; 0 switches them off."""

    def __init__(
        self, channels: Mapping[Surface, Channel], credentials: Credentials, http: Http, after_seconds: float
    ) -> None:
        self._channels = channels
        self._credentials = credentials
        self._http = http
        self._after_seconds = after_seconds
        self.streams = LiveStreams(is_enabled=after_seconds > 0)
        self._tasks: set[asyncio.Task[None]] = set()

    def follow(
        self,
        scope: Scope,
        arrival: Arrival,
        turn_id: str,
        running: asyncio.Future[Turn | None],
        stream: Callable[[], AsyncIterator[Event]],
    ) -> None:
        """Shows the reply to this arrival until its turn, which runs in this process, has ended."""

        async def find_arrival() -> Arrival:
            return arrival

        self._start(
            scope.tenant_id, arrival.platform, turn_id, find_arrival, running, stream, recipient=arrival.recipient
        )

    def follow_turn(
        self,
        store: Store,
        scope: Scope,
        turn: Turn,
        running: asyncio.Future[Turn | None],
        stream: Callable[[], AsyncIterator[Event]],
    ) -> None:
        """The same for a turn whose message another process received."""
        key = arrived_as(turn)

        async def find_arrival() -> Arrival | None:
            row = None if key is None else await store.scoped(scope).inbox_row(turn.surface, key)
            if row is None or row.reply_to is None:
                return None
            # What the inbox keeps of a message is enough to show that it is being answered.
            return Arrival(turn.surface, row.key, row.fingerprint or "", row.reply_to, row.reply_to, "", UNTIMED)

        self._start(scope.tenant_id, turn.surface, turn.id, find_arrival, running, stream)

    def _start(
        self,
        tenant_id: str,
        platform: Surface,
        turn_id: str,
        find_arrival: Callable[[], Awaitable[Arrival | None]],
        running: asyncio.Future[Turn | None],
        stream: Callable[[], AsyncIterator[Event]],
        *,
        recipient: str | None = None,
    ) -> None:
        channel = self._channels.get(platform) if self._after_seconds > 0 else None
        if not isinstance(channel, LiveChannel):
            return
        # Known before the turn can end: the reply's delivery waits for this view if it may open a stream.
        may_stream = isinstance(channel, StreamingChannel) and (recipient is None or channel.can_stream(recipient))
        live = self.streams.add(turn_id) if may_stream else None
        showing = self._show(tenant_id, channel, find_arrival, live, running, stream)
        task = asyncio.create_task(showing, name=f"live view of {platform}")
        if live is not None:
            live.view = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _show(
        self,
        tenant_id: str,
        channel: LiveChannel,
        find_arrival: Callable[[], Awaitable[Arrival | None]],
        live: LiveStream | None,
        running: asyncio.Future[Turn | None],
        stream: Callable[[], AsyncIterator[Event]],
    ) -> None:
        if (await asyncio.wait({running}, timeout=self._after_seconds))[0]:
            return
        try:
            if (arrival := await find_arrival()) is not None:
                await self._show_reply(tenant_id, channel, arrival, live, running, stream)
        except ThreadlineError as exc:
            log.info("no live view: %s", exc, extra={"platform": channel.platform})

    async def _show_reply(
        self,
        tenant_id: str,
        channel: LiveChannel,
        arrival: Arrival,
        live: LiveStream | None,
        running: asyncio.Future[Turn | None],
        stream: Callable[[], AsyncIterator[Event]],
    ) -> None:
        fold = Fold()
        streams_to = (
            channel if isinstance(channel, StreamingChannel) and channel.can_stream(arrival.recipient) else None
        )
        is_shown = streams_to is not None or channel.has_drafts(arrival)
        reading = asyncio.create_task(_read(stream(), fold)) if is_shown else None
        try:
            secrets = await self._credentials.open(tenant_id, channel.platform)
            if live is not None and streams_to is not None:
                # Slack takes a status away when it posts a message.
                await self._send(channel.build_typing(secrets, arrival))
                await self._stream(streams_to, secrets, arrival.recipient, running, fold, live)
            await self._repeat(channel, secrets, arrival, running, fold)
        finally:
            if reading is not None:
                reading.cancel()
                # How reading ended is of no interest: the turn's own error is stored with it.
                await asyncio.gather(reading, return_exceptions=True)

    async def _repeat(
        self,
        channel: LiveChannel,
        secrets: Mapping[str, str],
        arrival: Arrival,
        running: asyncio.Future[Turn | None],
        fold: Fold,
    ) -> None:
        has_drafts, shown, typing_at = channel.has_drafts(arrival), "", 0.0
        loop = asyncio.get_running_loop()
        while not running.done():
            text = plain_text(fold.parts()).strip() if has_drafts else ""
            if text and text != shown:
                # Bots that may not use drafts are refused: they show that the reply is being written instead.
                has_drafts = await self._send(channel.build_draft(secrets, arrival, text))
                shown, typing_at = text, loop.time() + channel.typing_seconds
            elif loop.time() >= typing_at:
                if not await self._send(channel.build_typing(secrets, arrival)):
                    return
                typing_at = loop.time() + channel.typing_seconds
            pause = _DRAFT_SECONDS if has_drafts else max(0.1, typing_at - loop.time())
            await asyncio.wait({running}, timeout=pause)

    async def _stream(
        self,
        channel: StreamingChannel,
        secrets: Mapping[str, str],
        recipient: str,
        running: asyncio.Future[Turn | None],
        fold: Fold,
        live: LiveStream,
    ) -> None:
        """Shows the text as a message that grows, until the turn ends, or the platform or the text ends the stream."""
        shown = ""
        while not running.done():
            text = channel.stream_text(plain_text(fold.parts()).strip())
            if not text.startswith(shown):
                break
            if text and live.message_id is None:
                await self._open_stream(channel, secrets, recipient, text, live)
                if live.message_id is None:
                    return
            elif text != shown and live.message_id is not None:
                more = channel.build_stream_text(secrets, recipient, live.message_id, text[len(shown) :])
                if not await self._change_stream(channel, more):
                    break
            shown = text
            await asyncio.wait({running}, timeout=_DRAFT_SECONDS)
        if live.message_id is not None:
            end = channel.build_stream_end(secrets, recipient, live.message_id)
            live.is_ended = await self._change_stream(channel, end)

    async def _change_stream(self, channel: StreamingChannel, request: HttpRequest) -> bool:
        response = await self._http.send(request, seconds=_SEND_SECONDS)
        return isinstance(response, HttpResponse) and channel.parse_stream(response) is not None

    async def _open_stream(
        self, channel: StreamingChannel, secrets: Mapping[str, str], recipient: str, text: str, live: LiveStream
    ) -> None:
        request = channel.build_stream(secrets, recipient, text)
        # Until the platform has answered: a view that is cut off must not leave a message that stays.
        live.is_known = False
        response = await self._http.send(request, seconds=_SEND_SECONDS)
        if isinstance(response, HttpResponse):
            live.message_id, live.is_known = channel.parse_stream(response), True
        elif isinstance(response, Transient):
            live.is_known = True

    async def _send(self, request: HttpRequest | None) -> bool:
        if request is None:
            return False
        response = await self._http.send(request, seconds=_SEND_SECONDS)
        return isinstance(response, HttpResponse) and response.status == 200

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _read(stream: AsyncIterator[Event], fold: Fold) -> None:
    with contextlib.suppress(ThreadlineError):
        async for event in stream:
            fold.add(event)
