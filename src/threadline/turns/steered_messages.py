"""Messages that were sent while a turn runs, for its agent to take in before its next model call.

Such a message was accepted like any other: it is in the log, with a turn of its own that waits for this one (see
`Turn.steers`). Taking it in writes a marker into the reply and nothing else. When the reply is stored, the waiting
turns whose markers it contains end with it; a turn that fails or is abandoned leaves them waiting, and they are
answered next. So a message is never lost and never answered twice, whenever a process dies. It is read from the store,
so it may have been accepted by another process.
"""

from __future__ import annotations

import logging

import msgspec

from threadline.core.client_tools import SEEN_KEY as TOOLS_KEY
from threadline.core.errors import StoreFailed
from threadline.core.prompts import Prompt
from threadline.core.reply_text import arrived_as
from threadline.core.steered_messages import SteeredMessage, steered_message_ids, steered_turn_ids
from threadline.core.threads import Scope
from threadline.core.turn_options import options_in
from threadline.core.turns import CHANNELS, Turn
from threadline.ports import Store, Transaction
from threadline.turns.acceptance import find_present_request
from threadline.turns.output import TurnOutput

log = logging.getLogger("threadline.turns")


class SteeredMessages:
    """The messages for one running turn."""

    def __init__(self, store: Store, scope: Scope, turn: Turn, output: TurnOutput) -> None:
        self._tx = store.scoped(scope)
        self._turn = turn
        self._output = output

    async def take(self) -> list[SteeredMessage]:
        try:
            waiting = [each for each in await self._tx.active_turns(self._turn.thread_id) if self._steers(each)]
            return [message for each in waiting for message in await self._take_one(each)]
        except StoreFailed:
            # They are not lost: what is not taken in is answered after this turn.
            log.warning("steered messages not read", extra={"turn_id": self._turn.id})
            return []

    async def with_taken(self, prompt: Prompt) -> Prompt:
        """The prompt of a reply that continues one which took messages in, with those messages."""
        last = prompt.messages[-1]
        marked = steered_message_ids(last.parts) if last.role == "assistant" else ()
        found = [await self._tx.message(self._turn.thread_id, message_id) for message_id in marked]
        taken = {message.id: message.parts for message in found if message is not None and message.role == "user"}
        return msgspec.structs.replace(prompt, steered=taken) if taken else prompt

    def _steers(self, late: Turn) -> bool:
        """Whether its request can be answered by this turn: it asks the same agent and model for the same things."""
        turn = self._turn
        if late.steers != turn.id or late.status != "accepted":
            return False
        asks_same_agent = late.agent_id == turn.agent_id and late.model in (None, turn.model)
        has_same_tools = late.seen.get(TOOLS_KEY) == turn.seen.get(TOOLS_KEY)
        return asks_same_agent and has_same_tools and options_in(late.seen) == options_in(turn.seen)

    async def _take_one(self, late: Turn) -> list[SteeredMessage]:
        if late.id in steered_turn_ids(self._output.fold.parts()):
            return []
        asked = await find_present_request(self._tx, late)
        if asked is None or not await _is_answered_by(self._tx, late, self._turn):
            return []
        self._output.take_in(asked.id, late.id)
        return [SteeredMessage(asked.id, asked.parts)]


async def _is_answered_by(tx: Transaction, late: Turn, turn: Turn) -> bool:
    """Whether who sent it will see the turn's reply: on a platform, only in the place where the turn was asked."""
    if late.surface not in CHANNELS:
        return True
    places = [(each.surface, await _place(tx, each)) for each in (late, turn)]
    return places[0] == places[1]


async def _place(tx: Transaction, turn: Turn) -> str | None:
    key = arrived_as(turn)
    arrived = None if key is None else await tx.inbox_row(turn.surface, key)
    return None if arrived is None else arrived.reply_to
