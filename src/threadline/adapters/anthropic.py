"""Message lists of the `anthropic` package as messages of a thread, and back; the package itself is not needed.

Objects that the package returned may be in the lists. What was stored is read back equal, citations, signatures and the
blocks of server tools included; only a plain string becomes a text block, and secrets are masked. What others added to
the thread is read in the same format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from threadline.adapters.message_lists import Group, StoredMessage, as_prompt, from_stored, plain, to_new_messages
from threadline.core.blocks import OPENING, Content, messages_from_blocks, to_blocks
from threadline.core.errors import InvalidInput
from threadline.core.messages import NewMessage
from threadline.core.parts import SourceUrlPart
from threadline.core.prompts import PromptMessage

__all__ = ["AnthropicMessages", "from_messages", "to_messages"]

_FORMAT = "anthropic-messages"
_OPENING = {"role": "user", "content": [{"type": "text", "text": OPENING}]}


class AnthropicMessages(NamedTuple):
    """For `client.messages.create(system=…, messages=…)`."""

    system: str
    messages: list[dict[str, Any]]


def to_messages(messages: Iterable[Any], *, system: Content = "") -> list[NewMessage]:
    """For `thread.append(*…)`: an assistant's calls and their results are one message. InvalidInput."""
    if isinstance(messages, str | Mapping):
        raise InvalidInput(f"messages must be a list of objects, got {type(messages).__name__}")
    given = [_with_blocks(plain(each)) for each in messages]
    instructions = messages_from_blocks([], system=plain(system))
    found = [NewMessage(each.role, each.parts) for each in instructions]
    return [*found, *to_new_messages(_split(given), _FORMAT, _read, _write)]


def from_messages(messages: Iterable[StoredMessage]) -> AnthropicMessages:
    """A message of another agent before the first one of the user is preceded by one that says so: Anthropic requires
    it."""
    given = list(messages)
    system = to_blocks(as_prompt(each) for each in given if each.role == "system").system
    found = from_stored((each for each in given if each.role != "system"), _FORMAT, _write)
    if found and found[0]["role"] == "assistant":
        found.insert(0, dict(_OPENING))
    return AnthropicMessages("\n\n".join(system), found)


def _with_blocks(message: Any) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise InvalidInput(f"each message must be an object, got {type(message).__name__}")
    # A response of the package has an id, a model and usage beside what a request may contain.
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {"role": message.get("role"), "content": blocks}


def _split(messages: Iterable[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """An assistant's messages with the results of their calls, as far as one follows the other."""
    found: list[list[Mapping[str, Any]]] = []
    for message in messages:
        last = found[-1] if found else [{}]
        answers = message["role"] == "user" and last[0].get("role") == "assistant" and _is_result(message, any)
        continues = message["role"] == "assistant" and last[0].get("role") == "assistant" and _is_result(last[-1], all)
        if answers or continues:
            found[-1].append(message)
        else:
            found.append([message])
    return found


def _is_result(message: Mapping[str, Any], each: Callable[[Iterable[object]], bool]) -> bool:
    blocks = message.get("content") if message.get("role") == "user" else None
    return isinstance(blocks, list) and bool(blocks) and each(_kind(block) == "tool_result" for block in blocks)


def _kind(block: Any) -> object:
    return block.get("type") if isinstance(block, Mapping) else None


def _read(group: Group) -> Sequence[PromptMessage]:
    messages = messages_from_blocks(group)
    sources = tuple(_sources(group))
    if not sources or not messages:
        return messages
    first = messages[0]
    return [PromptMessage(first.role, (*first.parts, *sources)), *messages[1:]]


def _sources(group: Group) -> Iterator[SourceUrlPart]:
    """The web pages that texts cite, once each."""
    seen: set[str] = set()
    blocks = [block for message in group if isinstance(message.get("content"), list) for block in message["content"]]
    for block in blocks:
        for citation in (block.get("citations") if isinstance(block, Mapping) else None) or ():
            match citation:
                case {"url": str(url)} if url not in seen:
                    seen.add(url)
                    yield SourceUrlPart(url, url, citation.get("title"))


def _write(messages: Sequence[PromptMessage]) -> list[dict[str, Any]]:
    found = to_blocks(messages).messages
    # It goes before the first message of all, not before the first one of each part of the list.
    return found[1:] if found[:1] == [_OPENING] else found
