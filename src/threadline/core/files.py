"""File parts for providers: the content of `data:` URLs, with the media type determined from its bytes.

A file that a provider rejects would be rejected again with every later turn of its thread. So only valid files are
sent, with the type that their first bytes indicate; the codecs replace the others with a note.
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
    """The content of a `data:` URL. `media_type` is determined from the bytes: an image, a PDF or text."""

    media_type: str
    content: bytes

    @property
    def base64(self) -> str:
        return base64.b64encode(self.content).decode()


def embedded(part: FilePart) -> Embedded | None:
    """The content of the part's `data:` URL; None for other URLs and for content that providers do not accept."""
    if not part.url.startswith("data:"):
        return None
    head, _, body = part.url[5:].partition(",")
    declared, *options = head.split(";")
    try:
        content = base64.b64decode(body, validate=True) if "base64" in options else unquote_to_bytes(body)
    except (binascii.Error, ValueError):
        return None
    media_type = _detect_type(content) or ("text/plain" if _is_text(declared, content) else None)
    return None if media_type is None else Embedded(media_type, content)


def is_web_url(part: FilePart) -> bool:
    return part.url.startswith(("https://", "http://"))


def data_url(media_type: str, content_base64: str) -> str:
    return f"data:{media_type};base64,{content_base64}"


def _detect_type(content: bytes) -> str | None:
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
