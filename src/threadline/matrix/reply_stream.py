"""Telling: one reply in one room, as it is written and as it ended.

While the agent writes there is a typing notice, and one message that is edited about once a second. What was stored in
the end is what the message says in the end. Transaction ids follow from the turn, so whoever tells it again after a
crash changes that message and does not write a second one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable

from threadline.core.event_fold import Fold
from threadline.core.events import Event
from threadline.matrix import message_format as rendering
from threadline.matrix.events import Content, Said
from threadline.matrix.homeserver import Homeserver, HomeserverAway, HomeserverRefused
from threadline.messaging.chat_contexts import ChatContexts
from threadline.ports import Answered

log = logging.getLogger("threadline.matrix")

_RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0)
_TYPING_SECONDS = 20.0
_THINKING_SECONDS = 0.3
"""An answer that is there sooner needs no typing notice."""


class Telling:
    """Tells one reply. `was_told` says that an earlier life of the bot may have begun to."""

    def __init__(
        self, homeserver: Homeserver, said: Said, turn_id: str, *, edit_seconds: float, quotes: bool, was_told: bool
    ) -> None:
        self._homeserver = homeserver
        self._said = said
        self._turn_id = turn_id
        self._edit_seconds = edit_seconds
        self._quotes = quotes
        self._was_told = was_told
        self._told: list[tuple[str, str]] = []
        """The messages so far: their event ids, and what they say."""
        self._tried: dict[int, set[str]] = {}
        """What was sent as each message, whether or not the homeserver said that it has it."""

    async def follow(self, platform: ChatContexts) -> None:
        """Shows the answer while it is written. The homeserver being away only costs the show."""
        fold, typing = Fold(), asyncio.create_task(self._type())
        reading = asyncio.create_task(_read(platform.stream_message(self._turn_id), fold))
        try:
            # A short answer is told in one message, when it is there.
            while not (await asyncio.wait({reading}, timeout=self._edit_seconds))[0]:
                with contextlib.suppress(HomeserverAway, HomeserverRefused):
                    await self._show(rendering.pieces(rendering.spoken(fold.parts())), final=False)
            await reading
        finally:
            for task in (reading, typing):
                task.cancel()
            await asyncio.gather(reading, typing, return_exceptions=True)

    async def conclude(self, answered: Answered) -> None:
        """Says what the turn came to, until the homeserver has it. HomeserverRefused if it will not."""
        turn, message = answered
        text = rendering.spoken(message.parts) if message is not None else ""
        failed = turn.error if turn.status != "executed" else None
        if failed:
            text = f"{text}\n\n*{_sentence(failed)}*" if text else _sentence(failed)
        shown = rendering.pieces(text) or ["(no answer)"]
        is_notice = message is None
        await patiently(lambda: self._show(shown, final=True, notice=is_notice))

    async def _show(self, pieces: list[str], *, final: bool, notice: bool = False) -> None:
        for number, piece in enumerate(pieces):
            content = rendering.message(piece, notice=notice)
            if number == len(self._told):
                sent, tried = self._related(content), self._tried.setdefault(number, set())
                tried.add(piece)
                event_id = await self._homeserver.send(self._said.room_id, sent, f"{self._turn_id}.{number}")
                # What was sent under this id before stays as it was. An earlier life's words are not known here; nor
                # is which of its own the homeserver took, if it did not say so and they have become more since.
                self._told.append((event_id, piece if tried == {piece} and not self._was_told else ""))
            event_id, said = self._told[number]
            if said != piece:
                transaction_id = f"{self._turn_id}.{number}.final" if final else secrets.token_hex(8)
                await self._homeserver.send(self._said.room_id, rendering.edit(content, event_id), transaction_id)
                self._told[number] = (event_id, piece)
        while final and len(self._told) > len(pieces):
            await self._homeserver.redact(self._said.room_id, self._told[-1][0])
            self._told.pop()

    def _related(self, content: Content) -> Content:
        if not self._quotes and self._said.thread is None:
            return content
        return rendering.answering(content, self._said.event_id, self._said.thread)

    async def _type(self) -> None:
        """Until it is cancelled, and then no longer."""
        await asyncio.sleep(_THINKING_SECONDS)
        try:
            while True:
                with contextlib.suppress(HomeserverAway, HomeserverRefused):
                    await self._homeserver.typing(self._said.room_id, True)
                await asyncio.sleep(_TYPING_SECONDS)
        finally:
            with contextlib.suppress(HomeserverAway, HomeserverRefused):
                await self._homeserver.typing(self._said.room_id, False)


async def _read(answer: AsyncIterator[Event], fold: Fold) -> None:
    async for event in answer:
        fold.add(event)


async def patiently(send: Callable[[], Awaitable[None]]) -> None:
    """Again and again while the homeserver is away. HomeserverRefused is for the caller."""
    attempt = 0
    while True:
        try:
            await send()
            return
        except HomeserverAway as exc:
            pause = _RETRY_SECONDS[min(attempt, len(_RETRY_SECONDS) - 1)]
            attempt += 1
            log.info("homeserver away: %s", exc)
            await asyncio.sleep(pause)


def _sentence(error: str) -> str:
    return f"The agent could not answer: {error.rstrip('.')}."
