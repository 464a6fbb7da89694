"""LiveStreams: which turns of this process are shown as a stream, and as which message on the platform.

The reply's delivery finishes that message instead of sending another one. Nothing of this is stored: a process that
does not know a turn asks the platform.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass

# Far more than the turns that run at the same time; those before have been delivered.
_MOST_TURNS = 10_000
# A view ends with its turn, after the request that is on its way.
_END_SECONDS = 15.0


@dataclass
class LiveStream:
    view: asyncio.Task[None] | None = None
    message_id: str | None = None
    is_known: bool = True
    """False while it is not known whether the platform has opened the stream."""
    is_ended: bool = False
    """The platform adds nothing to the message, so that it can be replaced."""
    is_finished: bool = False
    """Its message has become the reply."""


class LiveStreams:
    def __init__(self, *, is_enabled: bool) -> None:
        self.is_enabled = is_enabled
        self._streams: OrderedDict[str, LiveStream] = OrderedDict()

    def add(self, turn_id: str) -> LiveStream:
        stream = self._streams[turn_id] = LiveStream()
        if len(self._streams) > _MOST_TURNS:
            self._streams.popitem(last=False)
        return stream

    async def find(self, turn_id: str) -> LiveStream | None:
        """Once its view has ended. None for a turn that another process showed."""
        stream = self._streams.get(turn_id)
        if stream is not None and stream.view is not None:
            await asyncio.wait({stream.view}, timeout=_END_SECONDS)
        return stream if stream is not None and stream.is_known else None
