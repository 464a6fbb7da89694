"""Errors as HTTP responses: `application/problem+json` with a stable `code`, from one table.

A fault of the caller is described in `detail`. An internal failure is logged and its details are kept from the caller,
because such messages name files and servers. A client that asks for `text/plain` gets the detail as a sentence: some
clients, npm `ai` among them, show their users the body of a refusal as it is.
"""

from __future__ import annotations

import logging
import re
from typing import Any

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from threadline.core import errors, jsontext
from threadline.core.errors import ThreadlineError
from threadline.observability.log_throttle import LogThrottle
from threadline.service.http.request_context import request_id_of

log = logging.getLogger("threadline.service")

OPENAI_PATH = "/v1/"
"""Routes under it speak OpenAI's API, errors included."""
_OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_QUOTED = re.compile(r"`([A-Za-z_.]{1,60})`")
_NO_ROUTE = "no such route: /docs lists the routes of this service"


STATUSES: dict[type[ThreadlineError], int] = {
    errors.ThreadlineError: 500,
    errors.InvalidInput: 400,
    errors.InvalidJson: 400,
    errors.InvalidText: 400,
    errors.InvalidName: 400,
    errors.InvalidCursor: 400,
    errors.InvalidImport: 400,
    errors.InvalidMessage: 400,
    errors.LimitExceeded: 413,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.HeadMoved: 409,
    errors.ValueChanged: 409,
    errors.DuplicateId: 409,
    errors.KeyReused: 422,
    errors.TurnRunning: 409,
    errors.UnderLegalHold: 409,
    errors.Refused: 403,
    errors.RoleRefused: 403,
    errors.GuardRefused: 403,
    errors.BudgetExceeded: 402,
    errors.SignatureInvalid: 401,
    errors.TokenRefused: 401,
    errors.ImpersonationRefused: 403,
    errors.LinkRefused: 409,
    errors.LinkLimited: 429,
    errors.AgentFailed: 502,
    errors.ServiceUnavailable: 502,
    errors.NoWorker: 503,
    errors.SettingsInvalid: 500,
    errors.EncryptionKeyMissing: 409,
    errors.ExtraMissing: 500,
    errors.StoreFailed: 503,
    errors.StoreUnavailable: 503,
    errors.StoreBusy: 503,
    errors.StoreFull: 507,
    errors.StoreReadOnly: 503,
    errors.StoreCorrupt: 500,
    errors.SchemaMismatch: 503,
    errors.OutcomeUnknown: 503,
}

TITLES = {
    400: "Bad request",
    401: "Not authenticated",
    402: "Budget used up",
    403: "Refused",
    404: "Not found",
    405: "Method not allowed",
    408: "Request too slow",
    409: "Conflict",
    410: "Gone",
    413: "Too large",
    414: "URL too long",
    415: "Unsupported media type",
    421: "Wrong host name",
    422: "Key already used",
    429: "Too many requests",
    431: "Header too large",
    500: "Internal error",
    501: "Not installed",
    502: "Agent failed",
    503: "Temporarily unavailable",
    507: "No space left",
}
_INTERNAL = "something went wrong in the service: try again later, or ask its operator to look into the log"
_UNAVAILABLE = "the database cannot be used right now: try again in a few seconds"
_BUSY = "the database is busy: try again in a few seconds"
_UNKNOWN = "the database was lost while this was stored: send the request again with the same Idempotency-Key"
# Longer than most locks and restarts of a connection, short enough for a person who waits.
_RETRY_SECONDS = "5"
_FULL = "the service has no space left to store this: ask its operator to make room"
# As in the log of nginx; there is no standard status.
_CLIENT_GONE = 499
_CODES = {404: "not_found", 405: "method_not_allowed"}


class Problem(Exception):
    """A fault that only exists over HTTP, such as a missing token or a body that is too large."""

    def __init__(self, status: int, code: str, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = headers or {}

    def response(self, **more: Any) -> Response:
        body = {
            "title": TITLES[self.status],
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
            **more,
        }
        return ProblemResponse(
            jsontext.dump(body, "problem"), self.status, self.headers, sentence=_sentence(self.detail)
        )


class ProblemResponse(Response):
    media_type = "application/problem+json"

    def __init__(self, content: bytes, status: int, headers: dict[str, str], *, sentence: str) -> None:
        super().__init__(content, status, headers)
        self._plain = PlainTextResponse(sentence, status, headers)
        self._openai = Response(openai_error(content, status), status, headers, "application/json")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].removeprefix(scope.get("root_path", "")).startswith(OPENAI_PATH):
            await self._openai(scope, receive, send)
        elif _prefers_text(Headers(scope=scope)):
            await self._plain(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def openai_error(problem: bytes, status: int) -> bytes:
    """The same problem as OpenAI's clients expect it. `param` is the first name that the detail quotes."""
    told = jsontext.parse(problem, "problem")
    named = _QUOTED.search(told["detail"])
    fault = {
        "message": told["detail"],
        "type": _OPENAI_TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error"),
        "param": None if named is None else named[1],
        "code": told["code"],
    }
    return jsontext.dump({"error": fault}, "error")


def _prefers_text(headers: Headers) -> bool:
    """Only if the client names it: `*/*` is what every client sends, and programs need the code."""
    accepted = headers.get("accept", "").lower()
    return "text/plain" in accepted and "json" not in accepted


def _sentence(detail: str) -> str:
    return f"{detail[:1].upper()}{detail[1:]}."


async def handle_problem(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, Problem)
    return exc.response()


async def handle_disconnect(request: Request, exc: Exception) -> Response:
    """The client disconnected before its body had arrived. The response is not sent; its status is for the log."""
    return Response(status_code=_CLIENT_GONE)


class ErrorHandler:
    """Answers Threadline's own errors."""

    def __init__(self) -> None:
        self._throttle = LogThrottle(log)

    async def __call__(self, request: Request, exc: Exception) -> Response:
        assert isinstance(exc, ThreadlineError)
        status = STATUSES[type(exc)]
        if status < 500:
            return Problem(status, exc.code, _printable(str(exc))).response(**_details(exc))
        # A database that is away fails every request: one line a minute says so. Each request has its line anyway.
        if status != 503 or self._throttle.is_due(exc.code):
            log.error("request failed", extra={"code": exc.code, **_where(request)}, exc_info=exc)
        headers = {"Retry-After": _RETRY_SECONDS} if status == 503 else None
        return Problem(status, exc.code, _safe_detail(exc), headers).response()


def _safe_detail(exc: ThreadlineError) -> str:
    """What the caller may know about an internal failure."""
    match exc:
        case errors.AgentFailed() | errors.NoWorker():
            return _printable(str(exc))
        case errors.StoreBusy():
            return _BUSY
        case errors.StoreUnavailable():
            return _UNAVAILABLE
        case errors.StoreFull():
            return _FULL
        case errors.OutcomeUnknown():
            return _UNKNOWN
    return _INTERNAL


async def handle_http_exception(request: Request, exc: Exception) -> Response:
    """For what the router raises: unknown path, unknown method."""
    assert isinstance(exc, HTTPException)
    code = _CODES.get(exc.status_code, "invalid_input")
    status = exc.status_code if exc.status_code in TITLES else 400
    headers = {"Allow": ", ".join(_allowed(request))} if status == 405 else dict(exc.headers or {})
    detail = _http_detail(request, status, exc.detail)
    return Problem(status, code, detail, headers).response()


def _http_detail(request: Request, status: int, detail: str) -> str:
    match status:
        case 404:
            return _NO_ROUTE
        case 405:
            return f"method {request.method[:20]} is not allowed here: use {', '.join(_allowed(request)) or 'GET'}"
    return detail[:1].lower() + detail[1:].rstrip(".")


def _allowed(request: Request) -> list[str]:
    """Every method of this path. Starlette names only those of the first route that matches it."""
    routes = [each for each in request.app.routes if isinstance(each, Route)]
    given = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    is_literal = any(each.path == given for each in routes)
    path = given if is_literal else getattr(request.scope.get("route"), "path", None)
    return sorted({method for route in routes if route.path == path for method in route.methods or ()})


async def handle_crash(request: Request, exc: Exception) -> Response:
    log.error("request crashed", extra=_where(request), exc_info=exc)
    # Written outside of all middleware, so the security headers are added here.
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return Problem(500, "internal", _INTERNAL, headers).response()


def _where(request: Request) -> dict[str, Any]:
    route = getattr(request.scope.get("route"), "path", None)
    return {"route": route, "request_id": request_id_of(request.scope)}


def _printable(text: str) -> str:
    # The text may quote the request, which may contain a lone surrogate: that cannot be encoded as UTF-8.
    return text.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")


def _details(exc: ThreadlineError) -> dict[str, Any]:
    """Additional keys for programs, beside the text."""
    match exc:
        case errors.HeadMoved():
            return {"currentCount": exc.current_count}
        case errors.ValueChanged():
            return {"currentVersion": exc.current_version}
        case errors.TurnRunning():
            return {"turnId": exc.turn_id, "currentCount": exc.current_count}
        case errors.KeyReused(state_key=str(state_key)):
            return {"stateKey": state_key}
        case errors.LimitExceeded():
            return {"limit": exc.limit, "allowed": exc.allowed}
        case errors.BudgetExceeded():
            resets_at = {} if exc.resets_at is None else {"resetsAt": exc.resets_at.isoformat()}
            return {"budget": exc.budget, **resets_at}
        case errors.InvalidImport():
            return {"line": exc.line}
    return {}
