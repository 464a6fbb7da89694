"""Requests that the store refused: the error that says why, and the turn of a message that was accepted before."""

from __future__ import annotations

from threadline.core.errors import (
    Conflict,
    DuplicateId,
    InvalidInput,
    KeyReused,
    LimitExceeded,
    NotFound,
    ThreadlineError,
    TurnRunning,
)
from threadline.core.turn_commits import Accepted, AcceptRefusal, TurnAcceptance
from threadline.ports import Transaction


def refusal_error(refusal: AcceptRefusal, new: TurnAcceptance, messages_per_thread: int) -> ThreadlineError:
    """The error that tells a user why their request was not stored."""
    thread = refusal.thread
    match refusal.reason:
        case "key_reused":
            state_key = thread.state_key if thread is not None and thread.deleted_at is None else None
            return KeyReused(new.key or "", state_key)
        case "thread_missing":
            return NotFound("thread", new.thread_id)
        case "turn_running":
            return TurnRunning(refusal.turn_id or "", 0 if thread is None else thread.message_count)
        case "replaced_missing":
            return NotFound("message", new.replaces)
        case "replaced_not_user":
            return InvalidInput(f"only a user message can be replaced, and {new.replaces!r} is a reply")
        case "message_known" | "message_repeated":
            return DuplicateId("message", new.message.id)
        case "thread_full":
            return LimitExceeded("messages per thread", messages_per_thread, messages_per_thread + 1)
        case "place_taken":
            return DuplicateId("place", None if new.arrival is None else new.arrival.place)
        case "id_known":
            thread_id = new.new_thread.id
            return DuplicateId("turn", new.turn_id) if thread_id is None else DuplicateId("thread", thread_id)
        case "duplicate_arrival" | "question_open" | "replaced_not_last":
            return Conflict(f"the message was not accepted: {refusal.reason.replace('_', ' ')}")


async def find_repeated(tx: Transaction, new: TurnAcceptance, refusal: AcceptRefusal) -> Accepted | None:
    """The turn of a message that was refused because it had been accepted before. A question that is asked again while
    it is being answered is the same turn too; later it is a new one."""
    if refusal.thread is None or refusal.reason not in ("message_repeated", "turn_running", "key_reused"):
        return None
    known = await tx.message(refusal.thread.id, new.message.id)
    if known is None or (known.role, known.parts_json) != (new.message.role, new.message.parts_json):
        return None
    turn = None if known.turn_id is None else await tx.turn(known.turn_id)
    if turn is None or turn.thread_id != refusal.thread.id or new.agent_id not in (None, turn.agent_id):
        return None
    match refusal.reason:
        case "turn_running":
            # The turn that was running may have ended by now.
            is_repeated = turn.is_active or turn.id == refusal.turn_id
        case "key_reused":
            is_here = refusal.thread.id == new.thread_id or refusal.thread.state_key == new.new_thread.state_key
            is_repeated = is_here and turn.id == refusal.turn_id
        case _:
            is_repeated = True
    return Accepted(turn, refusal.thread, replayed=True) if is_repeated else None
