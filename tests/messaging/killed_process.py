"""A service in a process of its own, to be killed at any instant: leases, claims and sweeps are quick, the agent is
slow enough to be caught in the middle of a sentence.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
from collections.abc import AsyncIterator, Mapping
from multiprocessing.context import ForkServerProcess
from typing import Any, Literal, NamedTuple

from threadline.agents.function import as_agent
from threadline.bootstrap import Threadline
from threadline.clock import SystemClock
from threadline.core.masking import SecretMasker
from threadline.core.parts import plain_text
from threadline.core.prompts import Prompt
from threadline.databases import open_store
from threadline.messaging.settlement import DeliveryRetry
from threadline.processes import local_processes
from threadline.service.app import build_app
from threadline.service.process.server import Server, listen
from threadline.service.process.server import serve as run_server
from threadline.settings import ChannelSettings, ChannelsSettings, ServiceSettings, Settings
from threadline.turns.leases import Timing

TIMING = Timing(lease_seconds=0.6, wait_seconds=0.05, flush_seconds=0.01)
RETRY = DeliveryRetry(first_seconds=0.05, longest_seconds=0.2, claim_seconds=0.6, send_seconds=0.5)


# Before the first is born, so that not each of them has to make its own.
SecretMasker().mask_text("")


class Place(NamedTuple):
    """Where the service stands, the same for each process that plays it."""

    database: str
    port: int
    tenant_id: str
    keys: dict[str, str]
    slack_api: str
    is_shipped: bool = False
    """With the settings of a new installation."""
    agent: str = "echo"
    apis: Mapping[str, str] = {}
    """Of other platforms than Slack."""
    role: Literal["all", "web", "worker"] = "all"
    hold_seconds: float = 30.0
    """How long leases and claims last in a shipped place."""

    def settings(self) -> Settings:
        apis: dict[str, Any] = {
            platform: ChannelSettings(api=api) for platform, api in {"slack": self.slack_api, **self.apis}.items()
        }
        shipped_service = ServiceSettings(lease_seconds=self.hold_seconds)
        service = shipped_service if self.is_shipped else ServiceSettings(recovery_seconds=0.1, grace_seconds=1.0)
        shipped = ChannelsSettings()
        return Settings(
            database=self.database,
            tenant=self.tenant_id,
            agent=self.agent,
            service=service,
            channels=ChannelsSettings(
                keys=self.keys, sweep_seconds=shipped.sweep_seconds if self.is_shipped else 0.1, **apis
            ),
        )


async def echo(prompt: Prompt) -> AsyncIterator[str]:
    yield "You said: "
    await asyncio.sleep(0.01)
    yield plain_text(prompt.messages[-1].parts)


async def open_place(place: Place) -> Threadline:
    settings, clock = place.settings(), SystemClock()
    store = await open_store(settings, clock)
    agents: dict[str, Any] = {"echo": as_agent(echo)}
    runs_turns = place.role != "web"
    if place.is_shipped:
        processes = local_processes(settings.database, settings.process_folder)
        retry = DeliveryRetry(claim_seconds=place.hold_seconds)
        return Threadline(
            store, settings, clock, agents=agents, retry=retry, processes=processes, runs_turns=runs_turns
        )
    return Threadline(store, settings, clock, agents=agents, timing=TIMING, retry=RETRY, runs_turns=runs_turns)


def serve(place: Place) -> None:
    logging.disable(logging.CRITICAL)
    asyncio.run(_serve(place))


async def _serve(place: Place) -> None:
    async with await open_place(place) as threadline:
        is_worker = place.role == "worker"
        app = build_app(threadline, serves_api=not is_worker)
        server = Server(app, grace_seconds=place.settings().service.grace_seconds)
        await run_server(server, None if is_worker else listen("127.0.0.1", place.port))


def start(place: Place) -> ForkServerProcess:
    """A fresh process. They are forked from one that has imported everything, so that dying is cheap."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    process = context.Process(target=serve, args=(place,), daemon=True)
    process.start()
    return process
