"""Matrix messages from Markdown: the plain body, the HTML that clients show, pieces that fit into an event, and edits.

The HTML is the subset that the specification recommends: no raw HTML passes, no image is fetched, and only links that a
person would follow. What is too long for one event is split where a reader would, and a code block that is cut goes on
as one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

from threadline.core.parts import Part, TextPart, ToolPart
from threadline.matrix.events import Content

# An event may have 65,536 bytes. An edit holds its text twice, each time with its HTML, and encryption adds a third.
PIECE_BYTES = 9_000
_EVENT_BYTES = 40_000
_SCHEMES = ("https://", "http://", "mailto:", "ftp://", "magnet:", "https://matrix.to/")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)$")
_BREAKS = ("\n\n", "\n", ". ", " ")


def _render_image(self: RendererHTML, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
    """A picture from elsewhere becomes a link: clients show only pictures that the homeserver keeps."""
    token = tokens[index]
    shown = self.renderInlineAsText(token.children or [], options, env) or str(token.attrGet("src"))
    link = Token("link_open", "a", 1, attrs={"href": str(token.attrGet("src"))})
    return f"<a{self.renderAttrs(link)}>{_escaped(shown)}</a>"


def _render_cell(self: RendererHTML, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
    # How a column is aligned is an attribute that the subset does not have.
    tokens[index].attrs = {}
    return self.renderToken(tokens, index, options, env)


def _markdown() -> MarkdownIt:
    made = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"])
    made.validateLink = lambda url: url.lower().startswith(_SCHEMES)  # type: ignore[method-assign]
    made.add_render_rule("image", _render_image)
    made.add_render_rule("th_open", _render_cell)
    made.add_render_rule("td_open", _render_cell)
    return made


_MARKDOWN = _markdown()


def html(text: str) -> str:
    rendered: str = _MARKDOWN.render(text)
    return rendered.strip()


def message(text: str, *, notice: bool = False) -> Content:
    """A message's content, formatted only where that shows something."""
    content: Content = {"msgtype": "m.notice" if notice else "m.text", "body": text}
    formatted = html(text)
    if formatted != f"<p>{_escaped(text)}</p>":
        content |= {"format": "org.matrix.custom.html", "formatted_body": formatted}
    return content


def edit(content: Content, event_id: str) -> Content:
    """What makes an earlier message say this instead."""
    said = {key: value for key, value in content.items() if key != "m.relates_to"}
    shown = said | {"body": f"* {said['body']}"}
    if "formatted_body" in said:
        shown["formatted_body"] = f"* {said['formatted_body']}"
    return {**shown, "m.new_content": said, "m.relates_to": {"rel_type": "m.replace", "event_id": event_id}}


def answering(content: Content, event_id: str, thread: str | None) -> Content:
    """The same content as an answer to an event, in its thread if it stands in one."""
    relation: dict[str, Any] = {"m.in_reply_to": {"event_id": event_id}}
    if thread is not None:
        relation |= {"rel_type": "m.thread", "event_id": thread, "is_falling_back": True}
    return {**content, "m.relates_to": relation}


def spoken(parts: Sequence[Part]) -> str:
    """A reply as Markdown: its words, and a line for every tool it used."""
    shown = (_part(part) for part in parts)
    return "\n\n".join(text for text in shown if text)


def _part(part: Part) -> str:
    match part:
        case TextPart():
            return part.text.strip()
        case ToolPart():
            how = {"output-available": "done", "output-error": "failed", "output-denied": "not allowed"}
            return f"*Tool `{part.name.replace('`', '')}`: {how.get(part.state, 'running')}*"
    return ""


def pieces(text: str) -> list[str]:
    """The text in pieces of which each fits into an event. Growing text keeps all but its last piece."""
    found: list[str] = []
    reopened = ""
    while text:
        piece, text = _first_piece(reopened + text)
        fence = _open_fence(piece)
        found.append(f"{piece}\n{fence[0]}" if fence and text else piece)
        reopened = f"{fence[0]}{fence[1]}\n" if fence else ""
    return found


def _first_piece(text: str) -> tuple[str, str]:
    size = PIECE_BYTES
    while True:
        piece = _cut(text, size)
        if piece == text and _fits(text):
            return text, ""
        if piece != text and _fits(piece):
            return piece.rstrip("\n"), text[len(piece) :].lstrip("\n")
        size //= 2


def _cut(text: str, size: int) -> str:
    """The most of the text that has so many bytes, up to where a reader would pause, if that is in its second half."""
    if len(text) * 4 <= size or len(text.encode()) <= size:
        return text
    head = text.encode()[:size].decode(errors="ignore")
    for pause in _BREAKS:
        at = head.rfind(pause)
        if at >= len(head) // 2:
            return head[: at + len(pause)]
    return head


def _fits(text: str) -> bool:
    return len(json.dumps(edit(message(text), "$" + "e" * 43), ensure_ascii=False).encode()) <= _EVENT_BYTES


def _open_fence(text: str) -> tuple[str, str] | None:
    """The code block that is still open at the end: its fence and its language."""
    standing: tuple[str, str] | None = None
    for line in text.splitlines():
        found = _FENCE.match(line)
        if found is None:
            continue
        if standing is None:
            standing = (found[1], found[2].strip())
        elif found[1].startswith(standing[0]) and not found[2].strip():
            standing = None
    return standing


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
