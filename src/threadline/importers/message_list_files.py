"""Lists of messages: `UIMessage[]` of the AI SDK, and messages or response items of OpenAI.

A file has one list, an object with `messages` (or `items`), an array of such objects, or one of them on each line.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from threadline.core import jsontext
from threadline.core import parts as parts_
from threadline.core.chat_messages import from_chat
from threadline.core.errors import InvalidInput
from threadline.core.history import History, ThreadRecord
from threadline.core.parts import OtherPart, Part
from threadline.core.response_items import ItemCalls, message_from_items, split_items
from threadline.core.sanitize import sanitize_json
from threadline.importers.message_tree import Node, history_of
from threadline.importers.raw_values import data_part, moment, text_in, title_in
from threadline.importers.report import SourceReport

Nodes = Callable[[Sequence[Any], SourceReport], list[Node]]
UI_MESSAGES = "uimessages"
OPENAI = "openai"


def is_message_list(value: Any, key: str) -> bool:
    messages = messages_of(value)
    return messages is not None and any(messages) and all(isinstance(m, dict) and key in m for m in messages[:20])


def is_item_list(value: Any) -> bool:
    """Whether it consists of chat messages or of response items."""
    messages = messages_of(value)
    return messages is not None and any(messages) and all(isinstance(m, dict) and _is_item(m) for m in messages[:20])


def _is_item(message: Mapping[str, Any]) -> bool:
    kind = str(message.get("type"))
    return "role" in message or kind == "reasoning" or kind.endswith(("_call", "_call_output"))


def messages_of(value: Any) -> Sequence[Any] | None:
    if isinstance(value, dict):
        value = next((value[key] for key in ("messages", "items", "input") if isinstance(value.get(key), list)), None)
    return value if isinstance(value, list) else None


def read_list(value: Any, name: str, place: str, nodes_of: Nodes, report: SourceReport) -> History | None:
    """`place` tells apart what one file holds."""
    messages = messages_of(value)
    if messages is None:
        raise InvalidInput("must be a list of messages, or an object with `messages`")
    if not messages:
        return None
    given = value if isinstance(value, dict) else {}
    key = text_in(given.get("id")) or f"{place}:{_digest(messages[0])}"
    record = ThreadRecord(
        title=title_in(given.get("title")),
        model=(text_in(given.get("model")) or "")[:200] or None,
        metadata={"source": name},
        created_at=moment(given.get("createdAt") or given.get("created_at")),
    )
    return history_of(f"{name}:{key}", record, nodes_of(messages, report), report)


def ui_nodes(messages: Sequence[Any], report: SourceReport) -> list[Node]:
    nodes: list[Node] = []
    for number, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("parts"), list):
            raise InvalidInput(f"message {number} must be an object with `parts`")
        metadata = message.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        role = message.get("role")
        parts = _ui_parts(message["parts"], report)
        if role not in ("user", "assistant"):
            report.notes["system messages kept as data"] += 1
            parts = (data_part("system", message),)
            role = None
        at = moment(message.get("createdAt") or metadata.get("createdAt"))
        model = text_in(metadata.get("model")) if role == "assistant" else None
        id = text_in(message.get("id")) or f"m{number}"
        nodes.append(Node(id, nodes[-1].id if nodes else None, role, parts, at, model and model[:200]))
    return nodes


def _ui_parts(given: list[Any], report: SourceReport) -> tuple[Part, ...]:
    try:
        found = parts_.decode(sanitize_json(given).json)
    except InvalidInput:
        report.unknown["uimessages parts"] += 1
        return (data_part("uimessages-parts", given),)
    kept: list[Part] = []
    for part in found:
        if isinstance(part, OtherPart):
            report.unknown[f"uimessages {part.type[:60]}"] += 1
            kept.append(data_part("uimessages-part", jsontext.parse(part.json, "part")))
        else:
            kept.append(part)
    return tuple(kept)


def openai_nodes(messages: Sequence[Any], report: SourceReport) -> list[Node]:
    if not all(isinstance(each, Mapping) for each in messages):
        raise InvalidInput("each message must be an object")
    is_items = any("type" in each and "role" not in each for each in messages)
    try:
        if is_items:
            calls = ItemCalls(messages)
            said = [message_from_items(items, calls) for items in split_items(messages)]
        else:
            said = list(from_chat(messages))
    except (TypeError, AttributeError, KeyError) as exc:
        # The codecs are written for what the API sends.
        raise InvalidInput(f"messages must be those of OpenAI's API: {exc}") from exc
    nodes: list[Node] = []
    for number, message in enumerate(said):
        parts, role = message.parts, message.role
        if role == "system":
            report.notes["system messages kept as data"] += 1
            nodes.append(
                Node(f"m{number}", nodes[-1].id if nodes else None, None, (data_part("system", _plain(parts)),))
            )
            continue
        # A round that has grown since is another message.
        version = "" if role == "user" else f"-{hashlib.sha256(parts_.encode(parts)).hexdigest()[:12]}"
        nodes.append(Node(f"m{number}", nodes[-1].id if nodes else None, role, parts, version=version))
    return nodes


def _plain(parts: Sequence[Part]) -> Any:
    return jsontext.parse(parts_.encode(parts), "parts")


def _digest(value: Any) -> str:
    return hashlib.sha256(sanitize_json(value).json).hexdigest()[:16]
