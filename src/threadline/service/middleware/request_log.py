"""One log line, one count and one trace span per request, and the id that ties them together.

Recorded are the method, the route's template, the status, the tenant and the id of an impersonating token. Never the
path itself, which contains names that users chose, and never a body, a query or a token.
"""

from __future__ import annotations

import logging
import re
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from threadline.core.ids import new_id
from threadline.observability.metrics import Metrics
from threadline.observability.tracing import current_request_span
from threadline.ports import Span, Tracer
from threadline.service.http.request_context import RequestContext, create_context

log = logging.getLogger("threadline.access")

REQUEST_ID = "X-Request-Id"
_VALID_ID = re.compile(r"[A-Za-z0-9._:=+/-]{1,128}", re.ASCII)
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


class RequestLog:
    """The outermost middleware, so that requests refused by the others are recorded too."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics, tracer: Tracer | None = None) -> None:
        self._app = app
        self._tracer = tracer
        self._requests = metrics.counter(
            "threadline_http_requests_total", "Requests that were answered.", ("method", "route", "status")
        )
        self._durations = metrics.histogram(
            "threadline_http_request_duration_seconds",
            "Time from a request's arrival to the start of its response.",
            ("method", "route"),
        )
        self._open = metrics.gauge(
            "threadline_http_requests_open", "Requests whose response has not ended, streams included."
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(REQUEST_ID, "")
        context = create_context(scope, given if _VALID_ID.fullmatch(given) else new_id())
        response = _Response(context)
        span = None if self._tracer is None else _start_span(self._tracer, scope)
        self._open.add()
        try:
            await self._app(scope, receive, response.observe(send))
        except Exception:
            # Starlette's error handler writes the response, outside of this middleware.
            response.status = 500
            raise
        finally:
            self._open.add(by=-1)
            self._record(scope, response, context)
            if span is not None:
                _end_span(span, scope, response.status)

    def _record(self, scope: Scope, response: _Response, context: RequestContext) -> None:
        method, route = method_of(scope), route_of(scope)
        now = time.perf_counter()
        self._requests.add(method, route, str(response.status))
        self._durations.observe((response.started_at or now) - response.arrived_at, method, route)
        log.info(
            "request",
            extra={
                "method": method,
                "route": route,
                "status": response.status,
                "ms": round((now - response.arrived_at) * 1000, 1),
                "request_id": context.request_id,
                "tenant": None if context.caller is None else context.caller.scope.tenant_id,
                "token_id": context.token_id,
            },
        )


class _Response:
    """Status and times of one response. 499 if the client disconnects before it starts."""

    def __init__(self, context: RequestContext) -> None:
        self.arrived_at = time.perf_counter()
        self.started_at: float | None = None
        self.status = 499
        self._request_id = context.request_id

    def observe(self, send: Send) -> Send:
        async def observed(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.status = message["status"]
                self.started_at = time.perf_counter()
                MutableHeaders(scope=message)[REQUEST_ID] = self._request_id
            await send(message)

        return observed


def _start_span(tracer: Tracer, scope: Scope) -> Span:
    """A child of the caller's span if the request has a `traceparent`, and the parent of what the request starts."""
    attributes = {"http.request.method": method_of(scope), "url.scheme": scope.get("scheme", "http")}
    span = tracer.span(method_of(scope), attributes, kind="server", headers=Headers(scope=scope))
    current_request_span.set(span)
    return span


def _end_span(span: Span, scope: Scope, status: int) -> None:
    route = route_of(scope)
    span.rename(f"{method_of(scope)} {route}")
    span.set("http.route", route)
    span.set("http.response.status_code", status)
    span.end(str(status) if status >= 500 else None)


def method_of(scope: Scope) -> str:
    method: str = scope["method"]
    # Clients can send any method, and each label value is a new series.
    return method if method in _METHODS else "other"


def route_of(scope: Scope) -> str:
    route = scope.get("route")
    return route.path if isinstance(route, Route) else "unknown"
