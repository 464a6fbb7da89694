"""HTTP/1.1 on one connection, with limits of time and size around uvicorn's parser.

Uvicorn bounds neither the head of a request nor the pace of a body, and closes a connection without reading the rest of
a refused body. A client that is still sending then gets a reset instead of the response. Here a connection that is
closed before the request has ended lingers: the response and the end of the stream are sent, and what still arrives is
read and discarded, for a bounded time and number of bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import httptools
from starlette.responses import Response
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from threadline.service.http.problems import Problem
from threadline.service.process.connections import ConnectionTable

# A client that sends a large body reads the response only when it has sent all of it. Beyond these limits it gets a
# reset, because a body can be endless.
_LINGER_SECONDS = 30.0
_LINGER_QUIET_SECONDS = 5.0
_LINGER_BYTES = 128 * 1024 * 1024


class Refusal(NamedTuple):
    """Why a request is refused before the app sees it. `kind` is for metrics and the log."""

    kind: str
    status: int
    code: str
    detail: str


_NOT_HTTP = Refusal("invalid_http", 400, "invalid_http", "this is not a valid HTTP/1.1 request")


class _HeadRefused(Exception):
    """Ends the parser's work from one of its callbacks."""


class LingeringTransport(asyncio.Transport):
    """The transport that uvicorn sees: closing is up to the protocol, which may have to read on first."""

    def __init__(self, inner: asyncio.Transport, close: Callable[[], None]) -> None:
        super().__init__()
        self.inner = inner
        self.is_lingering = False
        self._close = close

    def close(self) -> None:
        self._close()

    def is_closing(self) -> bool:
        return self.is_lingering or self.inner.is_closing()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.is_lingering:
            self.inner.write(data)

    def abort(self) -> None:
        self.inner.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.inner.get_extra_info(name, default)

    def pause_reading(self) -> None:
        self.inner.pause_reading()

    def resume_reading(self) -> None:
        self.inner.resume_reading()


class BoundedHttpProtocol(HttpToolsProtocol):
    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        assert isinstance(server_state, ConnectionTable), "`Server` creates the table"
        self._table = server_state
        self._limits = server_state.limits
        self._wire: LingeringTransport
        self._host = ""
        self._request: RequestResponseCycle | None = None
        """The last request that the app was given."""
        self._refusal: Refusal | None = None
        self._in_head = False
        self._head_received = 0
        """Bytes of a head that is not complete, as they arrived."""
        self._head_parsed = 0
        """Bytes of the head that the parser has handed over."""
        self._in_body = False
        self._body_since = 0.0
        self._body_received = 0
        self._discarded = 0
        self._lingers_since = 0.0
        self._last_data = 0.0
        self._stalled: tuple[float, int] | None = None
        """Since when the client has not read, and how much it had left to read then."""

    # The connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # asyncio declares the base class here, but TCP servers always pass a Transport.
        assert isinstance(transport, asyncio.Transport)
        self._wire = LingeringTransport(transport, self._close)
        super().connection_made(self._wire)
        self._host = self.client[0] if self.client else ""
        if (problem := self._table.admit(self, self._host)) is not None:
            # Answered when the request has arrived: many clients do not expect a response before they have sent it.
            self.app = problem.response()

    def connection_lost(self, exc: Exception | None) -> None:
        self._table.remove(self, self._host)
        super().connection_lost(exc)

    def shutdown(self) -> None:
        if self._wire.is_lingering:
            self._wire.abort()
        else:
            super().shutdown()

    def evict(self) -> None:
        self._table.report("evicted", self._host)
        self._wire.abort()

    def expire(self) -> None:
        if not self._in_head:
            # Nothing was sent: an idle connection, or one that a browser opened in advance.
            self._wire.inner.close()
            return
        seconds = self._limits.head_seconds
        self._refuse(Refusal("head_timeout", 408, "request_timeout", f"request head took over {seconds:g} seconds"))

    def _close(self) -> None:
        """What `close` of uvicorn's transport does."""
        if self._in_body and not self._wire.is_closing():
            self._linger()
        elif not self._wire.is_lingering:
            self._wire.inner.close()

    # Reading

    def data_received(self, data: bytes) -> None:
        if self._wire.is_lingering:
            self._discard(len(data))
            return
        was_in_head, was_in_body = self._in_head, self._in_body
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # Only HTTP/1.1 is served. The request itself is answered as if it had not asked.
            self._table.report("upgrade_ignored", self._host)
        except httptools.HttpParserError:
            self._refuse(self._refusal or _NOT_HTTP)
            return
        if self._in_head:
            # The rest of a body may come in the same piece as the next head, and does not count as head.
            self._head_received = (self._head_received if was_in_head else 0) + (0 if was_in_body else len(data))
            if self._head_received > self._limits.head_bytes:
                self._refuse(self._head_too_large())
        elif self._in_body:
            self._table.watch_transfer(self)

    def on_message_begin(self) -> None:
        self._in_head = True
        self._head_received = self._head_parsed = 0
        if self._is_between_requests():
            self._table.expect_head(self)
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        if len(self.url) + len(url) > self._limits.url_bytes:
            detail = f"URL must have at most {self._limits.url_bytes} bytes: send long values in a body"
            self._reject(Refusal("url_too_long", 414, "url_too_long", detail))
        self._head_parsed += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_parsed += len(name) + len(value)
        if self._head_parsed > self._limits.head_bytes:
            self._reject(self._head_too_large())
        if len(self.headers) >= self._limits.headers:
            detail = f"request must have at most {self._limits.headers} headers"
            self._reject(Refusal("too_many_headers", 431, "too_many_headers", detail))
        super().on_header(name, value)

    def _head_too_large(self) -> Refusal:
        detail = f"URL and headers must have at most {self._limits.head_bytes} bytes together"
        return Refusal("head_too_large", 431, "head_too_large", detail)

    def _reject(self, refusal: Refusal) -> None:
        self._refusal = refusal
        raise _HeadRefused

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._in_body = True
        self._body_since = self.loop.time()
        self._body_received = self._discarded = 0
        self._table.stop_waiting(self)
        super().on_headers_complete()
        self._request = self.cycle

    def on_body(self, body: bytes) -> None:
        self._body_received += len(body)
        if self.cycle.response_complete:
            self._discard(len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body = False
        super().on_message_complete()
        self._expect_request()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._in_body:
            self._lingers_since = self._last_data = self.loop.time()
            self._table.watch_transfer(self)
        elif self._in_head and self._is_between_requests():
            self._table.expect_head(self)
        else:
            self._expect_request()

    def _is_between_requests(self) -> bool:
        return self._request is None or self._request.response_complete

    def _expect_request(self) -> None:
        if self._is_between_requests() and not self._wire.is_closing():
            self._table.expect_request(self, self.timeout_keep_alive)

    # Writing

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = (self.loop.time(), self._wire.inner.get_write_buffer_size())
        self._table.watch_transfer(self)

    def resume_writing(self) -> None:
        self._stalled = None
        super().resume_writing()

    # Ending

    def check_progress(self, now: float) -> bool:
        if self._wire.inner.is_closing():
            return False
        if self._stalled is not None:
            self._check_reader(now, *self._stalled)
        if self._wire.is_lingering or (self._in_body and self._is_between_requests()):
            self._check_linger(now)
        elif self._in_body:
            self._check_body(now)
        return self._in_body or self._wire.is_lingering or self._stalled is not None

    def _check_reader(self, now: float, since: float, size: int) -> None:
        left = self._wire.inner.get_write_buffer_size()
        if left < size:
            # The client is slow, but it reads.
            self._stalled = (now, left)
        elif now - since > self._limits.write_seconds:
            self._table.report("reader_stalled", self._host)
            self._wire.abort()

    def _check_linger(self, now: float) -> None:
        if now - self._lingers_since > _LINGER_SECONDS or now - self._last_data > _LINGER_QUIET_SECONDS:
            self._wire.abort()

    def _check_body(self, now: float) -> None:
        if self.flow.read_paused or self.cycle.waiting_for_100_continue:
            # The client waits for the app, not the other way round.
            self._body_since = now
            self._body_received = 0
            return
        allowed = self._limits.body_seconds + self._body_received / self._limits.body_bytes_per_second
        if now - self._body_since > allowed:
            detail = f"body took too long: send at least {self._limits.body_bytes_per_second} bytes a second"
            self._refuse(Refusal("body_timeout", 408, "request_timeout", detail))

    def _refuse(self, refusal: Refusal) -> None:
        self._table.report(refusal.kind, self._host)
        self._table.stop_waiting(self)
        if not self._is_between_requests():
            if self._in_head or self.cycle.response_started:
                # Another request of this connection is being answered: a second response would be taken for its own.
                self._wire.abort()
                return
            # To the app, the client has gone.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        problem = Problem(refusal.status, refusal.code, refusal.detail, {"Connection": "close"})
        self._wire.write(_encode(problem.response()))
        self._linger()

    def _linger(self) -> None:
        self._wire.is_lingering = True
        self._lingers_since = self._last_data = self.loop.time()
        # TLS has no half-closed connections: there the client sees the end when the connection is closed.
        if self._wire.inner.can_write_eof():
            self._wire.inner.write_eof()
        # The app may have paused it, and it will not read any more.
        self.flow.resume_reading()
        self._table.expect_end(self)
        self._table.watch_transfer(self)

    def _discard(self, count: int) -> None:
        self._last_data = self.loop.time()
        self._discarded += count
        if self._discarded > _LINGER_BYTES:
            self._wire.abort()


def _encode(response: Response) -> bytes:
    lines = [b"%s: %s\r\n" % header for header in response.raw_headers]
    return b"".join((STATUS_LINE[response.status_code], *lines, b"\r\n", bytes(response.body)))
