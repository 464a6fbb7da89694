"""The open connections of one process: how many there are, and how long each may take.

A connection occupies a descriptor before its request is known, so neither authentication nor rate limits protect from
clients that connect and send nothing. Three rules do. A request's head must arrive within `head_seconds`; bodies and
readers must make progress; and at the limit a new connection replaces the one that has waited longest without a
complete request. A client that sends its request at once is therefore served whatever the others do. Requests that are
being served are never closed for another one: if nothing waits, the new connection is refused.

One timer checks all connections, because a timer for each would be started and cancelled with every request.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from typing import Protocol

from uvicorn.server import ServerState

from threadline.observability.log_throttle import LogThrottle
from threadline.service.context import ConnectionPolicy
from threadline.service.http.client_addresses import counted_address, is_in
from threadline.service.http.problems import Problem

log = logging.getLogger("threadline.service")

# How exactly time limits are kept: within a second, and within a quarter of shorter ones.
_MAX_SWEEP_SECONDS = 1.0
# The rest is for the database, for agents and platforms, and for files.
_SHARE_OF_DESCRIPTORS = 0.75
# One address must not use up the limit of all.
_SHARE_OF_ADDRESS = 0.5
# What a system usually allows a process that asks; needed if the hard limit is infinite.
_WANTED_DESCRIPTORS = 65_536
# Closed when no descriptor is left: enough to accept the next requests, few enough to spare clients that just came.
_FREED_AT_ONCE = 32
_CLOSE = {"Connection": "close", "Retry-After": "5"}


class Connection(Protocol):
    """What the table asks of a connection."""

    def expire(self) -> None:
        """The time for the next request's head is over."""
        ...

    def evict(self) -> None:
        """Closes a connection without a request, because another one needs its place."""
        ...

    def check_progress(self, now: float) -> bool:
        """Ends a transfer that is too slow. False if no transfer is left to check."""
        ...


class ConnectionTable(ServerState):
    def __init__(self, policy: ConnectionPolicy) -> None:
        super().__init__()
        self.limits = limits = policy.limits
        self.total = max(1, min(limits.total, int(descriptor_limit() * _SHARE_OF_DESCRIPTORS)))
        self._per_address = max(1, min(limits.per_address, int(self.total * _SHARE_OF_ADDRESS)))
        shortest = min(limits.head_seconds, limits.body_seconds, limits.write_seconds)
        self._sweep_seconds = min(_MAX_SWEEP_SECONDS, shortest / 4)
        self._shared = policy.shared
        self._throttle = LogThrottle(log)
        metrics = policy.metrics
        self._troubles = metrics.counter(
            "threadline_connection_troubles_total", "Connections that broke a limit, by kind.", ("kind",)
        )
        metrics.gauge("threadline_connections_open", "Open connections of clients.", read=self._count_open)
        # Both in the order of their deadlines, because each has one time limit.
        self._heads: dict[Connection, float] = {}
        self._idle: dict[Connection, float] = {}
        self._ending: dict[Connection, None] = {}
        self._transfers: dict[Connection, None] = {}
        self._by_address: dict[str, dict[Connection, None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def _count_open(self) -> dict[tuple[str, ...], float]:
        return {(): len(self.connections)}

    def admit(self, connection: Connection, host: str) -> Problem | None:
        """Counts a new connection, and makes room for it. A Problem if its request has to be refused."""
        self.expect_head(connection)
        if not is_in(host, self._shared):
            peers = self._by_address.setdefault(counted_address(host), {})
            peers[connection] = None
            if len(peers) > self._per_address and not self._evict_peer(peers, connection):
                self.report("connections_per_address", host)
                return _too_many_of(self._per_address)
        if len(self.connections) > self.total and not self._evict_oldest(connection):
            self.report("connections_total", host)
            return _too_many()
        return None

    def remove(self, connection: Connection, host: str) -> None:
        self.stop_waiting(connection)
        self._transfers.pop(connection, None)
        address = counted_address(host)
        peers = self._by_address.get(address, {})
        peers.pop(connection, None)
        if not peers:
            self._by_address.pop(address, None)

    def expect_head(self, connection: Connection) -> None:
        """A request's head has to arrive within `head_seconds`."""
        self.stop_waiting(connection)
        self._heads[connection] = asyncio.get_running_loop().time() + self.limits.head_seconds
        self._start_timer()

    def expect_request(self, connection: Connection, seconds: float) -> None:
        """The connection is idle after a response, and may be used again within `seconds`."""
        self.stop_waiting(connection)
        self._idle[connection] = asyncio.get_running_loop().time() + seconds
        self._start_timer()

    def expect_end(self, connection: Connection) -> None:
        """The connection was answered for the last time, and is read until the client closes it."""
        self.stop_waiting(connection)
        self._ending[connection] = None

    def stop_waiting(self, connection: Connection) -> None:
        self._heads.pop(connection, None)
        self._idle.pop(connection, None)
        self._ending.pop(connection, None)

    def watch_transfer(self, connection: Connection) -> None:
        self._transfers[connection] = None
        self._start_timer()

    def _evict_peer(self, peers: dict[Connection, None], newcomer: Connection) -> bool:
        for peer in peers:
            is_waiting = peer in self._heads or peer in self._idle or peer in self._ending
            if is_waiting and peer is not newcomer:
                self._evict(peer)
                return True
        return False

    def _evict_oldest(self, newcomer: Connection | None) -> bool:
        """Half-sent requests first: a client that means to be served sends its head within a moment."""
        for waiting in (self._heads, self._idle, self._ending):
            oldest = next(iter(waiting), None)
            if oldest is not None and oldest is not newcomer:
                self._evict(oldest)
                return True
        return False

    def _evict(self, connection: Connection) -> None:
        self.stop_waiting(connection)
        connection.evict()

    def free_descriptors(self) -> None:
        """Called when none is left to accept a connection with."""
        for _ in range(_FREED_AT_ONCE):
            if not self._evict_oldest(None):
                return

    def report(self, kind: str, host: str | None = None) -> None:
        """Counts a trouble, and logs it once a minute."""
        self._troubles.add(kind)
        self._throttle.warning("connection trouble", kind, address=host, open=len(self.connections))

    def _start_timer(self) -> None:
        # Runs only while a connection waits: an idle process does not wake.
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._sweep_seconds, self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for waiting in (self._heads, self._idle):
            while (due := _first_due(waiting, now)) is not None:
                del waiting[due]
                due.expire()
        for connection in list(self._transfers):
            if not connection.check_progress(now):
                self._transfers.pop(connection, None)
        if self._heads or self._idle or self._transfers:
            self._start_timer()


def _first_due(waiting: dict[Connection, float], now: float) -> Connection | None:
    for connection, deadline in waiting.items():
        return connection if deadline <= now else None
    return None


def _too_many() -> Problem:
    return Problem(503, "overloaded", "the service has too many open connections: try again in a few seconds", _CLOSE)


def _too_many_of(limit: int) -> Problem:
    detail = f"more than {limit} connections from one address: close some and try again"
    return Problem(429, "too_many_connections", detail, _CLOSE)


def descriptor_limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _WANTED_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def raise_descriptor_limit() -> None:
    """Systems start processes with a low soft limit for the sake of `select`, which is not used here."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _WANTED_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
