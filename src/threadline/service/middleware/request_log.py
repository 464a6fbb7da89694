"""One look at every request: its id, how long it took, one line in the log, one count among the metrics.

What is kept of a request is its method, the template of its route, its status, its tenant, and the id of a token that
acts for somebody. Never the path itself, which holds names that people chose; never a body, a query or a token.
"""

from __future__ import annotations

import logging
import re
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from threadline.core.ids import new_id
from threadline.core.threads import Scope as Caller
from threadline.observability.metrics import Metrics
from threadline.observability.tracing import requested
from threadline.ports import Span, Tracer
from threadline.service.auth.callers import WhoAsks
from threadline.service.auth.impersonation import ACTED_BY_KEY
from threadline.service.problems import REQUEST_ID_KEY

log = logging.getLogger("threadline.access")

REQUEST_ID = "X-Request-Id"
_SANE = re.compile(r"[A-Za-z0-9._:=+/-]{1,128}", re.ASCII)
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_TENANT_KEY = "threadline.tenant"


class Observer:
    """The outermost of the gates, so that what they refuse is seen too."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics, tracer: Tracer | None = None) -> None:
        self._app = app
        self._tracer = tracer
        self._requests = metrics.counter(
            "threadline_http_requests_total", "Requests that were answered.", ("method", "route", "status")
        )
        self._durations = metrics.histogram(
            "threadline_http_request_duration_seconds",
            "From a request's arrival until its answer begins.",
            ("method", "route"),
        )
        self._open = metrics.gauge("threadline_http_requests_open", "Requests whose answer has not ended, streams too.")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        seen = _Seen(scope)
        span = None if self._tracer is None else _begin_span(self._tracer, scope)
        self._open.add()
        try:
            await self._app(scope, receive, seen.sending(send))
        except Exception:
            seen.status = 500
            raise
        finally:
            self._open.add(by=-1)
            self._note(scope, seen)
            if span is not None:
                _end_span(span, scope, seen.status)

    def _note(self, scope: Scope, seen: _Seen) -> None:
        method, route = method_of(scope), route_of(scope)
        now = time.perf_counter()
        self._requests.add(method, route, str(seen.status))
        self._durations.observe((seen.answered or now) - seen.begun, method, route)
        log.info(
            "request",
            extra={
                "method": method,
                "route": route,
                "status": seen.status,
                "ms": round((now - seen.begun) * 1000, 1),
                "request_id": scope[REQUEST_ID_KEY],
                "tenant": scope.get(_TENANT_KEY),
                "token_id": scope.get(ACTED_BY_KEY),
            },
        )


class _Seen:
    """What is known of one request while it is answered. A client that left before an answer began counts as 499."""

    def __init__(self, scope: Scope) -> None:
        self.begun = time.perf_counter()
        self.answered: float | None = None
        self.status = 499
        given = Headers(scope=scope).get(REQUEST_ID, "")
        scope[REQUEST_ID_KEY] = self._id = given if _SANE.fullmatch(given) else new_id()

    def sending(self, send: Send) -> Send:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.status = message["status"]
                self.answered = time.perf_counter()
                MutableHeaders(scope=message)[REQUEST_ID] = self._id
            await send(message)

        return sending


def _begin_span(tracer: Tracer, scope: Scope) -> Span:
    """Under the caller's own trace, if its `traceparent` names one. What the request starts hangs under it."""
    about = {"http.request.method": method_of(scope), "url.scheme": scope.get("scheme", "http")}
    span = tracer.span(method_of(scope), about, kind="server", headers=Headers(scope=scope))
    requested.set(span)
    return span


def _end_span(span: Span, scope: Scope, status: int) -> None:
    route = route_of(scope)
    span.rename(f"{method_of(scope)} {route}")
    span.set("http.route", route)
    span.set("http.response.status_code", status)
    span.end(str(status) if status >= 500 else None)


def noting(who_asks: WhoAsks) -> WhoAsks:
    """The same, and the tenant is remembered for the log."""

    async def who(request: Request) -> Caller:
        caller = await who_asks(request)
        request.scope[_TENANT_KEY] = caller.tenant_id
        return caller

    return who


def method_of(scope: Scope) -> str:
    method: str = scope["method"]
    return method if method in _METHODS else "other"


def route_of(scope: Scope) -> str:
    route = scope.get("route")
    return route.path if isinstance(route, Route) else "unknown"
