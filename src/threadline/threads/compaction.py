"""Compaction: a summary of the older part of a thread, for the agent. It adds a row and deletes nothing.

A summariser turns messages into a text. The built-in one needs no model: it lists the user's requests.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from threadline.core.context import plan_compaction
from threadline.core.errors import NotFound
from threadline.core.messages import Message
from threadline.core.sealing import Sealer
from threadline.core.threads import Scope
from threadline.core.turns import Summary
from threadline.ports import Store

Summarise: TypeAlias = Callable[[str | None, Sequence[Message]], Awaitable[str]]
"""Takes the earlier summary, if there is one, and the messages since; returns one text for both."""

_LONGEST_LINE = 200
_PAGE = 1000


class Compaction:
    def __init__(self, store: Store, sealer: Sealer, budget: int, summarise: Summarise | None = None) -> None:
        self._store = store
        self._sealer = sealer
        self._budget = budget
        self._summarise = summarise or list_requests

    async def compact(self, scope: Scope, thread_id: str, *, budget: int | None = None) -> Summary | None:
        """Summarises all but the newest turns if what is not summarised yet has more than `budget` tokens (default: the
        window's). None if it has not. NotFound."""
        scope.require("member")
        tx = self._store.scoped(scope)
        if await tx.thread(thread_id) is None:
            raise NotFound("thread", thread_id)
        earlier = await tx.summary(thread_id)
        first = 0 if earlier is None else earlier.point.seq + 1
        messages: list[Message] = []
        while page := await tx.messages(thread_id, first=first + len(messages), limit=_PAGE):
            messages += page
        upto = plan_compaction(messages, self._budget if budget is None else budget)
        if upto is None:
            return None
        covered = [message for message in messages if message.seq <= upto]
        text = await self._summarise(earlier.text if earlier else None, covered)
        return await tx.put_summary(thread_id, upto, self._sealer.text(text, "summary"))


async def list_requests(earlier: str | None, messages: Sequence[Message]) -> str:
    """The user's requests, one line each, oldest first."""
    asked = [" ".join(message.text.split()) for message in messages if message.role == "user"]
    lines = [f"- {text[:_LONGEST_LINE]}" for text in asked if text]
    return "\n".join([earlier or "The user asked, in this order:", *lines])
