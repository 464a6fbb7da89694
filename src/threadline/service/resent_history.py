"""Conversations that a client sends back: which stored reply they continue, and what is new in them.

Several clients send the whole conversation with every request, the replies by their item ids (`item_reference`, or the
item itself). If what they send back is what is stored, the request continues that reply, and only what is new is
stored. Otherwise the list is taken as it is, as a conversation of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from threadline.core.approvals import list_pending
from threadline.core.errors import NotFound
from threadline.core.messages import Message
from threadline.core.parts import plain_text
from threadline.core.prompts import PromptMessage
from threadline.core.turns import Turn
from threadline.ports import StoreSession
from threadline.service.conversation_items import ConversationItems
from threadline.service.openai_api.input_items import as_prompt, read_items

_LONGEST = 2_000
"""Messages that are compared. A longer conversation is taken as it is."""


class ResentInput(NamedTuple):
    """The items without references. If they continue a stored reply, `after` is the turn that wrote it, and `items` are
    those that are new."""

    items: list[dict[str, Any]]
    after: Turn | None = None


async def resolve_input(session: StoreSession, items: Sequence[dict[str, Any]], *, continues: bool) -> ResentInput:
    """`continues` says that the request names what it continues. NotFound for a reference to an unknown item."""
    reader = ConversationItems(session)
    resolved: list[dict[str, Any]] = []
    place, reply = -1, None
    for number, item in enumerate(items):
        is_reference = item.get("type") == "item_reference" or set(item) == {"id"}
        found = None
        for named in (item.get("id"), item.get("call_id")) if is_reference or _is_of_reply(item) else ():
            found = found or await reader.find_in_replies(str(named))
        if found is None and is_reference:
            raise NotFound("item", str(item.get("id")))
        resolved.append(await _with_own_call(reader, found.item if found is not None and is_reference else item))
        if found is not None:
            place, reply = number, found.message
    new = None if continues or reply is None else await _new_items(session, resolved, place, reply)
    if new is None or reply is None or reply.turn_id is None:
        return ResentInput(resolved)
    return ResentInput(new, await session.turn(reply.turn_id))


async def _with_own_call(reader: ConversationItems, item: dict[str, Any]) -> dict[str, Any]:
    """The item with the id that the agent gave to the call, in the place of this API's."""
    found = await reader.find_in_replies(item["call_id"]) if isinstance(item.get("call_id"), str) else None
    return item if found is None or found.call_id is None else {**item, "call_id": found.call_id}


def _is_of_reply(item: Mapping[str, Any]) -> bool:
    return item.get("role") == "assistant" or item.get("type") in ("function_call", "reasoning", "mcp_call")


async def _new_items(
    session: StoreSession, items: Sequence[dict[str, Any]], place: int, reply: Message
) -> list[dict[str, Any]] | None:
    """The items after the reply, with the outputs of its open calls; None if the others are not what is stored."""
    open_calls = {each.call_id for each in list_pending(reply.parts)}
    outputs = [item for item in items if item.get("type") == "function_call_output" and item["call_id"] in open_calls]
    new = [*outputs, *(item for item in items[place + 1 :] if item not in outputs)]
    if not new or reply.seq > _LONGEST or any(_is_of_reply(item) for item in new):
        return None
    turn = None if reply.turn_id is None else await session.turn(reply.turn_id)
    if turn is None:
        return None
    given = read_items([item for item in items[: place + 1] if item not in outputs])
    stored = await session.messages(turn.thread_id, last=reply.seq)
    is_same = _told(as_prompt(given.messages)) == _told([PromptMessage(each.role, each.parts) for each in stored])
    return new if is_same else None


def _told(messages: Sequence[PromptMessage]) -> list[tuple[str, str]]:
    """What must be equal. Calls are left out: not every client sends those back that the agent ran itself."""
    found = [(message.role, plain_text(message.parts)) for message in messages]
    return [each for each in found if each[1]]
