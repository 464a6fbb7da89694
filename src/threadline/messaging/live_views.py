"""LiveViews: signs of life on a platform while a reply is written.

Where the platform has drafts, the reply is shown as far as it is written; elsewhere people see that it is being
written. A view may be lost: it ends with the turn or with this process, nothing of it is stored, and no delivery waits
for it. What arrives for certain is the reply's outbox row.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping

from threadline.core.errors import ThreadlineError
from threadline.core.event_fold import Fold
from threadline.core.events import Event
from threadline.core.parts import plain_text
from threadline.core.platform_messages import Arrival, HttpRequest, HttpResponse
from threadline.core.threads import Scope
from threadline.core.turns import Surface, Turn
from threadline.messaging.credentials import Credentials
from threadline.ports import Channel, Http, LiveChannel

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
        self._tasks: set[asyncio.Task[None]] = set()

    def follow(
        self,
        scope: Scope,
        arrival: Arrival,
        running: asyncio.Future[Turn | None],
        stream: Callable[[], AsyncIterator[Event]],
    ) -> None:
        """Shows the reply to this arrival until its turn, which runs in this process, has ended."""
        channel = self._channels.get(arrival.platform) if self._after_seconds > 0 else None
        if not isinstance(channel, LiveChannel):
            return
        showing = self._show(scope.tenant_id, channel, arrival, running, stream)
        task = asyncio.create_task(showing, name=f"live view of {arrival.platform}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _show(
        self,
        tenant_id: str,
        channel: LiveChannel,
        arrival: Arrival,
        running: asyncio.Future[Turn | None],
        stream: Callable[[], AsyncIterator[Event]],
    ) -> None:
        if (await asyncio.wait({running}, timeout=self._after_seconds))[0]:
            return
        fold = Fold()
        reading = asyncio.create_task(_read(stream(), fold)) if channel.has_drafts(arrival) else None
        try:
            secrets = await self._credentials.open(tenant_id, channel.platform)
            await self._repeat(channel, secrets, arrival, running, fold)
        except ThreadlineError as exc:
            log.info("no live view: %s", exc, extra={"platform": channel.platform})
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
