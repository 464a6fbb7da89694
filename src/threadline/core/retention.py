"""Retention: after how many days threads are removed permanently, and legal holds, which forbid it."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Literal, NamedTuple, TypeAlias

import msgspec

MAX_DAYS = 36_500
Days: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=MAX_DAYS)] | None
RetentionRule: TypeAlias = Literal["age", "archived", "deleted"]


class RetentionPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Days after which a thread is purged: since its last message (`age`), since it was archived, since it was deleted;
    and after which audit entries are removed. None keeps them."""

    age: Days = None
    archived: Days = None
    deleted: Days = None
    audit: Days = None

    def cutoffs(self, now: dt.datetime) -> RetentionCutoffs:
        times = [None if days is None else now - dt.timedelta(days=days) for days in msgspec.structs.astuple(self)]
        return RetentionCutoffs(*times)


class RetentionSettings(RetentionPolicy, frozen=True, forbid_unknown_fields=True):
    """The policy of every tenant that has no entry of its own in `tenants`."""

    tenants: dict[str, RetentionPolicy] = {}

    def policy_of(self, tenant_id: str) -> RetentionPolicy:
        own = self.tenants.get(tenant_id)
        return own or RetentionPolicy(self.age, self.archived, self.deleted, self.audit)


class RetentionCutoffs(NamedTuple):
    """What happened before these times is removed; None removes nothing."""

    age: dt.datetime | None = None
    archived: dt.datetime | None = None
    deleted: dt.datetime | None = None
    audit: dt.datetime | None = None


class OverdueThread(msgspec.Struct, frozen=True):
    """A thread that a rule removes."""

    id: str
    owner_id: str
    rule: RetentionRule


class LegalHold(msgspec.Struct, frozen=True):
    """Forbids purges: of one thread, of everything of one user, or of the whole tenant if neither is named."""

    id: str
    reason: str
    created_by: str
    created_at: dt.datetime
    user_id: str | None = None
    thread_id: str | None = None
