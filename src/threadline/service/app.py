"""The HTTP app: routes, middleware and error handlers, to be served or to be mounted in another ASGI app.

A mounted app does not receive lifespan events, so its host enters `lifespan` itself. The app neither opens nor closes
the database: the owner of the Threadline does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Route

from threadline.administration.retention import run_retention
from threadline.administration.sessions import Sessions
from threadline.bootstrap import Threadline
from threadline.core.errors import ThreadlineError
from threadline.core.masking import compile_rules
from threadline.service.aisdk.turn_streams import TurnStreams
from threadline.service.auth.authentication import (
    LOCAL_HOSTS,
    Authenticate,
    AuthenticateScope,
    Authentication,
    as_local_admin,
    from_scope,
)
from threadline.service.auth.configured_providers import open_providers
from threadline.service.auth.jwt_reader import jwt_reader
from threadline.service.auth.permissions import PERMISSIONS
from threadline.service.auth.rate_limits import AddressLimit, RateLimit, delete_old_windows
from threadline.service.auth.token_authenticator import TokenAuthenticator
from threadline.service.context import ConnectionPolicy, ServiceContext, Shutdown
from threadline.service.http import problems
from threadline.service.http.client_addresses import LOCAL_NETWORKS, read_networks
from threadline.service.middleware.body_limit import BodyLimit
from threadline.service.middleware.headers import OriginCheck, SecurityHeaders, read_origins
from threadline.service.middleware.proxies import ClientAddress
from threadline.service.middleware.request_log import RequestLog
from threadline.service.openapi.operation import operation_of
from threadline.service.openapi.reference import ReferenceRoutes
from threadline.service.routes.administration import AdministrationRoutes
from threadline.service.routes.agents import AgentRoutes
from threadline.service.routes.arrivals import ArrivalRoutes
from threadline.service.routes.bridges import BridgeRoutes
from threadline.service.routes.channels import ChannelRoutes
from threadline.service.routes.chat import ChatRoutes
from threadline.service.routes.dispatch import DispatchRoutes
from threadline.service.routes.home_thread import HomeThreadRoutes
from threadline.service.routes.mcp_requests import McpRoutes
from threadline.service.routes.messages import MessageRoutes
from threadline.service.routes.monitoring import MonitoringRoutes
from threadline.service.routes.openai_chat import OpenAIChatRoutes
from threadline.service.routes.openai_conversations import OpenAIConversationRoutes
from threadline.service.routes.openai_responses import OpenAIResponseRoutes
from threadline.service.routes.page import PageRoutes
from threadline.service.routes.retention import RetentionRoutes
from threadline.service.routes.saves import SaveRoutes
from threadline.service.routes.search import SearchRoutes
from threadline.service.routes.sign_in import SignInRoutes
from threadline.service.routes.sign_ins import UserSignInRoutes
from threadline.service.routes.thread_changes import ThreadChangeRoutes
from threadline.service.routes.thread_details import ThreadDetailRoutes
from threadline.service.routes.thread_upkeep import IMPORT_PATH, ThreadUpkeepRoutes, TransferRoutes
from threadline.service.routes.threads import ThreadRoutes
from threadline.service.routes.usage import UsageRoutes
from threadline.service.routes.users import UserRoutes
from threadline.service.routes.values import VALUES_PATH, ValueRoutes
from threadline.service.routes.webhooks import WebhookRoutes
from threadline.settings import ServiceSettings

log = logging.getLogger("threadline.service")


class ServiceApp(Starlette):
    """`shutdown` and `connections` are for the server that runs the app."""

    def __init__(
        self,
        shutdown: Shutdown,
        connections: ConnectionPolicy,
        *,
        routes: Sequence[BaseRoute],
        middleware: Sequence[Middleware],
        lifespan: Callable[[Starlette], AbstractAsyncContextManager[None]],
    ) -> None:
        super().__init__(
            routes=routes,
            middleware=middleware,
            exception_handlers={
                problems.Problem: problems.handle_problem,
                ClientDisconnect: problems.handle_disconnect,
                ThreadlineError: problems.ErrorHandler(),
                HTTPException: problems.handle_http_exception,
                Exception: problems.handle_crash,
            },
            lifespan=lifespan,
        )
        self.shutdown = shutdown
        self.connections = connections


def build_app(
    threadline: Threadline,
    settings: ServiceSettings | None = None,
    *,
    authenticate: AuthenticateScope | None = None,
    serves_api: bool = True,
) -> ServiceApp:
    """Without `authenticate` the settings say whether callers need a token. If they need none there is one user, and
    the app answers only to host names of this machine. Without `serves_api` there are only health, readiness and
    metrics: for a worker."""
    settings = settings or threadline.settings.service
    shutdown = Shutdown()
    needs_token = authenticate is None and settings.requires_authentication
    sessions = _sessions(threadline) if needs_token else None
    tokens = None if sessions is None else _token_authenticator(threadline, settings, sessions)
    providers = open_providers(threadline.settings, settings) if authenticate is None else {}
    is_authenticated = authenticate is not None or tokens is not None
    streams = TurnStreams(threadline.streams, threadline.store, settings.heartbeat_seconds, settings.oldest_ai_sdk)
    context = ServiceContext(threadline, settings, streams, shutdown, sessions, providers)
    if serves_api:
        routes = _routes(context, is_authenticated=is_authenticated)
    else:
        routes = list(MonitoringRoutes(context).routes())

    @asynccontextmanager
    async def run(app: Starlette) -> AsyncIterator[None]:
        async with lifespan(threadline, settings, shutdown):
            yield
        for provider in providers.values():
            await provider.close()
        # After the last request: requests record the use of tokens.
        if tokens is not None:
            await tokens.close()

    return ServiceApp(
        shutdown,
        _connection_policy(threadline, settings, is_authenticated=is_authenticated),
        routes=_protected(
            routes,
            authenticate=tokens or _authenticate(threadline, authenticate),
            revocable=tokens,
            recheck_seconds=settings.heartbeat_seconds,
        ),
        middleware=_middleware(threadline, settings, is_authenticated=is_authenticated),
        lifespan=run,
    )


def _connection_policy(
    threadline: Threadline, settings: ServiceSettings, *, is_authenticated: bool
) -> ConnectionPolicy:
    """Without authentication all clients are on this machine and are one user: loopback is not limited."""
    shared = settings.proxies if is_authenticated else (*settings.proxies, *LOCAL_NETWORKS)
    return ConnectionPolicy(settings.connections, read_networks(shared), threadline.metrics)


def _authenticate(threadline: Threadline, given: AuthenticateScope | None) -> Authenticate:
    return as_local_admin(threadline.settings) if given is None else from_scope(given)


def _sessions(threadline: Threadline) -> Sessions:
    return Sessions(threadline.store, threadline.sealer, threadline.clock, threadline.settings.sign_in)


def _token_authenticator(threadline: Threadline, settings: ServiceSettings, sessions: Sessions) -> TokenAuthenticator:
    return TokenAuthenticator(
        threadline.store,
        threadline.clock,
        sessions=sessions,
        jwt=None if settings.jwt is None else jwt_reader(settings.jwt),
        limit=_rate_limit(threadline, settings, settings.rates.per_token),
        impersonation_limit=_rate_limit(threadline, settings, settings.rates.per_acting_token),
    )


def _rate_limit(threadline: Threadline, settings: ServiceSettings, per_minute: int) -> RateLimit | None:
    if not settings.requires_authentication or per_minute <= 0:
        return None
    return RateLimit(threadline.store, threadline.clock, per_minute)


def _middleware(threadline: Threadline, settings: ServiceSettings, *, is_authenticated: bool) -> list[Middleware]:
    """Outermost first."""
    return [
        Middleware(RequestLog, metrics=threadline.metrics, tracer=threadline.tracer),
        Middleware(SecurityHeaders),
        Middleware(ClientAddress, proxies=read_networks(settings.proxies), max_open=settings.connections.per_address),
        Middleware(
            OriginCheck, origins=read_origins(settings.origins), hosts=None if is_authenticated else LOCAL_HOSTS
        ),
        Middleware(
            AddressLimit,
            limit=_rate_limit(threadline, settings, settings.rates.per_address),
            tenant_id=threadline.settings.tenant,
        ),
        Middleware(
            BodyLimit,
            limit=settings.body_bytes,
            # A value travels as base64, with a little JSON around it.
            larger={
                IMPORT_PATH: settings.import_bytes,
                VALUES_PATH: threadline.settings.limits.value_bytes * 4 // 3 + settings.body_bytes,
            },
            webhook_limit=settings.webhook_bytes,
        ),
    ]


@asynccontextmanager
async def lifespan(
    threadline: Threadline,
    settings: ServiceSettings,
    shutdown: Shutdown | None = None,
) -> AsyncIterator[None]:
    """Unless other processes run the turns: claims and recovers turns, and delivers to platforms, while it is entered.
    At the end it waits for the turns that run here, at most for what is left of the grace period, and hands the rest
    over to other processes."""
    shutdown = shutdown or Shutdown()
    # Now, and not in the first turn.
    compile_rules()
    if not threadline.runs_turns:
        yield
        return
    await _encrypt_secrets(threadline)
    queue = asyncio.create_task(threadline.work_queue.run(shutdown.started), name="work queue")
    recovery = asyncio.create_task(
        threadline.recovery.run(settings.recovery_seconds, shutdown.started), name="recovery"
    )
    cleanup = asyncio.create_task(
        delete_old_windows(threadline.store, threadline.clock, threadline.settings.tenant), name="rate limits"
    )
    retention = asyncio.create_task(
        run_retention(threadline.store, threadline.sealer, threadline.clock, threadline.settings.retention),
        name="retention",
    )
    outbox = asyncio.create_task(threadline.messaging.run(), name="outbox")
    try:
        yield
    finally:
        # These first: they would take the turns back that are handed over below.
        shutdown.started.set()
        await asyncio.wait({queue})
        await _cancel(recovery)
        await _cancel(cleanup)
        await _cancel(retention)
        await _close_runner(threadline, settings, shutdown)
        # After the runner: turns that end during the shutdown still queue deliveries.
        await _cancel(outbox)
        await threadline.messaging.close()


async def _encrypt_secrets(threadline: Threadline) -> None:
    """Encrypts what earlier versions stored in clear. If that fails the service starts all the same: the doctor names
    the rows, and new secrets are refused until there is a key."""
    if not threadline.vault.has_keys:
        return
    try:
        done = await threadline.agent_secrets.encrypt_clear()
    except ThreadlineError:
        log.warning("secrets of agents not encrypted", exc_info=True)
        return
    if done.encrypted:
        log.info("secrets of agents encrypted", extra={"agents": done.encrypted})


async def _close_runner(threadline: Threadline, settings: ServiceSettings, shutdown: Shutdown) -> None:
    hands_over = settings.handover_seconds > 0

    async def close_when_forced() -> None:
        await shutdown.forced.wait()
        # A second close without a grace period ends the wait of the first one.
        await threadline.runner.close(hands_over=hands_over)

    forced = asyncio.create_task(close_when_forced(), name="forced shutdown")
    await threadline.runner.close(shutdown.remaining_seconds(settings.grace_seconds), hands_over=hands_over)
    await _cancel(forced)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _routes(context: ServiceContext, *, is_authenticated: bool) -> list[BaseRoute]:
    """Each handler declares with `@operation` what it takes and returns."""
    routes: list[BaseRoute] = [
        # Routes are matched in order. Webhooks come first: platforms have the shortest timeouts.
        *WebhookRoutes(context).routes(),
        *PageRoutes().routes(),
        *MonitoringRoutes(context).routes(),
        *ChatRoutes(context).routes(),
        *OpenAIChatRoutes(context).routes(),
        *OpenAIConversationRoutes(context).routes(),
        *OpenAIResponseRoutes(context).routes(),
        *McpRoutes(context).routes(),
        *AgentRoutes(context).routes(),
        *DispatchRoutes(context).routes(),
        *TransferRoutes(context).routes(),
        *SaveRoutes(context).routes(),
        *SearchRoutes(context).routes(),
        *ThreadUpkeepRoutes(context).routes(),
        *MessageRoutes(context).routes(),
        *ValueRoutes(context).routes(),
        *ThreadRoutes(context).routes(),
        *SignInRoutes(context).routes(),
        *UserSignInRoutes(context).routes(),
        *UserRoutes(context).routes(),
        *HomeThreadRoutes(context).routes(),
        *RetentionRoutes(context).routes(),
        *AdministrationRoutes(context).routes(),
        *UsageRoutes(context).routes(),
        *ChannelRoutes(context).routes(),
        *ArrivalRoutes(context).routes(),
        *BridgeRoutes(context).routes(),
        *ThreadDetailRoutes(context).routes(),
        *ThreadChangeRoutes(context).routes(),
    ]
    return [*routes, *ReferenceRoutes(routes, is_authenticated=is_authenticated).routes()]


def _protected(routes: Sequence[BaseRoute], **options: Any) -> list[BaseRoute]:
    """The same routes behind the authentication that `PERMISSIONS` asks of each. Mounts are the page's static files.
    `options` are those of `Authentication`."""
    return [_protect(route, options) if isinstance(route, Route) else route for route in routes]


def _protect(route: Route, options: dict[str, Any]) -> Route:
    # KeyError for a handler without `@operation` or without a row: the app must not start with an unprotected route.
    permission = PERMISSIONS[operation_of(route.endpoint).id]
    if permission.role is None:
        return route
    middleware = Middleware(Authentication, permission=permission, **options)
    methods = None if route.methods is None else list(route.methods)
    return Route(route.path, route.endpoint, methods=methods, middleware=[middleware])
