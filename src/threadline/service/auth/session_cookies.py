"""The session cookie of a signed-in person, and the check that a request with it comes from our own page.

The cookie is HttpOnly, Secure and SameSite=Lax, and its prefix `__Host-` keeps other hosts of the same domain from
setting it. A browser adds it to every request to this host, also to those that another page causes, so a request that
changes something must show with Origin or Sec-Fetch-Site, which no page can forge, that our own page sent it.
"""

from __future__ import annotations

import hashlib
import hmac
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from threadline.service.http.problems import Problem

SESSION_COOKIE = "__Host-threadline"
_SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))
_DEVICE = 150


def session_secret(request: Request) -> str | None:
    return request.cookies.get(SESSION_COOKIE) or None


def set_cookie(response: Response, name: str, value: str, seconds: int) -> None:
    response.set_cookie(name, value, max_age=seconds, path="/", secure=True, httponly=True, samesite="lax")


def clear_cookie(response: Response, name: str) -> None:
    response.delete_cookie(name, path="/", secure=True, httponly=True, samesite="lax")


def check_own_page(request: Request, url: str) -> None:
    """A Problem unless the request changes nothing, or our own page sent it. `url` is the setting `sign_in.url`."""
    if request.method in _SAFE_METHODS:
        return
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    if site not in (None, "same-origin") or (origin is None and site is None) or not _is_own(request, origin, url):
        raise Problem(
            403,
            "origin_refused",
            "a request with a session cookie must come from the page of this service: programs send a token in the "
            "header Authorization instead",
        )


def _is_own(request: Request, origin: str | None, url: str) -> bool:
    if origin is None:
        return True
    if url:
        return origin == origin_of(url)
    return origin.partition("://")[2] == request.headers.get("host", "")


def origin_of(url: str) -> str:
    parts = urlsplit(url)
    default = {"https": 443, "http": 80}.get(parts.scheme)
    port = "" if parts.port in (None, default) else f":{parts.port}"
    host = parts.hostname or ""
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}"


def device_of(request: Request) -> str:
    """What the list of devices shows: the program's own description of itself."""
    return "".join(c for c in request.headers.get("user-agent", "") if c.isprintable())[:_DEVICE] or "unknown device"


def sign(value: str, key: str) -> str:
    return hmac.new(
        hashlib.sha256(b"threadline sign-in " + key.encode()).digest(), value.encode(), "sha256"
    ).hexdigest()
