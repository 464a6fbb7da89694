"""Message lists of the `openai` package as messages of a thread, and back; the package itself is not needed.

`chat` is the list that `client.chat.completions` takes; `items` are input and output of `client.responses`. Objects
that the package returned may be in the lists. What was stored is read back equal, except for secrets, which are masked;
what others added to the thread is read in the same format.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from threadline.adapters.message_lists import Group, StoredMessage, from_stored, plain, to_new_messages
from threadline.core.chat_messages import from_chat, to_chat
from threadline.core.errors import InvalidInput
from threadline.core.messages import NewMessage
from threadline.core.prompts import PromptMessage
from threadline.core.response_items import ItemCalls, message_from_items, split_items, to_items

__all__ = ["chat_to_messages", "items_to_messages", "messages_to_chat", "messages_to_items"]

_CHAT = "openai-chat"
_ITEMS = "openai-items"


def chat_to_messages(chat: Iterable[Any]) -> list[NewMessage]:
    """For `thread.append(*…)`: an assistant's calls and their results are one message. InvalidInput."""
    return to_new_messages(_split_chat(_mappings(chat)), _CHAT, from_chat, to_chat)


def messages_to_chat(messages: Iterable[StoredMessage]) -> list[dict[str, Any]]:
    """For `client.chat.completions.create(messages=…)`."""
    return from_stored(messages, _CHAT, to_chat)


def items_to_messages(items: Iterable[Any]) -> list[NewMessage]:
    """For `thread.append(*…)`: all that the assistant does between two user messages is one. InvalidInput."""
    given = _mappings(items)
    calls = ItemCalls(given)

    def read(group: Group) -> Sequence[PromptMessage]:
        return [message_from_items(group, calls)]

    return to_new_messages(split_items(given), _ITEMS, read, to_items)


def messages_to_items(messages: Iterable[StoredMessage]) -> list[dict[str, Any]]:
    """For `client.responses.create(input=…)`."""
    return from_stored(messages, _ITEMS, to_items)


def _mappings(given: Iterable[Any]) -> list[Mapping[str, Any]]:
    if isinstance(given, str | Mapping):
        raise InvalidInput(f"messages must be a list of objects, got {type(given).__name__}")
    found = [plain(each) for each in given]
    for each in found:
        if not isinstance(each, dict):
            raise InvalidInput(f"each message must be an object, got {type(each).__name__}")
    return found


def _split_chat(messages: Iterable[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """An assistant's messages with their results, as far as one follows the other; every other message alone."""
    found: list[list[Mapping[str, Any]]] = []
    for message in messages:
        role = message.get("role")
        last = found[-1][-1].get("role") if found else None
        follows = last in ("assistant", "tool") if role == "tool" else role == "assistant" and last == "tool"
        if follows:
            found[-1].append(message)
        else:
            found.append([message])
    return found
