"""ChatGPT's data export: `conversations.json`, alone or in the zip file, with a tree of nodes for each conversation.

Every branch is kept: edited questions and repeated answers are timelines, and `current_node` says which one is shown.
A message to a tool and the tool's message below it become one tool call. Pictures and files are not in
`conversations.json`: their names are kept as data parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from threadline.core.errors import InvalidInput
from threadline.core.history import History, ThreadRecord
from threadline.core.parts import Part, ReasoningPart, TextPart
from threadline.importers.message_tree import Node, history_of
from threadline.importers.raw_values import call_part, data_part, moment, parsed, text_in, title_in
from threadline.importers.report import SourceReport

NAME = "chatgpt"


def looks_like(value: Mapping[str, Any]) -> bool:
    return isinstance(value.get("mapping"), dict)


def read_conversation(found: Any, report: SourceReport) -> History | None:
    if not isinstance(found, dict) or not isinstance(found.get("mapping"), dict):
        raise InvalidInput("must be a conversation with a `mapping`")
    conversation_id = text_in(found.get("conversation_id")) or text_in(found.get("id"))
    if conversation_id is None:
        raise InvalidInput("must have a `conversation_id`")
    updated_at = moment(found.get("update_time"))
    facts = {key: str(found[key])[:1000] for key in ("gizmo_id", "conversation_template_id") if found.get(key)}
    record = ThreadRecord(
        title=title_in(found.get("title")),
        model=(text_in(found.get("default_model_slug")) or "")[:200] or None,
        metadata={"source": NAME, "conversation": conversation_id[:200], **facts},
        created_at=moment(found.get("create_time")),
        updated_at=updated_at,
        archived_at=updated_at if found.get("is_archived") is True else None,
    )
    tree = _Mapping(found["mapping"], report)
    leaf = found.get("current_node")
    leaf = leaf if isinstance(leaf, str) else None
    return history_of(f"{NAME}:{conversation_id}", record, tree.nodes(), report, leaf=leaf, surface="web")


class _Mapping:
    def __init__(self, mapping: Mapping[str, Any], report: SourceReport) -> None:
        self._report = report
        self._entries = {id: entry for id, entry in mapping.items() if isinstance(entry, dict)}
        self._messages = {
            id: message for id, entry in self._entries.items() if isinstance(message := entry.get("message"), dict)
        }
        self._outputs: dict[str, list[Any]] = {}
        self._merged: set[str] = set()
        self._merge_results()

    def _children(self, id: str) -> list[str]:
        children = self._entries[id].get("children")
        return [child for child in children if isinstance(child, str)] if isinstance(children, list) else []

    def _merge_results(self) -> None:
        for id, message in self._messages.items():
            if not _is_call(message):
                continue
            outputs: list[Any] = []
            at = id
            while len(below := self._children(at)) == 1 and _role(self._messages.get(below[0])) == "tool":
                at = below[0]
                if at in self._merged:
                    break
                self._merged.add(at)
                outputs.append(_output(self._messages[at]))
            if outputs:
                self._outputs[id] = outputs

    def nodes(self) -> list[Node]:
        """Each node of the mapping, brothers in the order in which their parent names them."""
        order = dict.fromkeys(child for id in self._entries for child in self._children(id) if child in self._entries)
        roots = [id for id in self._entries if id not in order]
        return [self._node(id) for id in (*roots, *order)]

    def _node(self, id: str) -> Node:
        parent = self._entries[id].get("parent")
        parent = parent if isinstance(parent, str) else None
        message = self._messages.get(id)
        if message is None or id in self._merged:
            return Node(id, parent, None)
        metadata = message.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        role, parts = _role(message), self._parts(id, message, metadata)
        at = moment(message.get("create_time"))
        is_hidden = metadata.get("is_visually_hidden_from_conversation") is True
        if role == "system" or is_hidden:
            if not parts:
                return Node(id, parent, None, (), at)
            self._report.notes["hidden messages kept as data"] += 1
            return Node(id, parent, None, (data_part(f"{NAME}-hidden", message),), at)
        if not parts:
            return Node(id, parent, None, (), at)
        if role == "user":
            return Node(id, parent, "user", parts, at)
        model = text_in(metadata.get("model_slug"))
        return Node(id, parent, "assistant", parts, at, model and model[:200])

    def _parts(self, id: str, message: Mapping[str, Any], metadata: Mapping[str, Any]) -> tuple[Part, ...]:
        content = message.get("content")
        content = content if isinstance(content, dict) else {}
        if _is_call(message):
            given = parsed(_code(content))
            outputs = self._outputs.get(id)
            outcome = None if outputs is None else (outputs[0] if len(outputs) == 1 else outputs, False)
            return (call_part(message["recipient"], id, given, outcome),)
        if _role(message) == "tool":
            author = message.get("author")
            name = author.get("name") if isinstance(author, dict) else None
            return (call_part(name or "tool", id, {}, (_output(message), False)),)
        return (*self._content(content), *self._attachments(metadata))

    def _content(self, content: Mapping[str, Any]) -> list[Part]:
        match content:
            case {"content_type": "text" | "multimodal_text", "parts": list(pieces)}:
                return [part for piece in pieces if (part := self._piece(piece)) is not None]
            case {"content_type": "thoughts", "thoughts": list(thoughts)}:
                texts = [_thought(each) for each in thoughts if isinstance(each, dict)]
                return [ReasoningPart("\n\n".join(text for text in texts if text))] if any(texts) else []
            case {"content_type": "code" | "execution_output", "text": str(text)} if text.strip():
                return [TextPart(f"```\n{text}\n```")]
            case {"content_type": "reasoning_recap"}:
                return []
            case {"content_type": str(kind)}:
                self._report.unknown[f"{NAME} content {kind[:60]}"] += 1
                return [data_part(f"{NAME}-content", content)]
        return []

    def _piece(self, piece: Any) -> Part | None:
        match piece:
            case str():
                return TextPart(piece) if piece.strip() else None
            case {"content_type": "audio_transcription", "text": str(text)} if text.strip():
                return TextPart(text)
            case dict():
                self._report.notes["files that are not in the export"] += 1
                return data_part(f"{NAME}-file", piece)
        return None

    def _attachments(self, metadata: Mapping[str, Any]) -> list[Part]:
        attachments = metadata.get("attachments")
        return [data_part(f"{NAME}-attachment", each) for each in attachments] if isinstance(attachments, list) else []


def _role(message: Mapping[str, Any] | None) -> str | None:
    author = message.get("author") if message is not None else None
    role = author.get("role") if isinstance(author, dict) else None
    return role if isinstance(role, str) else None


def _is_call(message: Mapping[str, Any]) -> bool:
    recipient = message.get("recipient")
    return _role(message) == "assistant" and isinstance(recipient, str) and recipient not in ("", "all")


def _code(content: Mapping[str, Any]) -> Any:
    if isinstance(content.get("text"), str):
        return content["text"]
    pieces = content.get("parts")
    return "\n".join(each for each in pieces if isinstance(each, str)) if isinstance(pieces, list) else dict(content)


def _output(message: Mapping[str, Any]) -> Any:
    content = message.get("content")
    if not isinstance(content, dict):
        return content
    if isinstance(content.get("text"), str):
        return content["text"]
    pieces = content.get("parts")
    if isinstance(pieces, list) and all(isinstance(each, str) for each in pieces):
        return "\n".join(pieces)
    return content


def _thought(thought: Mapping[str, Any]) -> str:
    return "\n".join(text for key in ("summary", "content") if (text := text_in(thought.get(key))) is not None)
