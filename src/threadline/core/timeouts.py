"""How long a call waits for the database."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

_Seconds: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]


class Timeouts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """After `pool_seconds` without a free connection, `lock_seconds` at a lock or `statement_seconds` in a statement, a
    call raises StoreBusy and has stored nothing. `file_lock_seconds` is the same for SQLite, where another process may
    hold the file during an import. Migrations, purges, copies and checks are exempt from all but `connect_seconds`."""

    connect_seconds: _Seconds = 10.0
    pool_seconds: _Seconds = 10.0
    lock_seconds: _Seconds = 5.0
    statement_seconds: _Seconds = 60.0
    file_lock_seconds: _Seconds = 15.0
