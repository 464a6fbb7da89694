"""Revisions: which question an edit or a second answer goes back to.

A reply that is to be written anew names the question it answered; asking that question again, in its own place, is the
whole of it. Nothing is changed here: `Turns.accept` goes back and asks in one transaction.
"""

from __future__ import annotations

from threadline.core.errors import InvalidInput, NotFound
from threadline.core.ids import check_id
from threadline.core.messages import Message, NewMessage
from threadline.core.threads import Scope, Thread
from threadline.ports import Store, Transaction
from threadline.turns.acceptance import turn_id_of_reply


async def question_to_repeat(store: Store, scope: Scope, thread: Thread, message_id: str | None) -> Message:
    """The user message that a reply answered (or the user message itself, if it is named); without an id, the last one
    of the thread. NotFound, or InvalidInput if the thread holds no question."""
    tx = store.scoped(scope)
    if message_id is None:
        found = await tx.last_turns(thread.id, 1)
    else:
        found = await _up_to(tx, thread, check_id("message", message_id))
    if not found or found[0].role != "user":
        raise InvalidInput("there is no question in this thread to answer again")
    return found[0]


async def _up_to(tx: Transaction, thread: Thread, message_id: str) -> list[Message]:
    message = await tx.message(thread.id, message_id)
    if message is not None:
        return await tx.last_turns(thread.id, 1, before=message.seq + 1)
    # A reply of which nothing was shown has a name, but was never stored.
    turn_id = turn_id_of_reply(message_id)
    turn = None if turn_id is None else await tx.turn(turn_id)
    if turn is None or turn.thread_id != thread.id or turn.request_seq is None:
        raise NotFound("message", message_id)
    asked = await tx.messages(thread.id, first=turn.request_seq, last=turn.request_seq)
    if not asked or asked[0].turn_id != turn.id:
        raise NotFound("message", message_id)
    return asked


def repeat_question(question: Message) -> NewMessage:
    """The same question under the same id, to be stored once more on the timeline that replaces this one."""
    return NewMessage("user", question.parts_json, id=question.id, metadata=question.metadata or None)
