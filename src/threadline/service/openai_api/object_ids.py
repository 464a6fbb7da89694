"""Ids of OpenAI's objects: a conversation is a thread, a response is a turn, an item is a message or a part of one."""

from __future__ import annotations

import re
from typing import NamedTuple

from threadline.core.errors import NotFound
from threadline.core.ids import is_id
from threadline.core.turns import turn_id_of_reply

CONVERSATION = "conv_"
RESPONSE = "resp_"
_ITEM = re.compile(r"(msg|fc|fco|rs|mcp|mcpr|call)_([A-Za-z0-9._:-]{1,128})_(\d{1,4})", re.ASCII)


class ItemId(NamedTuple):
    kind: str
    message_id: str
    part: int

    def __str__(self) -> str:
        return f"{self.kind}_{self.message_id}_{self.part}"

    @property
    def turn_id(self) -> str | None:
        """The turn that began the reply that the item is a part of; None for other messages."""
        return turn_id_of_reply(self.message_id)


def call_id_of(message_id: str, part: int, call_id: str) -> str:
    """What a call of the caller's tools is called in this API: in a reply, by its place, so that an output that comes
    alone leads to its reply. A call that a client appended keeps its id."""
    return call_id if turn_id_of_reply(message_id) is None else str(ItemId("call", message_id, part))


def read_item_id(text: str) -> ItemId | None:
    found = _ITEM.fullmatch(text)
    return None if found is None else ItemId(found[1], found[2], int(found[3]))


def read_conversation_id(text: str) -> str:
    """The thread's id or key. NotFound."""
    return _without(CONVERSATION, "conversation", text)


def read_response_id(text: str) -> str:
    """The turn's id. NotFound."""
    return _without(RESPONSE, "response", text)


def _without(prefix: str, kind: str, text: str) -> str:
    if not text.startswith(prefix) or not is_id(text.removeprefix(prefix)):
        raise NotFound(kind, text)
    return text.removeprefix(prefix)
