"""Live view of replies: while the agent writes, a typing notice and one message that is edited about once a second.

A live view may be lost: the outbox row of the reply is what must arrive. Transaction ids follow from the turn, so the
row's delivery finds the message that the live view sent and edits it, also after a restart.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator

from threadline.core.errors import ThreadlineError
from threadline.core.event_fold import Fold
from threadline.core.events import Event
from threadline.core.reply_text import reply_markdown
from threadline.matrix import message_format
from threadline.matrix.bridge import Bridge, RunningTurn
from threadline.matrix.events_in import Content, ReplyTarget
from threadline.matrix.homeserver import Homeserver, HomeserverAway, HomeserverRefused

log = logging.getLogger("threadline.matrix")

# Shorter than the notice lasts on the homeserver, so that it does not flicker.
_TYPING_SECONDS = 20.0
# Replies that arrive sooner need no typing notice.
_THINKING_SECONDS = 0.3
# How long the views of later turns wait for a reply whose turn has ended: its row may never come.
_ROW_SECONDS = 30.0
# Views whose row never came must not use memory for ever.
_MOST_VIEWS = 1_000


class RoomReply:
    """One reply in a room: its messages so far, and how to change them. `may_exist` says that an earlier process may
    have sent some of them."""

    def __init__(self, homeserver: Homeserver, target: ReplyTarget, name: str, *, may_exist: bool = False) -> None:
        self._homeserver = homeserver
        self.target = target
        self._name = name
        self._may_exist = may_exist
        self._sent: list[tuple[str, str]] = []
        """The messages so far: event ids, and what they say."""
        self._tried: dict[int, set[str]] = {}
        """What was sent as each message, confirmed or not."""

    async def show(
        self, pieces: list[str], *, is_final: bool, is_notice: bool = False, question: str | None = None
    ) -> None:
        """Makes the messages say these pieces. The last asks for an approval if there is a `question`, its token.
        HomeserverAway: call it again. HomeserverRefused."""
        for number, piece in enumerate(pieces):
            asked = question if number == len(pieces) - 1 else None
            content = message_format.message(piece, notice=is_notice, question=asked)
            if number == len(self._sent):
                tried = self._tried.setdefault(number, set())
                tried.add(piece)
                event_id = await self._homeserver.send(
                    self.target.room_id, self._related(content), f"{self._name}.{number}"
                )
                # A transaction id that was used before gives the earlier event, with its earlier text. If the text of
                # that event is not certain, it is edited.
                self._sent.append((event_id, piece if tried == {piece} and not self._may_exist else ""))
            event_id, text = self._sent[number]
            if text != piece:
                transaction_id = f"{self._name}.{number}.final" if is_final else secrets.token_hex(8)
                edit = message_format.edit(content, event_id)
                await self._homeserver.send(self.target.room_id, edit, transaction_id)
                self._sent[number] = (event_id, piece)
        while is_final and len(self._sent) > len(pieces):
            await self._homeserver.redact(self.target.room_id, self._sent[-1][0])
            self._sent.pop()

    @property
    def event_ids(self) -> list[str]:
        return [event_id for event_id, _ in self._sent]

    def _related(self, content: Content) -> Content:
        if self.target.event_id is None:
            return content
        return message_format.answering(content, self.target.event_id, self.target.thread)


class LiveView:
    """The view of one running turn. It begins when the view before it in the same room is over, so that replies
    appear in the order of their questions."""

    def __init__(self, reply: RoomReply, previous: LiveView | None) -> None:
        self.reply = reply
        self.over = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self._previous = previous

    async def follow(self, bridge: Bridge, turn: RunningTurn, homeserver: Homeserver, edit_seconds: float) -> None:
        if self._previous is not None:
            await self._previous.over.wait()
            self._previous = None
        fold, typing = Fold(), asyncio.create_task(_type(homeserver, self.reply.target.room_id))
        reading = asyncio.create_task(_read(bridge.stream(turn), fold))
        try:
            # A reply that is complete within one edit period is sent as one message, by its row.
            while not (await asyncio.wait({reading}, timeout=edit_seconds))[0]:
                pieces = message_format.pieces(reply_markdown(fold.parts()))
                with contextlib.suppress(HomeserverAway, HomeserverRefused):
                    await self.reply.show(pieces, is_final=False)
            await reading
        except ThreadlineError as exc:
            log.info("live view lost: %s", exc, extra={"turn_id": turn.turn_id})
        finally:
            for task in (reading, typing):
                task.cancel()
            await asyncio.gather(reading, typing, return_exceptions=True)
            if fold.is_empty:
                # Nothing to finish: another turn took the message in, and its reply is that one's.
                self.over.set()
            # The delivered row finishes the message; if none comes, the view must not wait for it for ever.
            asyncio.get_running_loop().call_later(_ROW_SECONDS, self.over.set)


class LiveViews:
    """The views of this process, by turn. `starts_at`: not before this time of the event loop, because replies of an
    earlier process may have to be sent first."""

    def __init__(self, bridge: Bridge, homeserver: Homeserver, edit_seconds: float, starts_at: float) -> None:
        self._bridge = bridge
        self._homeserver = homeserver
        self._edit_seconds = edit_seconds
        self._starts_at = starts_at
        self._views: dict[str, LiveView] = {}
        self._latest: dict[str, LiveView] = {}

    def start(self, turn: RunningTurn, target: ReplyTarget) -> None:
        latest = self._latest.get(target.room_id)
        view = LiveView(RoomReply(self._homeserver, target, turn.turn_id), latest)
        self._views[turn.turn_id] = self._latest[target.room_id] = view
        while len(self._views) > _MOST_VIEWS:
            self._views.pop(next(iter(self._views)))
        if asyncio.get_running_loop().time() >= self._starts_at:
            following = view.follow(self._bridge, turn, self._homeserver, self._edit_seconds)
            view.task = asyncio.create_task(following, name=f"live view {turn.turn_id}")

    async def stop(self, turn_id: str) -> LiveView | None:
        """Ends the view of a turn whose reply is delivered now; None if this process has none."""
        view = self._views.get(turn_id)
        if view is not None and view.task is not None:
            view.task.cancel()
            await asyncio.gather(view.task, return_exceptions=True)
        return view

    def forget(self, turn_id: str) -> None:
        """The reply is delivered: the next view in the room may begin."""
        view = self._views.pop(turn_id, None)
        if view is not None:
            view.over.set()
            if self._latest.get(view.reply.target.room_id) is view:
                del self._latest[view.reply.target.room_id]

    async def close(self) -> None:
        tasks = [view.task for view in self._views.values() if view.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _read(reply: AsyncIterator[Event], fold: Fold) -> None:
    async for event in reply:
        fold.add(event)


async def _type(homeserver: Homeserver, room_id: str) -> None:
    """Shows the typing notice until cancelled."""
    await asyncio.sleep(_THINKING_SECONDS)
    try:
        while True:
            with contextlib.suppress(HomeserverAway, HomeserverRefused):
                await homeserver.typing(room_id, True)
            # Before the notice expires on the homeserver.
            await asyncio.sleep(_TYPING_SECONDS)
    finally:
        with contextlib.suppress(HomeserverAway, HomeserverRefused):
            await homeserver.typing(room_id, False)
