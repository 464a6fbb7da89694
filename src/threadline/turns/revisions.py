"""Revisions: which question is asked again when a reply is regenerated or a question is edited.

Regenerating a reply asks its question again, in that question's place. Nothing is stored here: `Turns.accept` rewinds
the thread and asks in one commit.
"""

from __future__ import annotations

from threadline.core.errors import InvalidInput, NotFound
from threadline.core.ids import check_id
from threadline.core.messages import Message, NewMessage
from threadline.core.threads import Scope, Thread
from threadline.core.turns import turn_id_of_reply
from threadline.ports import Store, Transaction


async def question_to_repeat(store: Store, scope: Scope, thread: Thread, message_id: str | None) -> Message:
    """The user message that a reply answered, or the user message itself, if `message_id` names one; without an id, the
    last one of the thread. NotFound, or InvalidInput if the thread has no user message."""
    tx = store.scoped(scope)
    if message_id is None:
        found = await tx.last_turns(thread.id, 1)
    else:
        found = await _up_to(tx, thread, check_id("message", message_id))
    if not found or found[0].role != "user":
        raise InvalidInput("this thread has no user message to answer again")
    return found[0]


async def _up_to(tx: Transaction, thread: Thread, message_id: str) -> list[Message]:
    message = await tx.message(thread.id, message_id)
    if message is not None:
        return await tx.last_turns(thread.id, 1, before=message.seq + 1)
    # A reply of which nothing was shown has an id, but was never stored.
    turn_id = turn_id_of_reply(message_id)
    turn = None if turn_id is None else await tx.turn(turn_id)
    if turn is None or turn.thread_id != thread.id or turn.request_seq is None:
        raise NotFound("message", message_id)
    asked = await tx.messages(thread.id, first=turn.request_seq, last=turn.request_seq)
    if not asked or asked[0].turn_id != turn.id:
        raise NotFound("message", message_id)
    return asked


def repeat_question(question: Message) -> NewMessage:
    """The same question under the same id, to be stored again on the new timeline."""
    return NewMessage("user", question.parts_json, id=question.id, metadata=question.metadata or None)
