"""Requests that continue a certain earlier reply, with messages that were said in between and outputs of its calls.

If that reply is the end of its thread, the request is appended there. Otherwise it goes to a new thread that branches
off after the reply, so two requests that continue the same reply both succeed: one on the thread, one on a branch.
Placing, appending and accepting are one transaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence

import msgspec

from threadline.core.approvals import ToolOutput, apply_answers, list_pending
from threadline.core.errors import Conflict, KeyReused, NotFound
from threadline.core.event_fold import agent_metadata
from threadline.core.messages import NewMessage
from threadline.core.sealing import Sealed, Sealer
from threadline.core.threads import NewThread, Scope, Thread
from threadline.core.turn_commits import Accepted, AcceptRefusal, TurnAcceptance
from threadline.core.turns import Turn
from threadline.ports import Store, Transaction
from threadline.turns.acceptance import TurnRequest, Turns
from threadline.turns.approvals import Approvals
from threadline.turns.leases import Holder


class _Refused(Exception):
    """Ends the transaction of a request that the store refused."""

    def __init__(self, refusal: AcceptRefusal) -> None:
        self.refusal = refusal


class Continuations:
    def __init__(self, store: Store, turns: Turns, approvals: Approvals) -> None:
        self._store = store
        self._turns = turns
        self._approvals = approvals

    async def accept(
        self,
        scope: Scope,
        request: TurnRequest,
        holder: Holder,
        *,
        earlier: Sequence[NewMessage] = (),
        after: str | None = None,
        outputs: Mapping[str, ToolOutput] | None = None,
    ) -> Accepted:
        """Stores `earlier` and the request, once; `after` is the turn whose reply they continue, `outputs` are those of
        its open calls, by call id. The errors of `Turns.accept` and `apply_answers`; NotFound for a turn of another
        user, Conflict for one that has not ended."""
        if not earlier and after is None:
            return await self._turns.accept(scope, request, holder)
        scope.require("member")
        new = msgspec.structs.replace(self._turns.seal(scope, request), lease=holder.lease)
        sealer = self._turns.sealer_of(scope)
        said = [sealer.message(message) for message in earlier]
        answers = dict(outputs or {})
        new = msgspec.structs.replace(new, request_hash=_digest(new, said, after, answers))
        await self._turns.check(scope, request)
        await self._approvals.check(scope, answers)

        async def store(tx: Transaction) -> Accepted:
            return await _accept(tx, new, said, after, answers, sealer)

        try:
            return await self._store.transact(scope, store)
        except _Refused as refused:
            return self._turns.require_accepted(refused.refusal, new)


async def _accept(
    tx: Transaction,
    new: TurnAcceptance,
    said: list[Sealed],
    after: str | None,
    outputs: Mapping[str, ToolOutput],
    sealer: Sealer,
) -> Accepted:
    known = None if new.key is None else await tx.turn_by_key(new.key)
    if known is not None:
        thread = await tx.thread(known.thread_id)
        if known.request_hash != new.request_hash or thread is None:
            raise KeyReused(new.key or "", None if thread is None else thread.state_key)
        return Accepted(known, thread, replayed=True)
    if after is not None:
        thread = await _place_after(tx, after, outputs)
        thread_id = thread.id
        if outputs:
            await _store_outputs(tx, thread, outputs, sealer)
    elif new.thread_id is not None:
        thread_id = new.thread_id
    else:
        thread_id = (await tx.create_thread(new.new_thread)).id
    if said:
        await tx.append(thread_id, said, title=new.title)
    outcome = await tx.accept_turn(msgspec.structs.replace(new, thread_id=thread_id, new_thread=NewThread()))
    if isinstance(outcome, AcceptRefusal):
        raise _Refused(outcome)
    return outcome


async def _store_outputs(tx: Transaction, thread: Thread, outputs: Mapping[str, ToolOutput], sealer: Sealer) -> None:
    """Puts the last reply with its outputs in its place, on a new timeline."""
    last = thread.message_count - 1
    found = await tx.messages(thread.id, first=last, last=last)
    if not found:
        raise NotFound("reply", thread.id)
    reply = found[0]
    parts, metadata = apply_answers(reply.parts, outputs), agent_metadata(reply.metadata)
    answered = sealer.message(NewMessage("assistant", parts, id=reply.id, metadata=metadata))
    await tx.move(thread.id, last - 1)
    await tx.append(thread.id, [answered], turn_id=reply.turn_id)


async def _place_after(tx: Transaction, turn_id: str, outputs: Collection[str]) -> Thread:
    """The thread that ends with the turn's reply: its own, or a new branch of it."""
    turn = await tx.turn(turn_id)
    thread = None if turn is None else await tx.thread(turn.thread_id)
    if turn is None or thread is None:
        raise NotFound("turn", turn_id)
    if turn.is_active:
        raise Conflict("the reply to continue is still being written: wait until it has ended")
    seq = turn.request_seq if turn.reply_seq is None else turn.reply_seq
    if seq is None:
        raise NotFound("turn", turn_id)
    timeline_id = await find_timeline(tx, thread, turn, outputs)
    if timeline_id is None:
        raise NotFound("turn", turn.id)
    is_present = timeline_id == thread.timeline_id
    if is_present and seq == thread.message_count - 1 and not await tx.active_turns(thread.id):
        return thread
    if not is_present:
        await tx.switch(thread.id, timeline_id)
    branch = await tx.branch(thread.id, NewThread(), at=seq)
    if not is_present:
        await tx.switch(thread.id, thread.timeline_id)
    return branch


async def find_timeline(tx: Transaction, thread: Thread, turn: Turn, open_calls: Collection[str] = ()) -> str | None:
    """A timeline with the turn's request or reply: the present one, if it has one of them. With `open_calls`, the
    reply must still wait for these, unless no timeline has it like that."""
    fallback = None
    places = [seq for seq in (turn.request_seq, turn.reply_seq) if seq is not None]
    others = [timeline.id for timeline in reversed(await tx.timelines(thread.id)) if timeline.id != thread.timeline_id]
    for timeline_id in (thread.timeline_id, *others):
        for seq in places:
            found = await tx.messages(thread.id, first=seq, last=seq, timeline_id=timeline_id)
            if found and found[0].turn_id == turn.id:
                if not set(open_calls) - {each.id for each in list_pending(found[0].parts)}:
                    return timeline_id
                fallback = fallback or timeline_id
    return fallback


def _digest(new: TurnAcceptance, said: Sequence[Sealed], after: str | None, outputs: Mapping[str, ToolOutput]) -> bytes:
    given = [f"{call_id} ".encode() + (output.encoded() or b"") for call_id, output in sorted(outputs.items())]
    parts = (new.request_hash or b"", (after or "").encode(), *(message.parts_json for message in said), *given)
    return hashlib.sha256(b"\0".join(parts)).digest()
