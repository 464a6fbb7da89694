"""SocketMode: receives deliveries over a WebSocket to the platform, for a machine without a public address.

A delivery is acknowledged after it is stored. What was not acknowledged when a connection or this process ends, the
platform delivers again, and the inbox recognises it. The platform asks for a new connection now and then: it is opened
before the old one is closed, which delivers what the platform has given it. Several processes may be connected; the
platform sends each delivery to one of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from threadline.core.errors import SettingsInvalid, StoreFailed
from threadline.core.ids import new_id
from threadline.core.platform_messages import Ambiguous, Permanent, SocketClosing, SocketEnvelope, Transient
from threadline.messaging.credentials import Credentials
from threadline.messaging.delivery_intake import DeliveryIntake
from threadline.messaging.delivery_worker import retry_until_up
from threadline.ports import Http, Socket, SocketChannel, Sockets

log = logging.getLogger("threadline.socket_mode")

_FIRST_PAUSE = 1.0
# After an outage of hours, messages arrive within a minute.
_LONGEST_PAUSE = 60.0
# A connection that lived as long was no failure: the next attempt follows soon.
_STEADY_SECONDS = 30.0
# The platform closes a connection that it has announced to close after about ten seconds.
_DRAIN_SECONDS = 30.0
# For the delivery that is being stored when the process is told to stop: it is delivered again if that takes longer.
_CLOSE_SECONDS = 5.0


class SocketMode:
    def __init__(
        self,
        channel: SocketChannel,
        intake: DeliveryIntake,
        credentials: Credentials,
        http: Http,
        sockets: Sockets,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._channel = channel
        self._intake = intake
        self._credentials = credentials
        self._http = http
        self._sockets = sockets
        self.sleep = sleep
        self._connections: dict[_Connection, asyncio.Task[None]] = {}

    async def run(self, tenant_id: str) -> None:
        """Until cancelled. SettingsInvalid if the platform refuses permanently."""
        pause = _FIRST_PAUSE
        loop = asyncio.get_running_loop()
        try:
            while True:
                opened, began = await self._open(tenant_id), loop.time()
                failure = opened if isinstance(opened, Transient) else await self._follow(tenant_id, opened)
                if failure is None or loop.time() - began >= _STEADY_SECONDS:
                    pause = _FIRST_PAUSE
                if failure is not None:
                    log.warning("not connected", extra={"platform": self._channel.platform, "reason": failure.reason})
                    await self.sleep(max(pause, failure.retry_after or 0.0))
                    pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            await self._close()

    async def _open(self, tenant_id: str) -> Socket | Transient:
        platform = self._channel.platform
        secrets = await self._credentials.open(tenant_id, platform)
        response = await self._http.send(self._channel.build_socket_request(secrets))
        if isinstance(response, Transient | Ambiguous):
            return Transient(response.reason)
        address = self._channel.parse_socket_response(response)
        match address:
            case Permanent(reason):
                fix = f"set another token with threadline channels credentials set {platform}"
                raise SettingsInvalid(f"{platform} refused to open a connection: {reason}; {fix}")
            case Transient():
                return address
        return await self._sockets.open(address)

    async def _follow(self, tenant_id: str, socket: Socket) -> Transient | None:
        """Until the connection has ended or is to be replaced; then why, or None if that is routine."""
        log.info("connected", extra={"platform": self._channel.platform})
        connection = _Connection(self._channel, self._intake, tenant_id, socket)
        task = asyncio.create_task(connection.run(), name=f"connection to {self._channel.platform}")
        self._connections[connection] = task
        task.add_done_callback(lambda _: self._connections.pop(connection, None))
        await connection.ending.wait()
        closing = connection.closing
        if closing is None:
            return Transient("the connection broke")
        return None if closing.is_routine else Transient(closing.reason)

    async def _close(self) -> None:
        """Ends every connection, after the delivery that it is storing."""
        connections = dict(self._connections)
        for connection in connections:
            await connection.close()
        if connections:
            await asyncio.wait(connections.values(), timeout=_CLOSE_SECONDS)
        for task in connections.values():
            task.cancel()
        await asyncio.gather(*connections.values(), return_exceptions=True)


class _Connection:
    """One WebSocket. Deliveries are stored one after another, in the platform's order: platforms send a workspace a few
    deliveries a second at most, and storing one takes milliseconds."""

    def __init__(self, channel: SocketChannel, intake: DeliveryIntake, tenant_id: str, socket: Socket) -> None:
        self._channel = channel
        self._intake = intake
        self._tenant_id = tenant_id
        self._socket = socket
        self._is_storing = False
        self._is_closed = False
        self.ending = asyncio.Event()
        """It has ended, or the platform is about to end it."""
        self.closing: SocketClosing | None = None

    async def run(self) -> None:
        try:
            while not self._is_closed and (frame := await self._receive()) is not None:
                match self._channel.parse_frame(frame):
                    case SocketEnvelope() as envelope:
                        await self._store(envelope)
                    case SocketClosing() as closing:
                        self.closing = closing
                        self.ending.set()
                    case None:
                        pass
        finally:
            self.ending.set()
            await self._socket.close()

    async def _receive(self) -> str | None:
        try:
            async with asyncio.timeout(_DRAIN_SECONDS if self.closing else None):
                return await self._socket.receive()
        except TimeoutError:
            return None

    async def _store(self, envelope: SocketEnvelope) -> None:
        correlation_id, platform = new_id(), self._channel.platform
        self._is_storing = True
        try:
            # Waits while the database is down. The platform repeats the delivery, which is stored once.
            await retry_until_up(
                lambda: self._intake.take(
                    self._tenant_id, platform, envelope.delivery, envelope.content, correlation_id
                ),
                (StoreFailed,),
            )
            await self._socket.send(self._channel.build_acknowledgement(envelope.id))
        except Exception:
            # A defect must not end the connection. Without an acknowledgement the delivery comes again.
            log.exception("delivery not stored", extra={"platform": platform, "correlation_id": correlation_id})
        finally:
            self._is_storing = False

    async def close(self) -> None:
        self._is_closed = True
        if not self._is_storing:
            # Wakes `run`, which waits for a frame.
            await self._socket.close()
