"""What arrived from platforms and what became of it, for administrators: never the text of a message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from threadline.core.channels import InboxRow, InboxStatus
from threadline.core.checks import check_choice, check_range
from threadline.core.threads import Scope, system_scope
from threadline.core.turns import CHANNELS
from threadline.ports import Store

_MOST_LISTED = 1_000
STATUSES: tuple[InboxStatus, ...] = get_args(InboxStatus)


async def list_inbox(
    store: Store, scope: Scope, *, status: str | None = None, platform: str | None = None, limit: int = 100
) -> Sequence[InboxRow]:
    """The tenant's rows, newest first. Administrators only. InvalidInput."""
    scope.require("admin")
    check_range("limit", limit, 1, _MOST_LISTED)
    wanted = None if status is None else check_choice("status", status, STATUSES)
    where = None if platform is None else check_choice("platform", platform, sorted(CHANNELS))
    return await store.scoped(system_scope(scope.tenant_id)).inbox(status=wanted, platform=where, limit=limit)


def unread_reason(row: InboxRow) -> str | None:
    """Why an event could not be read. Of any other, the fingerprint is who sent it."""
    return row.fingerprint if row.status == "dead" else None
