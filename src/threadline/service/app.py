"""The HTTP app: routes, gates and errors put together, to be served or to be mounted in an app of someone's own.

A mounted app gets no lifespan of its own from its host, so the host enters `lifespan` in its own. The app opens and
closes no database: whoever opened the Threadline closes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from starlette.applications import Starlette
from starlette.datastructures import State
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import BaseRoute

from threadline.bootstrap import Threadline
from threadline.core.errors import ThreadlineError
from threadline.service import problems
from threadline.service.auth.authenticator import Authentication
from threadline.service.auth.callers import LOCAL_HOSTS, WhoAsks, by_role, only_local
from threadline.service.auth.jwts import jwt_reader
from threadline.service.auth.rate_limits import AddressLimit, RateLimit, forget_windows
from threadline.service.middleware.body_limit import BodyGate
from threadline.service.middleware.headers import OriginGate, SafeHeaders
from threadline.service.middleware.proxies import ClientAddress, networks
from threadline.service.middleware.request_log import Observer, noting
from threadline.service.openapi.reference import Reference
from threadline.service.routes.administration import AdministrationRoutes
from threadline.service.routes.agents import AgentRoutes
from threadline.service.routes.channels import ChannelRoutes
from threadline.service.routes.chat import Chat
from threadline.service.routes.dispatch import DispatchRoutes
from threadline.service.routes.health import Operations
from threadline.service.routes.page import ChatPage, is_built
from threadline.service.routes.restore import RestoreRoutes
from threadline.service.routes.saves import SaveRoutes
from threadline.service.routes.thread_changes import FollowingRoutes
from threadline.service.routes.threads import ThreadRoutes
from threadline.service.routes.timelines import LineageRoutes
from threadline.service.routes.transfer import IMPORT_PATH, TransferRoutes
from threadline.service.routes.webhooks import HookRoutes
from threadline.service.welcome import Welcome
from threadline.settings import ServiceSettings
from threadline.turns.runner import Runner

log = logging.getLogger("threadline.service")


def build_app(
    threadline: Threadline, settings: ServiceSettings | None = None, *, who_asks: WhoAsks | None = None
) -> Starlette:
    """Without `who_asks` the settings say whether callers need a token. If they need none there is one user, and the
    app answers only to names of this machine."""
    settings = settings or threadline.settings.service
    authentication: Authentication | None = None
    if who_asks is None and settings.requires_authentication:
        who_asks = authentication = _authentication(threadline, settings)
    caller = by_role(noting(who_asks or only_local(threadline.settings)))

    @asynccontextmanager
    async def running(app: Starlette) -> AsyncIterator[None]:
        async with lifespan(threadline, settings, app.state):
            yield
        if authentication is not None:
            await authentication.close()

    return Starlette(
        routes=_routes(threadline, settings, caller, signed_in=who_asks is not None),
        middleware=[
            Middleware(Observer, metrics=threadline.metrics, tracer=threadline.tracer),
            Middleware(SafeHeaders),
            Middleware(ClientAddress, proxies=networks(settings.proxies)),
            Middleware(
                OriginGate, origins=frozenset(settings.origins), hosts=LOCAL_HOSTS if who_asks is None else None
            ),
            Middleware(
                AddressLimit,
                limit=_limit(threadline, settings, settings.rates.per_address),
                tenant_id=threadline.settings.tenant,
            ),
            Middleware(BodyGate, limit=settings.body_bytes, larger={IMPORT_PATH: settings.import_bytes}),
        ],
        exception_handlers={
            problems.Problem: problems.answer_problem,
            ThreadlineError: problems.answer_error,
            HTTPException: problems.answer_http,
            Exception: problems.answer_crash,
        },
        lifespan=running,
    )


def _authentication(threadline: Threadline, settings: ServiceSettings) -> Authentication:
    jwt = None if settings.jwt is None else jwt_reader(settings.jwt)
    limit = _limit(threadline, settings, settings.rates.per_token)
    acting_limit = _limit(threadline, settings, settings.rates.per_acting_token)
    return Authentication(threadline.store, threadline.clock, jwt=jwt, limit=limit, acting_limit=acting_limit)


def _limit(threadline: Threadline, settings: ServiceSettings, per_minute: int) -> RateLimit | None:
    if not settings.requires_authentication or per_minute <= 0:
        return None
    return RateLimit(threadline.store, threadline.clock, per_minute)


@asynccontextmanager
async def lifespan(
    threadline: Threadline, settings: ServiceSettings, state: State | None = None
) -> AsyncIterator[None]:
    """Looks after turns whose process is gone and delivers to platforms, as long as this lasts; at the end lets the
    turns that run here end, and hands those over that do not. If `state` has a `deadline`, by then, because a server
    that ends has waited for their readers already; and if it has a `hurry`, no longer than until that is set."""
    state = state or State()
    ending: asyncio.Event | None = getattr(state, "ending", None)
    sweeping = asyncio.create_task(threadline.recovery.run(settings.recovery_seconds, ending), name="recovery")
    forgetting = asyncio.create_task(
        forget_windows(threadline.store, threadline.clock, threadline.settings.tenant), name="limits"
    )
    delivering = asyncio.create_task(threadline.messaging.run(), name="outbox")
    try:
        yield
    finally:
        await _cancelled(sweeping)
        await _cancelled(forgetting)
        await _close_runner(threadline.runner, settings, state)
        await _cancelled(delivering)
        await threadline.messaging.close()


async def _close_runner(runner: Runner, settings: ServiceSettings, state: State) -> None:
    grace_seconds, hands_over = settings.grace_seconds, settings.handover_seconds > 0
    deadline, hurry = getattr(state, "deadline", None), getattr(state, "hurry", None) or asyncio.Event()
    if deadline is not None:
        grace_seconds = max(0.0, deadline - asyncio.get_running_loop().time())

    async def hurrying() -> None:
        await hurry.wait()
        await runner.close(hands_over=hands_over)

    hurried = asyncio.create_task(hurrying(), name="hurry")
    await runner.close(grace_seconds, hands_over=hands_over)
    await _cancelled(hurried)


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _routes(threadline: Threadline, settings: ServiceSettings, caller: WhoAsks, *, signed_in: bool) -> list[BaseRoute]:
    """Each handler says with `describing.operation` what it takes and answers."""
    routes: list[BaseRoute] = [
        # Asked one after the other, and nobody is in a greater hurry than a platform.
        *HookRoutes(threadline).routes(),
        *Welcome().routes(),
        *(ChatPage().routes() if is_built() else []),
        *Operations(threadline, caller).routes(),
        *Chat(threadline, settings, caller).routes(),
        *AgentRoutes(threadline, caller).routes(),
        *DispatchRoutes(threadline, settings, caller).routes(),
        *TransferRoutes(threadline, caller).routes(),
        *SaveRoutes(threadline, caller).routes(),
        *ThreadRoutes(threadline, caller).routes(),
        *AdministrationRoutes(threadline, caller).routes(),
        *ChannelRoutes(threadline, caller).routes(),
        *LineageRoutes(threadline, caller).routes(),
        *FollowingRoutes(threadline, caller).routes(),
        *RestoreRoutes(threadline, caller).routes(),
    ]
    return [*routes, *Reference(routes, signed_in=signed_in).routes()]
