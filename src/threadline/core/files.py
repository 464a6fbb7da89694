"""Files as providers take them: what a part's URL holds, told from its bytes and not from what it is called.

One file that a provider refuses would be refused with every later turn of its thread. So only what is sound goes out,
under the type its first bytes give it; for the rest the codecs put a note.
"""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from threadline.core.parts import FilePart

IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
)


class Embedded(NamedTuple):
    """The bytes of a `data:` URL. `media_type` is what they are: an image, a PDF, a text."""

    media_type: str
    content: bytes

    @property
    def base64(self) -> str:
        return base64.b64encode(self.content).decode()


def embedded(part: FilePart) -> Embedded | None:
    """What the part carries in itself; None if it carries nothing, or nothing that a provider takes."""
    if not part.url.startswith("data:"):
        return None
    head, _, body = part.url[5:].partition(",")
    declared, *options = head.split(";")
    try:
        content = base64.b64decode(body, validate=True) if "base64" in options else unquote_to_bytes(body)
    except (binascii.Error, ValueError):
        return None
    media_type = _sniffed(content) or ("text/plain" if _is_text(declared, content) else None)
    return None if media_type is None else Embedded(media_type, content)


def is_web_url(part: FilePart) -> bool:
    return part.url.startswith(("https://", "http://"))


def data_url(media_type: str, content_base64: str) -> str:
    return f"data:{media_type};base64,{content_base64}"


def _sniffed(content: bytes) -> str | None:
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return next((media_type for magic, media_type in _SIGNATURES if content.startswith(magic)), None)


def _is_text(declared: str, content: bytes) -> bool:
    if not declared.startswith("text/") and declared not in ("", "application/json"):
        return False
    try:
        return bool(content.decode().strip())
    except UnicodeDecodeError:
        return False
