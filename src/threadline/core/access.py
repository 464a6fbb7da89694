"""Who may: API tokens, and the record of what administrators did.

A token's text is `tl_<tenant>_<secret>`, the secret being 256 random bits. It is shown once; what is kept is its hash,
and a hash of that many random bits needs no salt and no slowness. The tenant stands in the text because it has to be
known before anything can be looked up: every table is closed to whoever does not say which tenant they speak for.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
import secrets
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from threadline.core.ids import check_tenant_id

TokenRole: TypeAlias = Literal["viewer", "member", "admin"]
TOKEN_ROLES: tuple[TokenRole, ...] = ("viewer", "member", "admin")
TOKEN_PREFIX = "tl_"  # noqa: S105 - the part of a token that is no secret
_TOKEN = re.compile(r"tl_([a-z0-9][a-z0-9-]{0,62})_[0-9a-f]{64}")


class NewToken(msgspec.Struct, frozen=True):
    """A token to keep. It acts for its owner, in this role; without `expires_at` until it is revoked. With
    `acts_for_users` it may also act for any user of its tenant whom a request names, as a member at most."""

    id: str
    token_hash: bytes
    owner_id: str
    name: str
    role: TokenRole
    expires_at: dt.datetime | None = None
    acts_for_users: bool = False


class ApiToken(msgspec.Struct, frozen=True):
    """A token as its administrator sees it. `last_used_at` is right to the minute."""

    id: str
    owner_id: str
    name: str
    role: TokenRole
    created_at: dt.datetime
    expires_at: dt.datetime | None = None
    last_used_at: dt.datetime | None = None
    revoked_at: dt.datetime | None = None
    acts_for_users: bool = False

    def is_valid(self, now: dt.datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class Act(msgspec.Struct, frozen=True):
    """Something an administrator did: who, what, to what. Details are ids and settings, never what was said."""

    id: str
    actor_id: str
    act: str
    target: str
    details: dict[str, Any]
    created_at: dt.datetime


class ReadToken(NamedTuple):
    """What a token's text says by itself: where to look, and for what."""

    tenant_id: str
    token_hash: bytes


def make_token(tenant_id: str) -> str:
    """The text of a new token. Whoever has it may act: it is shown once and kept nowhere."""
    return f"{TOKEN_PREFIX}{check_tenant_id(tenant_id)}_{secrets.token_hex(32)}"


def read_token(text: str) -> ReadToken | None:
    """None for what no token can look like."""
    found = _TOKEN.fullmatch(text)
    return None if found is None else ReadToken(found[1], hashlib.sha256(text.encode()).digest())
