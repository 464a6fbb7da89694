"""What a browser carries between the redirect to an identity provider and the return from it, in a signed cookie.

The cookie holds state, nonce and PKCE verifier, so that any worker can finish what another began and nothing is stored
for people who never return. Each attempt has a cookie of its own, named after its state: two tabs do not disturb each
other, and a return without the cookie of its own state is refused.
"""

from __future__ import annotations

import binascii
import datetime as dt
import hmac
import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec

from threadline.service.auth.session_cookies import sign

FLOW_SECONDS = 600
_COOKIE_PREFIX = "__Host-threadline-flow-"
_STATE = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)
# A path on this host. A browser reads `//host`, `/\host` and paths with tabs as another host.
_PATH = re.compile(r"/(?![/\\])[!-\[\]-~]{0,2000}|/", re.ASCII)


class SignInFlow(msgspec.Struct, frozen=True):
    """One attempt. `next` is the path to go to in the end."""

    provider: str
    state: str
    nonce: str
    verifier: str
    next: str
    expires_at: dt.datetime

    @property
    def cookie_name(self) -> str:
        return _COOKIE_PREFIX + self.state[:16]


def begin_flow(provider: str, next_path: str, now: dt.datetime) -> SignInFlow:
    state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
    expires_at = now + dt.timedelta(seconds=FLOW_SECONDS)
    return SignInFlow(provider, state, nonce, verifier, safe_path(next_path), expires_at)


def cookie_name_of(state: str) -> str | None:
    """None for a text that is no state."""
    return _COOKIE_PREFIX + state[:16] if _STATE.fullmatch(state) else None


def pack_flow(flow: SignInFlow, key: str) -> str:
    body = urlsafe_b64encode(msgspec.json.encode(flow)).decode().rstrip("=")
    return f"{body}.{sign(body, key)}"


def unpack_flow(packed: str, key: str, provider: str, state: str, now: dt.datetime) -> SignInFlow | None:
    """None unless this provider's attempt with this state wrote it and it has not expired."""
    body, _, signature = packed.partition(".")
    if not hmac.compare_digest(sign(body, key).encode(), signature.encode()):
        return None
    try:
        flow = msgspec.json.decode(urlsafe_b64decode(body + "=" * (-len(body) % 4)), type=SignInFlow)
    except (binascii.Error, msgspec.DecodeError):
        return None
    is_ours = flow.provider == provider and hmac.compare_digest(flow.state, state)
    return flow if is_ours and now < flow.expires_at else None


def safe_path(given: str) -> str:
    """The path if it stays on this host, else the start page."""
    return given if _PATH.fullmatch(given) else "/"
