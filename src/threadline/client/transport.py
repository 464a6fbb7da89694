"""HTTP requests to a service: token, timeouts and retries.

A request that is safe to repeat is retried after a connection error and after 429, 502, 503 and 504; one that is not is
retried only if it was never sent. A problem response is raised as the error that the service had.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from copy import copy
from typing import Any
from urllib.parse import urlsplit

import msgspec

from threadline.core import errors
from threadline.core.errors import ExtraMissing, InvalidInput, ServiceUnavailable, ThreadlineError

try:
    import httpx2
except ModuleNotFoundError as exc:
    raise ExtraMissing("client", "the client of a service") from exc

_PASSING = frozenset((429, 502, 503, 504))
_LONGEST_PAUSE = 10.0
_KEPT_ALIVE = 20


class RetryPolicy(msgspec.Struct, frozen=True):
    """Timeouts for connecting and for the next bytes (a stream sends a comment every few seconds), and the pause before
    each further attempt."""

    connect_seconds: float = 5.0
    read_seconds: float = 60.0
    retry_seconds: tuple[float, ...] = (0.1, 0.5, 1.0, 2.0, 4.0)


class Transport:
    def __init__(self, url: str, token: str | None, retry: RetryPolicy) -> None:
        if not url.startswith(("http://", "https://")):
            raise InvalidInput(f"`url` must begin with http:// or https://, got {url!r}")
        if not urlsplit(url).hostname:
            raise InvalidInput(f"`url` must name a host, got {url!r}")
        self.retry = retry
        self.headers: Mapping[str, str] = {}
        self.is_shared = False
        self._http = httpx2.AsyncClient(
            base_url=url.rstrip("/"),
            headers={} if token is None else {"authorization": f"Bearer {token}"},
            timeout=httpx2.Timeout(retry.read_seconds, connect=retry.connect_seconds),
            # No limit: each open stream occupies a connection for as long as its turn runs.
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=_KEPT_ALIVE),
        )

    def with_headers(self, headers: Mapping[str, str]) -> Transport:
        """The same connection with these headers on every request. Closing it does not close the connection."""
        shared = copy(self)
        shared.headers, shared.is_shared = {**self.headers, **headers}, True
        return shared

    async def close(self) -> None:
        if not self.is_shared:
            await self._http.aclose()

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        again: bool = True,
    ) -> bytes:
        """The body of the response. `again` says that the request is safe to repeat."""
        async with self.open(method, path, body, query=query, headers=headers, content=content, again=again) as answer:
            return await _whole(answer)

    @asynccontextmanager
    async def open(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        again: bool = True,
    ) -> AsyncIterator[httpx2.Response]:
        """A successful response whose body the caller reads. Leaving the context closes the connection."""
        sent: dict[str, Any] = {} if body is None else {"json": body}
        if content is not None:
            sent = {"content": content}
        request = self._http.build_request(
            method,
            path,
            params={} if query is None else _present(query),
            headers={**self.headers, **(headers or {})},
            **sent,
        )
        answer = await self._send(request, again=again)
        try:
            if answer.status_code >= 400:
                raise to_error(answer.status_code, await _whole(answer))
            yield answer
        finally:
            await answer.aclose()

    async def _send(self, request: httpx2.Request, *, again: bool) -> httpx2.Response:
        for pause in (*self.retry.retry_seconds, None):
            try:
                answer = await self._http.send(request, stream=True)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as exc:
                if pause is None:
                    raise ServiceUnavailable(f"the service at {_address(request.url)} cannot be reached") from exc
            except httpx2.TransportError as exc:
                if pause is None or not again:
                    raise ServiceUnavailable(f"the service broke off: {type(exc).__name__}") from exc
            else:
                if pause is None or not again or answer.status_code not in _PASSING:
                    return answer
                pause = max(pause, _asked_pause(answer))
                await answer.aclose()
            # The server may be restarting: each attempt waits longer, and as long as its Retry-After asks.
            await asyncio.sleep(pause)
        raise AssertionError("the last attempt returns or raises")


async def _whole(answer: httpx2.Response) -> bytes:
    try:
        return await answer.aread()
    except httpx2.TransportError as exc:
        raise ServiceUnavailable(f"the service broke off: {type(exc).__name__}") from exc


def _address(url: httpx2.URL) -> str:
    """Without a password or a path, so that it can be shown."""
    return f"{url.scheme}://{url.netloc.decode()}"


def _asked_pause(answer: httpx2.Response) -> float:
    """The Retry-After of the response, at most 10 seconds: a client should not hang on one header."""
    given = answer.headers.get("retry-after", "")
    return min(float(given), _LONGEST_PAUSE) if given.isdecimal() else 0.0


def _present(query: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: str(value).lower() if isinstance(value, bool) else value
        for key, value in query.items()
        if value is not None
    }


_BY_STATUS: tuple[tuple[range, type[ThreadlineError]], ...] = (
    (range(401, 402), errors.TokenRefused),
    (range(403, 404), errors.Refused),
    (range(404, 405), errors.NotFound),
    (range(409, 410), errors.Conflict),
    (range(429, 430), errors.ServiceUnavailable),
    (range(400, 500), errors.InvalidInput),
    # A fault that the same request would meet again, unlike those of a service that is down or busy.
    (range(500, 501), errors.ThreadlineError),
    (range(501, 600), errors.ServiceUnavailable),
)
_FIELDS = ("currentCount", "currentVersion", "turnId", "stateKey", "limit", "allowed", "line", "budget")
_NAMES = {
    "currentCount": "current_count",
    "currentVersion": "current_version",
    "turnId": "turn_id",
    "stateKey": "state_key",
}


def _family(root: type[ThreadlineError]) -> Iterator[type[ThreadlineError]]:
    yield root
    for child in root.__subclasses__():
        yield from _family(child)


_BY_CODE = {kind.code: kind for kind in _family(ThreadlineError)}


def to_error(status: int, body: bytes) -> ThreadlineError:
    """The error of a problem body: the class that its `code` names, with the text of the service. The constructor is
    not called, because it would write another text. A code that this version does not know becomes the class of the
    status; so does a body that is not a problem."""
    said = _problem(body)
    code, detail = said.get("code"), said.get("detail")
    kind = _BY_CODE.get(code) if isinstance(code, str) else None
    if kind is None:
        kind = next((each for statuses, each in _BY_STATUS if status in statuses), errors.ServiceUnavailable)
    error = kind.__new__(kind)
    Exception.__init__(error, detail if isinstance(detail, str) else f"the service answered {status}")
    for name in _FIELDS:
        if name in said:
            setattr(error, _NAMES.get(name, name), said[name])
    if isinstance(error, errors.BudgetExceeded) and isinstance(said.get("resetsAt"), str):
        with suppress(ValueError):
            error.resets_at = dt.datetime.fromisoformat(said["resetsAt"])
    return error


def _problem(body: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return value if isinstance(value, dict) else {}
