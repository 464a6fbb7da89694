"""HTTP client for messaging platforms: it sends only to the platforms' own hosts, over TLS.

The settings may name a simulator on this machine instead. Responses are read up to a limit. Reasons describe what
happened on the connection, never what was sent.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Iterable

from threadline.core.errors import SettingsInvalid
from threadline.core.platform_messages import Ambiguous, HttpRequest, HttpResponse, Transient
from threadline.net.addresses import Target, parse_url
from threadline.net.http_client import HttpReply, NotSent, send_request
from threadline.net.retry import RequestFailed

PLATFORM_HOSTS = frozenset(("slack.com", "api.telegram.org", "graph.facebook.com"))
_LONGEST_ANSWER = 8 * 1_048_576


class PlatformHttp:
    """`stand_ins` are addresses of simulated platforms on this machine."""

    def __init__(self, stand_ins: Iterable[str] = ()) -> None:
        self._stand_ins = frozenset(_on_this_machine(url) for url in stand_ins)

    async def send(self, request: HttpRequest, *, seconds: float = 20.0) -> HttpResponse | Transient | Ambiguous:
        target = parse_url(request.url)
        is_stand_in = (target.scheme, target.host, target.port) in self._stand_ins
        if not is_stand_in and (target.scheme != "https" or target.host not in PLATFORM_HOSTS):
            return Transient("the address is not a platform's")
        try:
            # For the whole exchange: a platform that answers byte by byte must not hold a delivery slot.
            async with asyncio.timeout(seconds):
                return await _exchange(target, request, seconds, public_only=not is_stand_in)
        except NotSent:
            return Transient("the platform could not be reached", is_outage=True)
        except RequestFailed:
            return Ambiguous("the connection broke before the response")
        except TimeoutError:
            return Ambiguous("no response in time")


async def _exchange(target: Target, request: HttpRequest, seconds: float, *, public_only: bool) -> HttpResponse:
    headers = {name.lower(): value for name, value in request.headers.items()}
    async with send_request(
        target, request.body, headers, silence_seconds=seconds, public_only=public_only, method=request.method
    ) as answer:
        return HttpResponse(answer.status, answer.headers, await _body(answer))


async def _body(answer: HttpReply) -> bytes:
    read = bytearray()
    async for piece in answer.body:
        read += piece
        if len(read) > _LONGEST_ANSWER:
            break
    return bytes(read)


def _on_this_machine(url: str) -> tuple[str, str, int]:
    target = parse_url(url)
    try:
        is_loopback = target.host == "localhost" or ipaddress.ip_address(target.host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise SettingsInvalid(
            f"`api` must be an address on this machine, got {url!r}: leave it out to use the platform"
        )
    return target.scheme, target.host, target.port
