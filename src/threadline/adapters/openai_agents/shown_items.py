"""What the log shows of a session's items, and the items of messages that others wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from threadline.adapters.exact_log import Shown
from threadline.adapters.shown_parts import fit_parts
from threadline.core.errors import InvalidInput
from threadline.core.messages import Message
from threadline.core.parts import DataPart
from threadline.core.prompts import PromptMessage
from threadline.core.response_items import FOREIGN_ITEM, ItemCalls, message_from_items, split_items, to_items
from threadline.core.sanitize import sanitize_json

Item = dict[str, Any]


class ShownItems:
    """Remembers calls: an output names only the id of its call, and may be added much later."""

    def __init__(self) -> None:
        self._calls = ItemCalls()

    def learn(self, items: Sequence[Item]) -> None:
        for item in items:
            self._calls.add(item)

    def lacks_calls(self, items: Sequence[Item]) -> bool:
        own = ItemCalls(items)
        return any(
            isinstance(call_id := item.get("call_id"), str)
            and str(item.get("type")).endswith("_output")
            and own.find(call_id) is None
            and self._calls.find(call_id) is None
            for item in items
        )

    def show(self, items: Sequence[Item]) -> list[Shown]:
        """A message for each item of the user, and for all items of the assistant between two of them."""
        readable = [_readable(item) for item in items]
        self.learn(readable)
        shown: list[Shown] = []
        at = 0
        for group in split_items(readable):
            try:
                found = message_from_items(group, self._calls)
            except InvalidInput:
                found = PromptMessage("assistant", tuple(DataPart(FOREIGN_ITEM, dict(item)) for item in group))
            shown.append(Shown(found.role, fit_parts(found.parts), items[at : at + len(group)]))
            at += len(group)
        return shown

    def fill_in(self, messages: Sequence[Message], exact: Sequence[list[Item] | None]) -> list[list[Item]]:
        """The items of each message; those without any are converted from their parts."""
        return [
            to_items([PromptMessage(message.role, message.parts)]) if own is None else own
            for message, own in zip(messages, exact, strict=True)
        ]


def _readable(item: Any) -> Item:
    """The item as strict JSON; anything else, such as an encrypted item, as an item of an unknown type."""
    value = sanitize_json(item).value
    if isinstance(value, dict) and (_has_role(value) or value.get("type", "message") != "message"):
        return value
    return {"type": "unknown", "item": value}


def _has_role(value: Mapping[str, Any]) -> bool:
    return value.get("role") in ("user", "assistant", "system", "developer")
