"""The journal of a turn's tools: the intent is stored before a tool runs, the result after.

What a tool was given is stored masked; what it returned is stored masked as well, and what the model is told after a
crash is what was stored.
"""

from __future__ import annotations

from typing import Any

import msgspec

from threadline.core import jsontext
from threadline.core.errors import AgentFailed
from threadline.core.events import ToolCall
from threadline.core.sealing import CleanJson, Masker
from threadline.core.threads import Scope
from threadline.core.turns import ToolRun, Turn
from threadline.ports import Store


class StoredJournal:
    def __init__(self, store: Store, scope: Scope, turn: Turn, masker: Masker | None) -> None:
        self._tx = store.scoped(scope)
        self._turn = turn
        self._masker = masker

    async def begin(self, call: ToolCall, *, repeatable: bool) -> ToolRun | None:
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

    async def end(self, call_id: str, output: Any) -> None:
        clean = self._clean(output, "tool output")
        if not await self._tx.finish_tool_run(self._turn.id, self._turn.fence, call_id, clean):
            raise AgentFailed("another process has taken this turn over")

    def _clean(self, value: Any, what: str) -> CleanJson:
        plain = msgspec.to_builtins(value)
        return CleanJson(jsontext.dump(plain if self._masker is None else self._masker.mask_json(plain), what))
