"""What MCP servers return, as tool output: text, or a list of text and image blocks if there are images.

Results are plain data, as the protocol spells it. Control characters become visible, text is cut to the server's limit,
and what a model cannot be shown (audio, other binary data, images that are too large) becomes a note.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from threadline.agents.tool_execution import ToolFailed
from threadline.core import jsontext
from threadline.core.errors import InvalidInput
from threadline.core.files import IMAGE_TYPES
from threadline.core.sanitize import sanitize_text, visible

IMAGE_BYTES = 400_000
"""Of all images in one result, in base64: a reply can store about twice as much."""


def tool_output(result: Mapping[str, Any], limit: int) -> Any:
    """The output of a tool. ToolFailed if the result says that the tool failed."""
    blocks = _Blocks(limit)
    for item in _items(result.get("content")):
        blocks.add(item)
    structured = result.get("structuredContent")
    if result.get("isError"):
        raise ToolFailed(blocks.text() or "the tool failed without a reason")
    # With text beside it, structured content repeats the text for programs, as the protocol recommends.
    if structured is not None and blocks.is_empty:
        blocks.add_text(_dump(structured))
    return blocks.output()


def resource_output(result: Mapping[str, Any], limit: int) -> Any:
    """The contents of a resource."""
    blocks = _Blocks(limit)
    for item in _items(result.get("contents")):
        blocks.add({"type": "resource", "resource": item})
    return blocks.output()


def prompt_text(result: Mapping[str, Any], limit: int) -> str:
    """The messages of a prompt as one text, for the user to send. Those of the assistant are marked."""
    blocks = _Blocks(limit)
    for message in _items(result.get("messages")):
        if message.get("role") == "assistant":
            blocks.add_text("Assistant:")
        content = message.get("content")
        for item in _items(content if isinstance(content, list) else [content]):
            blocks.add(item)
    return blocks.text()


def plain(text: Any, limit: int) -> str:
    """A name or a description from a server: printable, on its own lines, of a bounded length."""
    return visible(sanitize_text(text))[:limit] if isinstance(text, str) else ""


class _Blocks:
    def __init__(self, limit: int) -> None:
        self._left = limit
        self._images_left = IMAGE_BYTES
        self._blocks: list[dict[str, Any]] = []
        self._total = 0

    def add(self, item: Mapping[str, Any]) -> None:
        match item:
            case {"type": "text", "text": str(text)}:
                self.add_text(text)
            case {"type": "image", "data": str(data), "mimeType": str(media_type)}:
                self._add_binary("image", data, media_type)
            case {"type": "audio", "data": str(data), "mimeType": str(media_type)}:
                self._add_note("audio", data, media_type)
            case {"type": "resource", "resource": {"text": str(text), **rest}}:
                self.add_text(f"[resource {plain(rest.get('uri'), 300)}]\n{text}")
            case {"type": "resource", "resource": {"blob": str(data), **rest}}:
                self._add_binary(f"resource {plain(rest.get('uri'), 300)}", data, str(rest.get("mimeType") or "binary"))
            case {"type": "resource_link", "uri": str(uri)}:
                about = plain(item.get("title") or item.get("name"), 200)
                self.add_text(f"[resource {plain(uri, 300)}{f': {about}' if about else ''}]")
            case _:
                self.add_text(f"[{plain(item.get('type'), 50) or 'content'} that cannot be shown]")

    def add_text(self, text: str) -> None:
        self._total += len(text)
        if not text:
            return
        if self._left <= 0:
            self._left = -1
            return
        # Only what can fit is converted: the rest may be megabytes.
        shown = visible(sanitize_text(text[: self._left + 1])).encode()
        self._blocks.append({"type": "text", "text": shown[: self._left].decode(errors="ignore")})
        # Below 0 if something did not fit.
        self._left -= len(shown)

    def _add_binary(self, what: str, data: str, media_type: str) -> None:
        if media_type not in IMAGE_TYPES or len(data) > self._images_left:
            self._add_note(what, data, media_type)
            return
        self._images_left -= len(data)
        source = {"type": "base64", "media_type": media_type, "data": data}
        self._blocks.append({"type": "image", "source": source})

    def _add_note(self, what: str, data: str, media_type: str) -> None:
        size = len(data) * 3 // 4
        self.add_text(f"[{what}, {plain(media_type, 100)}, {size:,} bytes, which cannot be shown]")

    @property
    def is_empty(self) -> bool:
        return not self._blocks

    def text(self) -> str:
        text = "\n".join(block["text"] for block in self._blocks if block["type"] == "text")
        if self._left >= 0:
            return text
        return f"{text}\n[cut: this is the beginning of {self._total:,} characters]"

    def output(self) -> Any:
        if all(block["type"] == "text" for block in self._blocks):
            return self.text()
        if self._left < 0:
            note = f"[the text is cut: it has {self._total:,} characters]"
            return [*self._blocks, {"type": "text", "text": note}]
        return self._blocks


def _items(value: Any) -> Sequence[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _dump(value: Any) -> str:
    try:
        return jsontext.dump(value, "tool output").decode()
    except InvalidInput as exc:
        raise ToolFailed(f"the tool ran, but its result is not JSON data: {exc}") from exc
