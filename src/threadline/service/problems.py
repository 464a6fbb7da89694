"""Errors as HTTP answers: `application/problem+json` with a stable `code`, from one table.

Everything that goes wrong ends here. What a caller did wrong is told in a sentence; what failed in the house is logged,
and the caller learns only that it did, because such messages name files and servers.
"""

from __future__ import annotations

import logging
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadline.core import errors, jsontext
from threadline.core.errors import ThreadlineError

log = logging.getLogger("threadline.service")

_NO_ROUTE = "There is nothing at this address. /docs lists the routes of this service."
REQUEST_ID_KEY = "threadline.request_id"
"""Where a request's id stands in its ASGI scope."""

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
    errors.DuplicateId: 409,
    errors.KeyReused: 422,
    errors.TurnRunning: 409,
    errors.Refused: 403,
    errors.RoleRefused: 403,
    errors.GuardRefused: 403,
    errors.SignatureInvalid: 401,
    errors.TokenRefused: 401,
    errors.ImpersonationRefused: 403,
    errors.LinkRefused: 409,
    errors.LinkLimited: 429,
    errors.AgentFailed: 502,
    errors.ServiceUnavailable: 502,
    errors.SettingsInvalid: 500,
    errors.ExtraMissing: 500,
    errors.StoreFailed: 503,
    errors.StoreUnavailable: 503,
    errors.StoreFull: 507,
    errors.StoreReadOnly: 503,
    errors.StoreCorrupt: 500,
    errors.SchemaMismatch: 503,
    errors.OutcomeUnknown: 503,
}

TITLES = {
    400: "Bad request",
    401: "Not signed in",
    403: "Refused",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    413: "Too large",
    415: "Unsupported media type",
    421: "Not for this host",
    422: "Key used before",
    429: "Too many requests",
    431: "Header too large",
    500: "Internal error",
    502: "The agent failed",
    503: "Not available now",
    507: "No space left",
}
_HOUSE_FAULT = "Something failed here. It has been written to the log; try again later."
_CODES = {404: "not_found", 405: "method_not_allowed"}


class Problem(Exception):
    """A fault of the request itself, before the house has looked at what it asks."""

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
        written = jsontext.dump(body, "problem")
        return Response(written, self.status, self.headers, media_type="application/problem+json")


async def answer_problem(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, Problem)
    return exc.response()


async def answer_error(request: Request, exc: Exception) -> Response:
    """For every error of the house."""
    assert isinstance(exc, ThreadlineError)
    status = STATUSES[type(exc)]
    if status < 500:
        return Problem(status, exc.code, _sayable(str(exc))).response(**_details(exc))
    log.error("request failed", extra={"code": exc.code, **_where(request)}, exc_info=exc)
    detail = _sayable(str(exc)) if isinstance(exc, errors.AgentFailed) else _HOUSE_FAULT
    headers = {"Retry-After": "5"} if status == 503 else None
    return Problem(status, exc.code, detail, headers).response()


async def answer_http(request: Request, exc: Exception) -> Response:
    """For what the router raises: no such route, no such method."""
    assert isinstance(exc, HTTPException)
    code = _CODES.get(exc.status_code, "invalid_input")
    status = exc.status_code if exc.status_code in TITLES else 400
    headers = {"Allow": ", ".join(_allowed(request))} if status == 405 else dict(exc.headers or {})
    detail = _NO_ROUTE if status == 404 else exc.detail
    return Problem(status, code, detail, headers).response()


def _allowed(request: Request) -> list[str]:
    """Every method of this path; the router tells only those of the first route that has it."""
    routes = [each for each in request.app.routes if isinstance(each, Route)]
    asked = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    known = any(each.path == asked for each in routes)
    path = asked if known else getattr(request.scope.get("route"), "path", None)
    same = (each for each in routes if each.path == path)
    return sorted({method for route in same for method in route.methods or ()})


async def answer_crash(request: Request, exc: Exception) -> Response:
    log.error("request crashed", extra=_where(request), exc_info=exc)
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return Problem(500, "internal", _HOUSE_FAULT, headers).response()


def _where(request: Request) -> dict[str, Any]:
    return {"route": getattr(request.scope.get("route"), "path", None), "request_id": request.scope.get(REQUEST_ID_KEY)}


def _sayable(text: str) -> str:
    # A message may quote what the caller sent, and that may be half a character.
    return text.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")


def _details(exc: ThreadlineError) -> dict[str, Any]:
    """What a program needs to go on, beside the sentence."""
    match exc:
        case errors.HeadMoved():
            return {"currentCount": exc.current_count}
        case errors.TurnRunning():
            return {"turnId": exc.turn_id, "currentCount": exc.current_count}
        case errors.KeyReused(state_key=str(state_key)):
            return {"stateKey": state_key}
        case errors.LimitExceeded():
            return {"limit": exc.limit, "allowed": exc.allowed}
        case errors.InvalidImport():
            return {"line": exc.line}
    return {}
