"""Typed objects that the app, its routes and the server share. Nothing is stored in `app.state`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from threadline.administration.sessions import Sessions
from threadline.bootstrap import Threadline
from threadline.observability.metrics import Metrics
from threadline.service.aisdk.turn_streams import TurnStreams
from threadline.service.auth.identity_providers import IdentityProvider
from threadline.service.http.client_addresses import Network
from threadline.settings import ConnectionLimits, ServiceSettings


class Shutdown:
    """How the server tells the app that it stops.

    `started` is set once no new requests are accepted: long polls return then, because the server waits for open
    requests. `forced` is set by a second signal: running turns are not waited for any longer.
    """

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.forced = asyncio.Event()
        self._deadline: float | None = None

    def start(self, grace_seconds: float) -> None:
        self._deadline = asyncio.get_running_loop().time() + grace_seconds
        self.started.set()

    def remaining_seconds(self, grace_seconds: float) -> float:
        """What is left of the grace period; all of it if no server started the shutdown (a mounted app)."""
        if self._deadline is None:
            return grace_seconds
        return max(0.0, self._deadline - asyncio.get_running_loop().time())


class ConnectionPolicy(NamedTuple):
    """What the server needs to know about connections. The addresses in `shared` belong to many clients each, so the
    limit per address does not apply to them."""

    limits: ConnectionLimits
    shared: tuple[Network, ...]
    metrics: Metrics


class ServiceContext(NamedTuple):
    """What every route class is constructed with. `sessions` is None where people do not sign in: without
    authentication, or behind that of an application."""

    threadline: Threadline
    settings: ServiceSettings
    turn_streams: TurnStreams
    shutdown: Shutdown
    sessions: Sessions | None = None
    providers: Mapping[str, IdentityProvider] = {}
