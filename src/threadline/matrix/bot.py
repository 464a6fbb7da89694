"""The bot: one device, one sync, and a queue for every room.

What a sync brings is worked on room by room, in order within a room; answers are told beside that. The place in the
sync is kept when everything before it is answered. Only its operator ends it, by a signal or by taking its token away;
what was not answered by then is answered in the next life.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeAlias

from threadline.core.errors import StoreFailed, ThreadlineError, TokenRefused
from threadline.matrix.device import DeviceFolder
from threadline.matrix.event_handler import Hearing, Rest, through_faults
from threadline.matrix.events import RawEvent, Said, TakenBack, Unreadable, is_own_join, read, taken_invitation
from threadline.matrix.homeserver import Batch, Homeserver, HomeserverAway, HomeserverRefused, RoomBatch
from threadline.matrix.invites import Inviting
from threadline.matrix.room_reconciler import Reconciling
from threadline.matrix.sync_cursor import OpenBatch, Tracking
from threadline.settings import MatrixSettings

log = logging.getLogger("threadline.matrix")

Heard: TypeAlias = Said | Unreadable | TakenBack

_PAUSES = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class Bot:
    def __init__(
        self,
        folder: DeviceFolder,
        homeserver: Homeserver,
        hearing: Hearing,
        inviting: Inviting,
        reconciling: Reconciling,
        tracking: Tracking,
        sweep: Callable[[], Awaitable[object]],
        settings: MatrixSettings,
    ) -> None:
        self._folder = folder
        self.homeserver = homeserver
        self._hearing = hearing
        self._inviting = inviting
        self._reconciling = reconciling
        self._tracking = tracking
        self._sweep = sweep
        self._settings = settings
        self._tasks: set[asyncio.Task[None]] = set()
        self._rooms: dict[str, asyncio.Task[None]] = {}
        self._in_hand: set[tuple[str, bool]] = set()
        """What is being worked on: the event, and whether it could be read. One whose key comes while its sender is
        told that it cannot be read is heard like a new one."""
        self._fault: asyncio.Future[None] | None = None
        """What it ends with."""
        self.ready = asyncio.Event()
        """Set when the bot has caught up with the homeserver for the first time."""

    async def run(self) -> None:
        """Until it is cancelled. HomeserverRefused if nobody can log in like this, SettingsInvalid if the device is in
        use, TokenRefused if the service no longer takes its token."""
        with self._folder.held():
            await self._run()

    async def _run(self) -> None:
        self._fault = asyncio.get_running_loop().create_future()
        sweeping, listening = asyncio.create_task(self._keep_sweeping()), asyncio.create_task(self._listen())
        try:
            await asyncio.wait({listening, self._fault}, return_when=asyncio.FIRST_COMPLETED)
            await (self._fault if self._fault.done() else listening)
        finally:
            tasks = [listening, sweeping, *self._tasks, *self._rooms.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.homeserver.close()

    async def _listen(self) -> None:
        await through_faults(self.homeserver.log_in)
        position = await self._catch_up()
        self.ready.set()
        while True:
            position = await self._next(position)

    async def _end_with(self, exc: TokenRefused) -> None:
        """Ends the bot, and with it whoever waits here. What was being heard is not done."""
        assert self._fault is not None
        if not self._fault.done():
            self._fault.set_exception(exc)
        await asyncio.Event().wait()

    async def _catch_up(self) -> str:
        """The first sync of this life tells of every room. One without a place to go on from has nothing to answer:
        what it holds was said before the bot was there."""
        since = self._tracking.position
        batch: Batch = await through_faults(lambda: self.homeserver.sync(since, wait_seconds=0, full_state=True))
        await through_faults(lambda: self._reconciling.reconcile(batch))
        # An earlier life may have joined and not come to say hello; a second hello is the same event as the first.
        me = self.homeserver.user_id
        invites = {room.room_id: by for room, event in _events(batch) if (by := taken_invitation(event, me))}
        # Nor may it have come to read again what keys of its last moment belonged to.
        await self._take(batch._replace(invites={**batch.invites, **invites}, has_keys=True), since)
        return batch.position

    async def _next(self, since: str) -> str:
        attempt = 0
        while True:
            try:
                batch = await self.homeserver.sync(since, wait_seconds=self._settings.sync_seconds)
                await self._take(batch, since)
                return batch.position
            except HomeserverAway as exc:
                log.warning("homeserver away: %s", exc)
                await asyncio.sleep(_PAUSES[min(attempt, len(_PAUSES) - 1)])
                attempt += 1
            except HomeserverRefused as exc:
                if exc.code != "M_UNKNOWN_TOKEN":
                    raise
                log.warning("logged out by the homeserver")
                await through_faults(self.homeserver.log_in)

    async def _take(self, batch: Batch, since: str | None) -> None:
        opened = self._tracking.begin(batch.position)
        for room_id, inviter in batch.invites.items():
            self._start(opened, self._invited(room_id, inviter))
        if since is not None:
            for room in batch.rooms:
                events = await self._complete(room, since)
                self._enqueue(opened, room.room_id, events)
        if batch.has_keys:
            for room_id, event_id in self._tracking.unread:
                self._start(opened, self._read_again(opened, room_id, event_id))
        opened.done()

    async def _invited(self, room_id: str, inviter: str) -> None:
        await through_faults(lambda: self._inviting.answer(room_id, inviter))

    async def _complete(self, room: RoomBatch, since: str) -> list[RawEvent]:
        """With what the sync left out, and without what was said before the bot came."""
        left_out: list[RawEvent] = []
        if room.before is not None and not any(is_own_join(event, self.homeserver.user_id) for event in room.events):
            left_out = await self._left_out(room.room_id, room.before, since)
        events = [*left_out, *room.events]
        joined = [index for index, event in enumerate(events) if is_own_join(event, self.homeserver.user_id)]
        return events[joined[-1] + 1 :] if joined else events

    async def _left_out(self, room_id: str, before: str, since: str) -> list[RawEvent]:
        try:
            found: list[RawEvent] = await through_faults(lambda: self.homeserver.events_between(room_id, before, since))
            return found
        except HomeserverRefused as exc:
            log.warning("a gap was not filled: %s", exc, extra={"place": room_id})
            return []

    def _enqueue(self, opened: OpenBatch, room_id: str, events: list[RawEvent]) -> None:
        """After what is being done in the room, in order."""
        heard: list[Heard] = []
        for event in events:
            found = read(room_id, event, self.homeserver.user_id, self.homeserver.display_name(room_id))
            if found is not None and _hold(found) not in self._in_hand:
                self._in_hand.add(_hold(found))
                opened.add()
                heard.append(found)
        if heard:
            earlier = self._rooms.get(room_id)
            task = asyncio.create_task(self._work(opened, heard, earlier), name=f"room {room_id}")
            self._rooms[room_id] = task
            task.add_done_callback(lambda done: self._rooms.pop(room_id) if self._rooms[room_id] is done else None)

    async def _work(self, opened: OpenBatch, heard: list[Heard], earlier: asyncio.Task[None] | None) -> None:
        if earlier is not None:
            await asyncio.wait({earlier})
        for each in heard:
            rest = await self._hear(each)
            if rest is None:
                self._end(opened, each)
            else:
                self._start(opened, rest, each)

    def _end(self, opened: OpenBatch, heard: Heard | None) -> None:
        if heard is not None:
            self._in_hand.discard(_hold(heard))
        if isinstance(heard, Said):
            # Only now that it is answered: until then, a next life must know that it was never read.
            self._tracking.forget_unread(heard.room_id, heard.event_id)
        opened.done()

    async def _hear(self, heard: Heard) -> Rest | None:
        """What must be done in order is done; what may be done beside the next is returned."""
        if isinstance(heard, Unreadable):
            self._tracking.remember_unread(heard.room_id, heard.event_id)
            return through_faults(lambda: self._hearing.hear_unreadable(heard))
        try:
            rest: Rest | None = await through_faults(lambda: self._hearing.hear(heard))
            return rest
        except TokenRefused as exc:
            await self._end_with(exc)
            return None
        except Exception:
            log.exception("a message could not be answered", extra={"place": heard.room_id})
            return self._hearing.apologise(heard) if isinstance(heard, Said) else None

    async def _read_again(self, opened: OpenBatch, room_id: str, event_id: str) -> None:
        try:
            event = await through_faults(lambda: self.homeserver.event(room_id, event_id))
        except HomeserverRefused:
            # It was redacted, or the room is closed to the bot by now.
            self._tracking.forget_unread(room_id, event_id)
            return
        found = read(room_id, event, self.homeserver.user_id)
        if found is None:
            self._tracking.forget_unread(room_id, event_id)
        elif not isinstance(found, Unreadable):
            self._enqueue(opened, room_id, [event])

    def _start(self, opened: OpenBatch, work: Rest, heard: Heard | None = None) -> None:
        """TransactionBody beside the rooms' own order; what was heard is counted in its batch already."""
        if heard is None:
            opened.add()

        async def whole() -> None:
            try:
                await work
            except TokenRefused as exc:
                await self._end_with(exc)
            except (HomeserverRefused, ThreadlineError) as exc:
                log.warning("given up: %s", exc)
            except Exception:
                log.exception("given up")
            # Not after a cancellation: what was cut off is heard again in the next life.
            self._end(opened, heard)

        task = asyncio.create_task(whole())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _keep_sweeping(self) -> None:
        """What an earlier life of this bot, or another process, left behind."""
        while True:
            try:
                await self._sweep()
            except StoreFailed as exc:
                log.warning("sweeping: %s", exc)
            await asyncio.sleep(self._settings.recovery_seconds)


def _hold(heard: Heard) -> tuple[str, bool]:
    return heard.event_id, not isinstance(heard, Unreadable)


def _events(batch: Batch) -> Iterator[tuple[RoomBatch, RawEvent]]:
    return ((room, event) for room in batch.rooms for event in room.events)
