"""The journal of a turn's tools: the intent is stored before a tool runs, the result after.

Inputs and outputs are stored masked. After a crash the model gets the stored output.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from threadline.core import jsontext
from threadline.core.errors import AgentFailed, StoreFailed
from threadline.core.events import ToolCall
from threadline.core.sealing import CleanJson, Masker
from threadline.core.threads import Scope
from threadline.core.turns import ToolRun, Turn
from threadline.ports import Store

log = logging.getLogger("threadline.turns")


class StoredJournal:
    """The journal of one leased turn. AgentFailed when the lease is lost: the turn is another process's now."""

    def __init__(self, store: Store, scope: Scope, turn: Turn, masker: Masker | None) -> None:
        self._tx = store.scoped(scope)
        self._turn = turn
        self._masker = masker

    async def begin(self, call: ToolCall, *, repeatable: bool) -> ToolRun | None:
        try:
            return await self._begin(call, repeatable)
        except StoreFailed as exc:
            self._raise_unless_terminal(exc)
            return None

    async def end(self, call_id: str, output: Any) -> None:
        clean = self._clean(output, "tool output")
        try:
            kept = await self._tx.finish_tool_run(self._turn.id, self._turn.fence, call_id, clean)
        except StoreFailed as exc:
            self._raise_unless_terminal(exc)
            return
        if not kept:
            raise AgentFailed("another process has taken this turn over")

    def _raise_unless_terminal(self, exc: StoreFailed) -> None:
        """In a terminal a failing database does not stop a turn: its tools run unrecorded. That is safe because
        recovery ends a terminal's turns without a key and never runs them again."""
        if self._turn.surface != "cli" or self._turn.idempotency_key is not None:
            raise exc
        log.warning("tool run not recorded", extra={"turn_id": self._turn.id})

    async def _begin(self, call: ToolCall, repeatable: bool) -> ToolRun | None:
        run = await self._tx.start_tool_run(
            self._turn.id,
            self._turn.fence,
            call.call_id,
            call.name,
            self._clean(call.input, "tool input"),
            repeatable=repeatable,
        )
        if run is None:
            raise AgentFailed("another process has taken this turn over")
        return None if run.is_new else run

    def _clean(self, value: Any, what: str) -> CleanJson:
        plain = msgspec.to_builtins(value)
        return CleanJson(jsontext.dump(plain if self._masker is None else self._masker.mask_json(plain), what))


class UnstoredJournal:
    """For runs without a stored turn: tools run unrecorded, because no recovery can run them again."""

    async def begin(self, call: ToolCall, *, repeatable: bool) -> ToolRun | None:
        return None

    async def end(self, call_id: str, output: Any) -> None:
        return None
