"""PlatformSender: sends deliveries of one tenant to Slack, Telegram and WhatsApp over HTTP.

A delivery that may have been sent before is looked for first, where the platform can be asked. Elsewhere it is sent
again: twice is better than never.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Mapping
from typing import NamedTuple

from threadline.core.channels import OutboxRow
from threadline.core.errors import NotFound, SettingsInvalid
from threadline.core.platform_messages import (
    Ambiguous,
    HttpResponse,
    LookedUp,
    MessageEdit,
    Outcome,
    Permanent,
    Sent,
    Transient,
    read_edit,
)
from threadline.core.turns import Surface
from threadline.messaging.credentials import Credentials
from threadline.messaging.outbox import find_question
from threadline.messaging.settlement import DeliveryRetry
from threadline.messaging.stream_finisher import StreamFinisher
from threadline.ports import Channel, Clock, EditableChannel, Http, SearchableChannel, StreamingChannel, Transaction

log = logging.getLogger("threadline.outbox")

# Credentials are read and decrypted once for the deliveries of a second, not for each.
_SECRETS_LIFETIME = dt.timedelta(seconds=1)
# A request that was cut off may still be on its way: the platform is asked twice, this far apart, before it is sent
# again.
_LOOK_AGAIN_SECONDS = 1.0
# Clocks differ: messages of the platform are looked for from this long before the reply was enqueued.
_CLOCK_SKEW = dt.timedelta(hours=2)
# Each page has hundreds of messages. A conversation that is busier than that between two attempts is not worth more
# requests.
_MOST_PAGES = 10


class OpenChannel(NamedTuple):
    """A codec with the tenant's credentials."""

    channel: Channel
    secrets: Mapping[str, str]

    def __repr__(self) -> str:
        return f"<open channel {self.channel.platform}>"


class PlatformSender:
    def __init__(
        self,
        tenant_id: str,
        session: Transaction,
        channels: Mapping[Surface, Channel],
        credentials: Credentials,
        http: Http,
        clock: Clock,
        retry: DeliveryRetry,
        finisher: StreamFinisher,
    ) -> None:
        self._finisher = finisher
        self._tenant_id = tenant_id
        self._session = session
        self._channels = channels
        self._credentials = credentials
        self._http = http
        self._clock = clock
        self._retry = retry
        self._opened: dict[Surface, tuple[dt.datetime, OpenChannel]] = {}

    async def send(self, row: OutboxRow) -> Outcome:
        opened = await self._open(row.platform)
        if not isinstance(opened, OpenChannel):
            return opened
        channel = opened.channel
        if (edit := read_edit(row.payload)) is not None:
            return await self._edit(opened, row, edit)
        if row.is_ambiguous and isinstance(channel, SearchableChannel):
            known = await self._find_twice(channel, opened.secrets, row)
            if known is not None:
                return known
        if isinstance(channel, StreamingChannel):
            finished = await self._finisher.finish(channel, opened.secrets, row)
            if finished is not None:
                return finished
        return await self._post(opened, row)

    async def _open(self, platform: Surface) -> OpenChannel | Transient | Permanent:
        """The channel, or the outcome for its rows where it cannot be used."""
        now = self._clock.now()
        read_at, opened = self._opened.get(platform, (None, None))
        if read_at is not None and opened is not None and now - read_at < _SECRETS_LIFETIME:
            return opened
        channel = self._channels.get(platform)
        if channel is None:
            return Transient("the platform is disabled")
        try:
            opened = OpenChannel(channel, await self._credentials.open(self._tenant_id, platform))
        except NotFound:
            return Transient("the platform has no credentials")
        except SettingsInvalid as exc:
            return Permanent(str(exc))
        self._opened[platform] = (now, opened)
        return opened

    async def _edit(self, opened: OpenChannel, row: OutboxRow, edit: MessageEdit) -> Outcome:
        asked = await find_question(self._session, edit.edits)
        if asked is None or asked.message_id is None or not isinstance(opened.channel, EditableChannel):
            # It was never sent, so there is nothing to replace.
            return Sent()
        try:
            request = opened.channel.build_edit(opened.secrets, row.recipient, asked.message_id, edit.payload)
        except SettingsInvalid as exc:
            return Permanent(str(exc))
        response = await self._http.send(request, seconds=self._retry.send_seconds)
        return opened.channel.parse_response(response) if isinstance(response, HttpResponse) else response

    async def _post(self, opened: OpenChannel, row: OutboxRow) -> Outcome:
        try:
            request = opened.channel.build_request(opened.secrets, row.recipient, row.payload, row.id)
        except SettingsInvalid as exc:
            return Permanent(str(exc))
        response = await self._http.send(request, seconds=self._retry.send_seconds)
        return opened.channel.parse_response(response) if isinstance(response, HttpResponse) else response

    async def _find_twice(
        self, channel: SearchableChannel, secrets: Mapping[str, str], row: OutboxRow
    ) -> Sent | Transient | None:
        found = await self._find(channel, secrets, row)
        if found is None:
            # A message that was just sent may be missing from the platform's history for a moment.
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
            found = await self._find(channel, secrets, row)
        return found

    async def _find(
        self, channel: SearchableChannel, secrets: Mapping[str, str], row: OutboxRow
    ) -> Sent | Transient | None:
        """The message that an earlier attempt sent; None if there is none, or the platform refuses to say. Transient if
        it does not answer: then nothing is sent either."""
        page: str | None = None
        for _ in range(_MOST_PAGES):
            try:
                request = channel.build_search(secrets, row.recipient, row.queued_at - _CLOCK_SKEW, page)
            except SettingsInvalid:
                return None
            response = await self._http.send(request, seconds=self._retry.send_seconds)
            if isinstance(response, Ambiguous | Transient):
                return Transient(response.reason, is_outage=True)
            result = channel.parse_search(response, row.id)
            match result:
                case Transient():
                    return result
                case Permanent(reason):
                    log.warning(
                        "earlier attempts cannot be looked for, so the delivery may appear twice: %s",
                        reason,
                        extra={"outbox_id": row.id},
                    )
                    return None
                case LookedUp(found, next_page):
                    if found is not None or next_page is None:
                        return found
                    page = next_page
        return None
