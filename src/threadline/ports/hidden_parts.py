"""Store operations on hidden messages (see `threadline.core.hidden_parts`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from threadline.core.hidden_parts import HiddenPart


class HiddenPartOperations(Protocol):
    async def hide_parts(self, thread_id: str, parts: Sequence[HiddenPart], *, turn_id: str | None = None) -> int:
        """Hides messages, or parts of them, from every read and search of every history that contains them, and removes
        the summaries that cover them. Their seqs stay taken, and the stored rows stay until a purge. A copy that a
        continued reply makes of a hidden message is hidden too. Returns how many marks are new. `turn_id` is the turn
        whose messages these are, for `is_turn_hidden`. NotFound, and nothing is hidden: there is no such thread, or
        none of its timelines has a message at one of the places."""
        ...

    async def is_turn_hidden(self, turn_id: str) -> bool:
        """Whether the messages of this turn were hidden with its id. False for an unknown turn."""
        ...
