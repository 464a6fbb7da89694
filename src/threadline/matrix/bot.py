"""The bot: one device, one sync, and a queue for every room.

Events of a sync are delivered room by room, in order within a room. The position in the sync is stored when everything
before it is delivered and committed; replies come from the outbox, beside that. Only its operator ends the bot, by a
signal or by revoking its token; what was not delivered by then is delivered at the next start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from typing import Any, TypeAlias

from threadline.clock import SystemClock
from threadline.core.errors import StoreFailed, ThreadlineError, TokenRefused
from threadline.core.platform_messages import Arrival
from threadline.matrix import message_format
from threadline.matrix.allow_list import may_talk
from threadline.matrix.arrivals import ArrivalCompleter
from threadline.matrix.bridge import CLAIM_PERIODS, SURFACE, Bridge, RoomDelivery
from threadline.matrix.device import DeviceFolder, OpenBatch, SyncCursor
from threadline.matrix.encryption import Encryption, EncryptionIncomplete
from threadline.matrix.events_in import (
    Departure,
    RawEvent,
    Reaction,
    Retraction,
    RoomText,
    Unreadable,
    Upgrade,
    VerificationStep,
    accepted_invitation,
    departure,
    invitation,
    is_own_join,
    read,
    read_recipient,
    read_to_device,
)
from threadline.matrix.homeserver import (
    Batch,
    Homeserver,
    HomeserverAway,
    HomeserverRefused,
    RoomBatch,
    retry_until_up,
)
from threadline.matrix.reply_stream import LiveViews
from threadline.matrix.room_sender import RoomSender
from threadline.matrix.room_upgrades import RoomUpgrades
from threadline.matrix.rooms import RoomFactory, RoomReconciler
from threadline.matrix.verification import Verifications
from threadline.messaging.circuit_breaker import CircuitBreaker
from threadline.messaging.delivery_worker import DeliveryWorker
from threadline.messaging.settlement import ROOM_RETRY
from threadline.settings import MatrixSettings

log = logging.getLogger("threadline.matrix")

ReadEvent: TypeAlias = RoomText | Unreadable | Retraction | Reaction | Departure | Upgrade | VerificationStep
Work: TypeAlias = Coroutine[Any, Any, None]

# After an earlier process's claims are over, its replies are sent within a second or two.
_EARLIER_REPLIES_SECONDS = 2.0
# A send takes well under a second; what takes longer is given back, and the next process sends it.
_GRACE_SECONDS = 2.0
# Between attempts to sync: short at first, because most outages are restarts.
_PAUSES = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_UNREADABLE = (
    "I cannot read this message: I do not have its key. I have asked your client for it. If nothing happens, send the "
    "message again; if that does not help, verify this device or write in a room without encryption."
)
_FAILED = "Something went wrong, and this message was not processed. The operator's log has the details."


class Bot:
    def __init__(self, folder: DeviceFolder, homeserver: Homeserver, bridge: Bridge, settings: MatrixSettings) -> None:
        self._folder = folder
        self.homeserver = homeserver
        self._bridge = bridge
        self._settings = settings
        self._encryption = Encryption(homeserver, folder)
        self._verifications = Verifications(homeserver, settings, lambda: self._encryption.master_key)
        self._cursor = SyncCursor(folder)
        self._reconciler = RoomReconciler(bridge, homeserver)
        self._arrivals = ArrivalCompleter(homeserver)
        self._upgrades = RoomUpgrades(bridge, homeserver)
        self._tasks: set[asyncio.Task[None]] = set()
        self._rooms: dict[str, asyncio.Task[None]] = {}
        self._in_flight: set[tuple[str, bool]] = set()
        """Events being processed, and whether they could be read: one whose key arrives while its sender is told that
        it is missing is processed like a new one."""
        self._fault: asyncio.Future[None] | None = None
        """The error that ends the bot."""
        self.ready = asyncio.Event()
        """Set when the first sync is processed."""

    async def run(self) -> None:
        """Until cancelled. HomeserverRefused if the bot cannot log in, SettingsInvalid if the device is in use,
        TokenRefused if the service no longer accepts its token."""
        with self._folder.locked():
            await self._run()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        self._fault = loop.create_future()
        # Replies that an earlier process left come first: until they are sent, no live view may begin.
        earlier = CLAIM_PERIODS * self._settings.recovery_seconds + _EARLIER_REPLIES_SECONDS
        pause = earlier if self._cursor.position else 0.0
        views = LiveViews(self._bridge, self.homeserver, self._settings.edit_seconds, loop.time() + pause)
        sender = RoomSender(self.homeserver, RoomFactory(self.homeserver, self._settings), views)
        breaker = CircuitBreaker(SystemClock(), ROOM_RETRY)
        worker: DeliveryWorker[RoomDelivery] = DeliveryWorker(self._bridge, sender, breaker, [SURFACE])
        self._views = views
        listening = asyncio.create_task(self._listen(worker))
        recovering = asyncio.create_task(self._recover())
        try:
            await asyncio.wait({listening, self._fault}, return_when=asyncio.FIRST_COMPLETED)
            await (self._fault if self._fault.done() else listening)
        finally:
            tasks = [listening, recovering, *self._tasks, *self._rooms.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await worker.close(_GRACE_SECONDS)
            await views.close()
            await self.homeserver.close()

    async def _listen(self, worker: DeliveryWorker[RoomDelivery]) -> None:
        await retry_until_up(self.homeserver.log_in)
        await self._set_up_encryption()
        position = await self._catch_up()
        self.ready.set()
        # After the first sync: before it, the homeserver client knows no rooms to send to.
        self._start(None, worker.run())
        while True:
            position = await self._next(position)

    async def _set_up_encryption(self) -> None:
        """Rooms without encryption work without it, so a failure is only logged."""
        try:
            await retry_until_up(lambda: self._encryption.set_up(self._settings.password))
        except (EncryptionIncomplete, HomeserverRefused) as exc:
            log.warning("clients that accept only signed devices do not accept this bot: %s", exc)

    async def _end_with(self, exc: TokenRefused) -> None:
        """Ends the bot. What was being processed is not marked as done."""
        assert self._fault is not None
        if not self._fault.done():
            self._fault.set_exception(exc)
        await asyncio.Event().wait()

    async def _catch_up(self) -> str:
        """The first sync of a process has every room. Without a stored position there is nothing to answer: those
        messages were written before the bot existed."""
        since = self._cursor.position
        batch: Batch = await retry_until_up(lambda: self.homeserver.sync(since, wait_seconds=0, full_state=True))
        await retry_until_up(lambda: self._reconciler.reconcile(batch))
        # An earlier process may have joined a room and not delivered the invitation; the inbox knows a repeat.
        me = self.homeserver.user_id
        invites = {room.room_id: by for room, event in _events(batch) if (by := accepted_invitation(event, me))}
        # It may also have got keys and not read the messages they belong to.
        await self._process(batch._replace(invites={**batch.invites, **invites}, has_keys=True), since)
        return batch.position

    async def _next(self, since: str) -> str:
        attempt = 0
        while True:
            try:
                batch = await self.homeserver.sync(since, wait_seconds=self._settings.sync_seconds)
                await self._process(batch, since)
                self._start(None, self._encryption.back_up())
                return batch.position
            except HomeserverAway as exc:
                log.warning("homeserver away: %s", exc)
                # Longer each time, so that a homeserver that starts is not met by every bot at once.
                await asyncio.sleep(_PAUSES[min(attempt, len(_PAUSES) - 1)])
                attempt += 1
            except HomeserverRefused as exc:
                if exc.code != "M_UNKNOWN_TOKEN":
                    raise
                log.warning("logged out by the homeserver")
                await retry_until_up(self.homeserver.log_in)

    async def _process(self, batch: Batch, since: str | None) -> None:
        opened = self._cursor.begin(batch.position)
        for room_id, inviter in batch.invites.items():
            self._delay(room_id, self._start(opened, self._answer_invite(room_id, inviter)))
        if since is not None:
            for room in batch.rooms:
                events = await self._complete(room, since)
                self._enqueue(opened, room.room_id, events)
        for step in filter(None, map(read_to_device, batch.to_device)):
            self._start(opened, self._verifications.take(step))
        if batch.has_keys:
            for room_id, event_id in self._cursor.unread:
                self._start(opened, self._read_again(opened, room_id, event_id))
        opened.done()

    async def _answer_invite(self, room_id: str, inviter: str) -> None:
        """Joins where a user on the allow list invites the bot, and declines every other invitation."""
        if not may_talk(self._settings, inviter):
            log.info("invitation declined", extra={"place": room_id, "matrix_id": inviter})
            await retry_until_up(lambda: self.homeserver.leave(room_id))
            return
        await retry_until_up(lambda: self.homeserver.join(room_id))
        await self._upgrades.arrive(room_id)
        await retry_until_up(lambda: self._bridge.deliver(invitation(room_id, inviter)))

    async def _complete(self, room: RoomBatch, since: str) -> list[RawEvent]:
        """The events with those that the sync left out, and without those from before the bot joined."""
        left_out: list[RawEvent] = []
        if room.before is not None and not any(is_own_join(event, self.homeserver.user_id) for event in room.events):
            left_out = await self._left_out(room.room_id, room.before, since)
        events = [*left_out, *room.events]
        joined = [index for index, event in enumerate(events) if is_own_join(event, self.homeserver.user_id)]
        return events[joined[-1] + 1 :] if joined else events

    async def _left_out(self, room_id: str, before: str, since: str) -> list[RawEvent]:
        try:
            return await retry_until_up(lambda: self.homeserver.events_between(room_id, before, since))
        except HomeserverRefused as exc:
            log.warning("gap in a room not filled: %s", exc, extra={"place": room_id})
            return []

    def _enqueue(self, opened: OpenBatch, room_id: str, events: list[RawEvent]) -> None:
        """Processes events in order, after those of the room that are being processed."""
        found: list[ReadEvent] = []
        for event in events:
            each = read(
                room_id, event, self.homeserver.user_id, self.homeserver.display_name(room_id, self.homeserver.user_id)
            )
            if each is not None and _identity(each) not in self._in_flight:
                self._in_flight.add(_identity(each))
                opened.add()
                found.append(each)
        if found:
            earlier = self._rooms.get(room_id)
            self._enter(room_id, asyncio.create_task(self._work(opened, found, earlier), name=f"room {room_id}"))

    def _enter(self, room_id: str, task: asyncio.Task[None]) -> None:
        """Events of the room are processed after this task."""
        self._rooms[room_id] = task
        task.add_done_callback(lambda done: self._rooms.pop(room_id) if self._rooms.get(room_id) is done else None)

    def _delay(self, room_id: str, joining: asyncio.Task[None]) -> None:
        """What is written in a room that the bot joins is processed after its threads were moved there."""
        if room_id not in self._rooms:
            self._enter(room_id, joining)

    async def _work(self, opened: OpenBatch, found: list[ReadEvent], earlier: asyncio.Task[None] | None) -> None:
        if earlier is not None:
            await asyncio.wait({earlier})
        for each in found:
            if isinstance(each, Unreadable):
                self._cursor.remember_unread(each.room_id, each.event_id)
                # Beside the room's order: the messages after it need not wait for the advice.
                self._start(opened, self._advise(each), each)
            elif isinstance(each, Departure):
                await self._see_off(each)
                self._end(opened, each)
            elif isinstance(each, Upgrade):
                self._delay(each.replacement, self._start(opened, self._upgrades.follow(each), each))
            elif isinstance(each, VerificationStep):
                self._start(opened, self._verifications.take(each), each)
            else:
                await self._deliver(each)
                self._end(opened, each)

    async def _see_off(self, gone: Departure) -> None:
        """Frees the thread of a user who left, and leaves a room without people."""
        arrival = departure(gone.room_id, gone.sender, gone.event_id)
        try:
            await retry_until_up(lambda: self._bridge.deliver(arrival))
            if await retry_until_up(lambda: self.homeserver.is_empty(gone.room_id)):
                await retry_until_up(lambda: self.homeserver.leave(gone.room_id))
                log.info("empty room left", extra={"place": gone.room_id})
        except TokenRefused as exc:
            await self._end_with(exc)
        except (HomeserverRefused, ThreadlineError) as exc:
            log.warning("departure not processed: %s", exc, extra={"place": gone.room_id})

    async def _deliver(self, each: RoomText | Retraction | Reaction) -> None:
        """Delivers an event for the inbox, and begins the live view of the turn that it begins."""
        if not may_talk(self._settings, each.sender):
            return
        arrival = await self._arrivals.complete(each)
        if arrival is None:
            return
        try:
            turn = await retry_until_up(lambda: self._bridge.deliver(arrival))
        except TokenRefused as exc:
            await self._end_with(exc)
            return
        except Exception:
            log.exception("message not delivered", extra={"place": each.room_id})
            self._start(None, self._apologise(arrival))
            return
        if turn is not None:
            self._views.start(turn, read_recipient(arrival.recipient))
        if isinstance(each, RoomText):
            self._start(None, self.homeserver.mark_read(each.room_id, each.event_id))

    async def _apologise(self, arrival: Arrival) -> None:
        await self._notify(arrival.place, arrival.key, _FAILED, f"{arrival.key}.failed")

    async def _advise(self, unreadable: Unreadable) -> None:
        """Asks for the key, and tells the sender what to do."""
        if not may_talk(self._settings, unreadable.sender):
            return
        room_id, event_id = unreadable.room_id, unreadable.event_id
        await retry_until_up(lambda: self.homeserver.ask_for_key(room_id, unreadable.event))
        await self._notify(room_id, event_id, _UNREADABLE, f"{event_id}.unreadable")

    async def _notify(self, room_id: str, event_id: str, text: str, transaction_id: str) -> None:
        """A notice of the bot's own, in reply to an event that the inbox does not have."""
        content = message_format.answering(message_format.message(text, notice=True), event_id, None)
        await retry_until_up(lambda: self.homeserver.send(room_id, content, transaction_id))

    def _end(self, opened: OpenBatch, each: ReadEvent | None) -> None:
        if each is not None:
            self._in_flight.discard(_identity(each))
        if isinstance(each, RoomText):
            # Only now that it is delivered: until then, a next process must know that it was never read.
            self._cursor.forget_unread(each.room_id, each.event_id)
        opened.done()

    async def _read_again(self, opened: OpenBatch, room_id: str, event_id: str) -> None:
        try:
            event = await retry_until_up(lambda: self.homeserver.event(room_id, event_id))
        except HomeserverRefused:
            # It was redacted, or the bot is no longer in the room.
            self._cursor.forget_unread(room_id, event_id)
            return
        found = read(room_id, event, self.homeserver.user_id)
        if found is None:
            self._cursor.forget_unread(room_id, event_id)
        elif not isinstance(found, Unreadable):
            self._enqueue(opened, room_id, [event])

    def _start(self, opened: OpenBatch | None, work: Work, each: ReadEvent | None = None) -> asyncio.Task[None]:
        """Runs work beside the rooms' queues; an event in it is counted in its batch already."""
        if opened is not None and each is None:
            opened.add()

        async def run() -> None:
            try:
                await work
            except TokenRefused as exc:
                await self._end_with(exc)
            except (HomeserverRefused, ThreadlineError) as exc:
                log.warning("task failed: %s", exc)
            except Exception:
                log.exception("task failed")
            # Not after a cancellation: what was interrupted is processed again by the next process.
            if opened is not None:
                self._end(opened, each)

        task = asyncio.create_task(run())
        # A task that is cancelled before its first step never awaits its work.
        task.add_done_callback(lambda _: work.close())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _recover(self) -> None:
        """Continues what an earlier process of this bot, or another process, left."""
        while True:
            try:
                await self._bridge.recover()
            except StoreFailed as exc:
                log.warning("recovery failed: %s", exc)
            # Turns whose process died produce no event here, so they are looked for.
            await asyncio.sleep(self._settings.recovery_seconds)


def _identity(each: ReadEvent) -> tuple[str, bool]:
    return each.event_id, not isinstance(each, Unreadable)


def _events(batch: Batch) -> Iterator[tuple[RoomBatch, RawEvent]]:
    return ((room, event) for room in batch.rooms for event in room.events)
