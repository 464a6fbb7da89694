"""Which question a chat request asks, and in which place of the thread.

The reply always answers the question that the client shows last. A question that the thread does not contain is a new
message, whatever the trigger: the AI SDK's documentation puts `regenerate` behind its Retry button, also for a message
that never arrived. A known question is asked again in its own place, with the content that was sent: a regeneration, or
an edit. A client that does not show the question before it is refused, because the agent would get messages that the
user does not see. Nothing is stored here: `Turns.accept` rewinds the thread and asks in one commit.
"""

from __future__ import annotations

from typing import NamedTuple

from threadline.core import jsontext
from threadline.core.errors import HeadMoved, InvalidInput, NotFound
from threadline.core.ids import check_id, is_id
from threadline.core.messages import Message, NewMessage
from threadline.core.threads import Thread
from threadline.core.turns import turn_id_of_reply
from threadline.ports import Transaction
from threadline.service.aisdk.chat_request import ChatRequest, SentQuestion

# Enough to skip replies that were never stored; more lookups would let one request cost many.
_LOOKUPS = 5
_NEXT_MESSAGES = 20


class Asked(NamedTuple):
    """The message to store, and the user message whose place it takes (None: it is appended)."""

    message: NewMessage
    replaces: str | None = None


async def find_asked(tx: Transaction, thread: Thread | None, chat: ChatRequest, key: str | None) -> Asked:
    """`thread` is None if the request creates it. NotFound; InvalidInput; HeadMoved if the client does not show the
    question before the one it asks."""
    sent = chat.question
    if sent is None:
        if thread is None:
            raise NotFound("thread", chat.thread_id or chat.state_key or "")
        return _repeat(await _question_to_repeat(tx, thread, chat.replaces))
    if thread is None:
        return Asked(sent.message())
    known = await _known_question(tx, thread, chat, sent)
    if known is None and chat.trigger == "submit-message" and chat.replaces not in (None, sent.id):
        # Unless its idempotency key is known, the store refuses it.
        return Asked(sent.message(), chat.replaces)
    if await _find_unseen(tx, thread, chat, sent, before=None if known is None else known.seq):
        if chat.replaces is None and await _is_repeated(tx, thread, sent, key):
            return Asked(sent.message())
        return Asked(sent.message(), await _next_question(tx, thread, chat))
    if known is None:
        return Asked(sent.message())
    return _repeat(known) if _is_same(sent, known) else Asked(sent.message(), known.id)


async def _is_repeated(tx: Transaction, thread: Thread, sent: SentQuestion, key: str | None) -> bool:
    """Whether the question was accepted before: its turn is found again wherever the thread is by now."""
    if key is not None and await tx.turn_by_key(key) is not None:
        return True
    known = await tx.message(thread.id, check_id("message", sent.id)) if sent.id else None
    return known is not None and _is_same(sent, known)


async def _known_question(tx: Transaction, thread: Thread, chat: ChatRequest, sent: SentQuestion) -> Message | None:
    """The stored message in whose place the question is asked."""
    if chat.trigger == "submit-message":
        return None if chat.replaces is None else await tx.message(thread.id, chat.replaces)
    if sent.id:
        return await tx.message(thread.id, check_id("message", sent.id))
    # A client without message ids: only a question with the same content is the same one.
    try:
        found = await _question_to_repeat(tx, thread, chat.replaces)
    except (NotFound, InvalidInput):
        return None
    return found if _is_same(sent, found) else None


async def _find_unseen(
    tx: Transaction, thread: Thread, chat: ChatRequest, sent: SentQuestion, *, before: int | None
) -> Message | None:
    """The last stored question before the place, if the client shows a history without it. Replies are not compared:
    a client that left or lost its stream does not have them."""
    shown = {each.id for each in chat.shown if each.is_user}
    if not shown and not chat.rewind:
        return None
    last = await tx.last_turns(thread.id, 1, before=before)
    return last[0] if last and last[0].role == "user" and last[0].id not in {*shown, sent.id} else None


async def _next_question(tx: Transaction, thread: Thread, chat: ChatRequest) -> str:
    """The first stored question that the client does not show. HeadMoved unless the request is to rewind."""
    count = 0
    for each in chat.shown[: -_LOOKUPS - 1 : -1]:
        found = await tx.message(thread.id, each.id) if is_id(each.id) else None
        if found is not None:
            count = found.seq + 1
            break
    if chat.rewind and (count or not chat.shown):
        following = await tx.messages(thread.id, first=count, limit=_NEXT_MESSAGES)
        question = next((each for each in following if each.role == "user"), None)
        if question is not None:
            return question.id
    raise HeadMoved(thread.message_count, count)


async def _question_to_repeat(tx: Transaction, thread: Thread, message_id: str | None) -> Message:
    """The user message that a reply answered, or the user message itself, if `message_id` names one; without an id, the
    last one of the thread. NotFound, or InvalidInput if the thread has no user message."""
    if message_id is None:
        found = await tx.last_turns(thread.id, 1)
    else:
        found = await _up_to(tx, thread, message_id)
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


def _is_same(sent: SentQuestion, known: Message) -> bool:
    return known.role == "user" and jsontext.parse(known.parts_json, "parts") == sent.parts


def _repeat(question: Message) -> Asked:
    """The same question under the same id, to be stored again on the new timeline."""
    message = NewMessage("user", question.parts_json, id=question.id, metadata=question.metadata or None)
    return Asked(message, question.id)
