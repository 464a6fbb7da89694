"""Limits on request bodies: size, media type and encoding.

A request whose declared length is too large, whose type is not JSON or which is compressed is refused before its body
is read. A body without a declared length is counted while it is read. So no request uses more memory than the limit,
and no cross-site form is accepted as an API call.
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from threadline.service.http.problems import Problem
from threadline.service.http.requests import WEBHOOK_PATH

# Browsers send this type to another origin only after a preflight request, unlike the types of forms.
_JSON = frozenset(("application/json",))
# Slack sends buttons and slash commands as forms. A webhook accepts only what its platform signed.
_WEBHOOKS = frozenset(("application/json", "application/x-www-form-urlencoded"))
_LINES = frozenset(("application/x-ndjson", "application/jsonl", "application/json"))
_CHARSETS = frozenset(("utf-8", "utf8"))


class BodyLimit:
    """`larger` are the limits of paths that take JSON Lines; `webhook_limit` is that of platforms, which send a refused
    delivery again for days."""

    def __init__(self, app: ASGIApp, *, limit: int, larger: Mapping[str, int], webhook_limit: int) -> None:
        self._app = app
        self._limit = limit
        self._larger = larger
        self._webhook_limit = webhook_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        path: str = scope["path"].removeprefix(scope.get("root_path", ""))
        is_webhook = WEBHOOK_PATH.fullmatch(path) is not None
        limit = self._webhook_limit if is_webhook else self._larger.get(path, self._limit)
        try:
            if _has_body(headers):
                _check_type(headers, _WEBHOOKS if is_webhook else _LINES if path in self._larger else _JSON)
                _check_length(headers, limit)
        except Problem as problem:
            await problem.response()(scope, receive, send)
            return
        await self._app(scope, _count_bytes(receive, limit), send)


def _has_body(headers: Headers) -> bool:
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


def _check_type(headers: Headers, allowed: frozenset[str]) -> None:
    if headers.get("content-encoding", "identity") != "identity":
        raise Problem(
            415,
            "unsupported_encoding",
            "body must not be compressed: leave out Content-Encoding",
            {"Accept-Encoding": "identity"},
        )
    media_type, _, parameters = headers.get("content-type", "").lower().partition(";")
    if media_type.strip() not in allowed:
        raise Problem(
            415,
            "unsupported_media_type",
            f"Content-Type must be {' or '.join(sorted(allowed))}, got {media_type.strip()[:60] or 'none'}",
        )
    for parameter in filter(None, map(str.strip, parameters.split(";"))):
        name, _, value = parameter.partition("=")
        if name == "charset" and value.strip('"') not in _CHARSETS:
            raise Problem(415, "unsupported_media_type", "charset must be utf-8")


def _check_length(headers: Headers, limit: int) -> None:
    declared = headers.get("content-length", "0")
    if not declared.isascii() or not declared.isdigit():
        raise Problem(400, "invalid_input", "Content-Length must be a number")
    # A longer number is too large in any case, and Python refuses to convert very long ones.
    if len(declared) > 19 or int(declared) > limit:
        raise _too_large(limit)


def _count_bytes(receive: Receive, limit: int) -> Receive:
    remaining = limit

    async def counted() -> Message:
        nonlocal remaining
        message = await receive()
        remaining -= len(message.get("body", b""))
        if remaining < 0:
            raise _too_large(limit)
        return message

    return counted


def _too_large(limit: int) -> Problem:
    # The rest of the body is not read, so the connection cannot be used again.
    return Problem(413, "body_too_large", f"body must have at most {limit} bytes", {"Connection": "close"})
