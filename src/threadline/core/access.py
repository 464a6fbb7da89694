"""API tokens, and the audit log of administrators.

A token is `tl_<tenant>_<secret>`, with a secret of 256 random bits. It is shown once; only its SHA-256 is stored. A
hash of that many random bits needs neither a salt nor a slow function. The token contains the tenant because every
query is limited to one tenant, so the tenant must be known before the token can be looked up.
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
TOKEN_PREFIX = "tl_"  # noqa: S105 - the prefix is not a secret
_TOKEN = re.compile(r"tl_([a-z0-9][a-z0-9-]{0,62})_[0-9a-f]{64}")


class NewToken(msgspec.Struct, frozen=True):
    """A token to store. It authenticates as its owner in this role, until `expires_at` or until it is revoked. With
    `acts_for_users` it may also act for any user of its tenant that a request names, as a member at most."""

    id: str
    token_hash: bytes
    owner_id: str
    name: str
    role: TokenRole
    expires_at: dt.datetime | None = None
    acts_for_users: bool = False


class ApiToken(msgspec.Struct, frozen=True):
    """A stored token, without its secret. `last_used_at` is accurate to the minute."""

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


class AuditEntry(msgspec.Struct, frozen=True):
    """An entry of the audit log: who did what to which target. Details are ids and settings, never message text."""

    id: str
    actor_id: str
    act: str
    target: str
    details: dict[str, Any]
    created_at: dt.datetime


class TokenLookup(NamedTuple):
    """The parts of a token that find its row."""

    tenant_id: str
    token_hash: bytes


def make_token(tenant_id: str) -> str:
    """A new token. It is a credential: show it once and do not store it."""
    return f"{TOKEN_PREFIX}{check_tenant_id(tenant_id)}_{secrets.token_hex(32)}"


def parse_token(text: str) -> TokenLookup | None:
    """None if the text does not have the form of a token."""
    found = _TOKEN.fullmatch(text)
    return None if found is None else TokenLookup(found[1], hashlib.sha256(text.encode()).digest())
