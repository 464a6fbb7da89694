"""StreamFinisher: a reply that was shown as a stream becomes the message of that stream.

The message is replaced by the stored reply, so that its text is exact whatever was shown. A stream of a process that
has died is looked for on the platform: of the bot's messages, only those of streams are without an id of a delivery.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from threadline.core.channels import OutboxRow
from threadline.core.errors import SettingsInvalid
from threadline.core.platform_messages import Ambiguous, HttpRequest, HttpResponse, Outcome, Permanent, Sent, Transient
from threadline.core.turn_commits import outbox_id
from threadline.messaging.live_streams import LiveStreams
from threadline.ports import Http, StreamingChannel

# A stream is opened while its turn runs, and turns end within hours.
_LONGEST_TURN = dt.timedelta(hours=24)


class StreamFinisher:
    def __init__(self, streams: LiveStreams, http: Http, send_seconds: float) -> None:
        self._streams = streams
        self._http = http
        self._send_seconds = send_seconds

    async def finish(self, channel: StreamingChannel, secrets: Mapping[str, str], row: OutboxRow) -> Outcome | None:
        """None for a row that has to be sent as a message of its own."""
        if row.turn_id is None or not self._streams.is_enabled or not channel.can_stream(row.recipient):
            return None
        try:
            return await self._finish(channel, secrets, row, row.turn_id)
        except SettingsInvalid as exc:
            return Permanent(str(exc))

    async def _finish(
        self, channel: StreamingChannel, secrets: Mapping[str, str], row: OutboxRow, turn_id: str
    ) -> Outcome | None:
        stream = await self._streams.find(turn_id)
        if stream is not None:
            message_id = None if stream.is_finished else stream.message_id
        elif row.id != outbox_id(turn_id, 0):
            return None
        else:
            found = await self._look(channel, secrets, row)
            if isinstance(found, Transient):
                return found
            message_id = found
        if message_id is None:
            return None
        if stream is None or not stream.is_ended:
            # A view that was cut off did not: until then the message cannot be replaced.
            await self._send(channel.build_stream_end(secrets, row.recipient, message_id))
        request = channel.build_stream_reply(secrets, row.recipient, message_id, row.payload, row.id)
        response = await self._send(request)
        if not isinstance(response, HttpResponse):
            return response
        outcome = channel.parse_stream_reply(response)
        if stream is not None and (outcome is None or isinstance(outcome, Sent)):
            stream.is_finished = True
        # Without a message id in the response, later edits must find it nevertheless.
        return Sent(message_id) if isinstance(outcome, Sent) else outcome

    async def _look(
        self, channel: StreamingChannel, secrets: Mapping[str, str], row: OutboxRow
    ) -> str | Transient | None:
        response = await self._send(channel.build_search(secrets, row.recipient, row.queued_at - _LONGEST_TURN, None))
        if isinstance(response, HttpResponse):
            return channel.parse_open_stream(response)
        return Transient(response.reason, is_outage=True)

    async def _send(self, request: HttpRequest) -> HttpResponse | Transient | Ambiguous:
        return await self._http.send(request, seconds=self._send_seconds)
