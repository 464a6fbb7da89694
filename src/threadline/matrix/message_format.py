"""Matrix messages from Markdown: plain body, HTML, pieces that fit into an event, and edits.

The HTML is the subset that the specification recommends: no raw HTML, no images, and only web and mail links. Text that
is too long for one event is split between paragraphs, lines, sentences or words; a split code block is closed and
opened again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

from threadline.matrix.events_in import QUESTION, Content

# An event may have 65,536 bytes, and encryption adds a third.
PIECE_BYTES = 24_000
_EVENT_BYTES = 46_000
# Of a long text an edit repeats only the beginning for clients that do not know edits.
_FALLBACK_CHARS = 1_000
_SCHEMES = ("https://", "http://", "mailto:", "ftp://", "magnet:", "https://matrix.to/")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)$")
_BREAKS = ("\n\n", "\n", ". ", " ")


def _render_image(self: RendererHTML, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
    """An external image becomes a link: clients show only images from the homeserver."""
    token = tokens[index]
    label = self.renderInlineAsText(token.children or [], options, env) or str(token.attrGet("src"))
    link = Token("link_open", "a", 1, attrs={"href": str(token.attrGet("src"))})
    return f"<a{self.renderAttrs(link)}>{_escaped(label)}</a>"


def _render_cell(self: RendererHTML, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
    # The subset has no attribute for the alignment of a column.
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


def message(text: str, *, notice: bool = False, question: str | None = None) -> Content:
    """A message's content, with HTML only if it differs from the plain text. Its list of mentions is empty: without it,
    clients notify people whose names a reply contains. `question` is the token of the approval that it asks for."""
    content: Content = {"msgtype": "m.notice" if notice else "m.text", "body": text, "m.mentions": {}}
    if question is not None:
        content[QUESTION] = question
    formatted = html(text)
    if formatted != f"<p>{_escaped(text)}</p>":
        content |= {"format": "org.matrix.custom.html", "formatted_body": formatted}
    return content


def edit(content: Content, event_id: str) -> Content:
    """The content that edits an earlier message."""
    new = {key: value for key, value in content.items() if key != "m.relates_to"}
    fallback = new | {"body": f"* {new['body']}"}
    if len(new["body"]) > _FALLBACK_CHARS:
        fallback = {name: value for name, value in new.items() if name not in {"format", "formatted_body"}}
        fallback["body"] = f"* {new['body'][:_FALLBACK_CHARS]}…"
    elif "formatted_body" in new:
        fallback["formatted_body"] = f"* {new['formatted_body']}"
    return {**fallback, "m.new_content": new, "m.relates_to": {"rel_type": "m.replace", "event_id": event_id}}


def answering(content: Content, event_id: str, thread: str | None) -> Content:
    """The content as a reply to an event, in the event's thread if it is in one."""
    relation: dict[str, Any] = {"m.in_reply_to": {"event_id": event_id}}
    if thread is not None:
        relation |= {"rel_type": "m.thread", "event_id": thread, "is_falling_back": True}
    return {**content, "m.relates_to": relation}


def pieces(text: str) -> list[str]:
    """The text in pieces that fit into one event each. If text is appended, all but the last piece stay the same."""
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
        size = size * 3 // 4


def _cut(text: str, size: int) -> str:
    """As much of the text as fits into so many bytes, cut at the last break in its second half, if there is one."""
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
    """The code block that is open at the end: its fence and its language."""
    open_fence: tuple[str, str] | None = None
    for line in text.splitlines():
        found = _FENCE.match(line)
        if found is None:
            continue
        if open_fence is None:
            open_fence = (found[1], found[2].strip())
        elif found[1].startswith(open_fence[0]) and not found[2].strip():
            open_fence = None
    return open_fence


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
