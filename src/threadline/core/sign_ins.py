"""Sign-ins: the sessions of people in browsers, and the links that begin one.

A sign-in begins as a link that works once, or at an identity provider. Its secret has the form
`tls_<tenant>_<64 hex digits>`, of a link `tll_…`; only its SHA-256 is stored. Opening a link replaces its secret, so a
link that was used once, and a copy of it in a mail or a log, are worth nothing. Like a token it contains the tenant,
because every query is limited to one.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
import secrets
from typing import Annotated

import msgspec

from threadline.core.access import TokenLookup, TokenRole
from threadline.core.ids import check_tenant_id

SESSION_PREFIX = "tls_"
LINK_PREFIX = "tll_"
LINK = "link"
"""The method of a sign-in by link; the others are names of identity providers."""
DEVICE_LENGTH = 200
_SECRET = re.compile(r"(tls|tll)_([a-z0-9][a-z0-9-]{0,62})_[0-9a-f]{64}")
_Days = Annotated[float, msgspec.Meta(gt=0, le=3_650)]


class SignInSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sessions of people. `url` is the address of the service as browsers see it, such as https://chat.example.com."""

    url: str = ""
    idle_days: _Days = 14.0
    absolute_days: _Days = 90.0
    link_minutes: Annotated[float, msgspec.Meta(gt=0, le=43_200)] = 15.0

    @property
    def idle(self) -> dt.timedelta:
        return dt.timedelta(days=self.idle_days)

    @property
    def lifetime(self) -> dt.timedelta:
        return dt.timedelta(days=self.absolute_days)

    @property
    def link_lifetime(self) -> dt.timedelta:
        return dt.timedelta(minutes=self.link_minutes)


class NewSignIn(msgspec.Struct, frozen=True):
    """A sign-in to store. One that is not `is_open` is a link."""

    id: str
    secret_hash: bytes
    owner_id: str
    role: TokenRole
    method: str
    expires_at: dt.datetime
    device: str | None = None
    is_open: bool = True


class SignIn(msgspec.Struct, frozen=True):
    """A stored sign-in, without its secret. Without `opened_at` it is a link that was not used. `last_seen_at` is
    accurate to the minute."""

    id: str
    owner_id: str
    role: TokenRole
    method: str
    created_at: dt.datetime
    expires_at: dt.datetime
    opened_at: dt.datetime | None = None
    last_seen_at: dt.datetime | None = None
    revoked_at: dt.datetime | None = None
    device: str | None = None

    def is_valid(self, now: dt.datetime, idle: dt.timedelta) -> bool:
        """Whether it is a session that may be used now. `idle` is how long it may be unused."""
        if self.revoked_at is not None or self.opened_at is None or now >= self.expires_at:
            return False
        return now - (self.last_seen_at or self.opened_at) < idle


def make_session_secret(tenant_id: str) -> str:
    return f"{SESSION_PREFIX}{check_tenant_id(tenant_id)}_{secrets.token_hex(32)}"


def make_link_secret(tenant_id: str) -> str:
    return f"{LINK_PREFIX}{check_tenant_id(tenant_id)}_{secrets.token_hex(32)}"


def parse_secret(text: str, prefix: str) -> TokenLookup | None:
    """None if the text does not have the form of a session's secret, or of a link's."""
    found = _SECRET.fullmatch(text)
    if found is None or not text.startswith(prefix):
        return None
    return TokenLookup(found[2], hashlib.sha256(text.encode()).digest())


def link_url(address: str, secret: str) -> str:
    """The secret is in the fragment, which browsers send to no server, so it is in no log."""
    return f"{address.rstrip('/')}/#sign-in={secret}"
