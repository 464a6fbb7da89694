"""What the codecs share: the body as JSON, one header, a comparison that tells nothing, names for what is not text.

A verified body comes from the platform itself, so the reader is kinder than that of the API: half a character or a NUL
is mended, not refused. Depth is limited all the same.
"""

from __future__ import annotations

import datetime as dt
import hmac
import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import msgspec

from threadline.core import jsontext
from threadline.core.errors import InvalidInput, InvalidJson, SettingsInvalid, SignatureInvalid
from threadline.core.platform_messages import HttpResponse, Permanent, Transient
from threadline.core.sanitize import sanitize_text

T = TypeVar("T")
_LONGEST_NAME = 120


def load(body: bytes) -> Any:
    """InvalidJson or LimitExceeded."""
    jsontext.check_depth(body, "the webhook")
    try:
        value = json.loads(body.decode(), parse_constant=_refuse)
    except UnicodeDecodeError:
        raise InvalidJson("the webhook is not UTF-8") from None
    except (ValueError, RecursionError) as exc:
        raise InvalidJson(f"the webhook is not JSON: {exc}") from exc
    # Only an escape can spell either.
    return _mended(value) if b"\\u" in body else value


def _mended(value: Any) -> Any:
    match value:
        case str():
            return sanitize_text(value)
        case list():
            return [_mended(item) for item in value]
        case dict():
            return {sanitize_text(name): _mended(item) for name, item in value.items()}
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")


def shaped(value: Any, shape: type[T]) -> T | None:
    """The value as this struct; None if it is something else."""
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError:
        return None


def answered(response: HttpResponse, shape: type[T]) -> T | None:
    """A platform's answer, read like its webhooks; None if it cannot be."""
    try:
        return shaped(load(response.body), shape)
    except InvalidInput:
        return None


def header(headers: Sequence[tuple[str, str]], name: str) -> str:
    """The one value of this header. SignatureInvalid if it is missing, or there twice."""
    found = [value for key, value in headers if key.lower() == name]
    if len(found) != 1:
        raise SignatureInvalid(f"{name} is {'missing' if not found else 'there more than once'}")
    return found[0]


def require_equal(given: str, expected: str) -> None:
    """Bytes, because `compare_digest` refuses text that is not ASCII and a stranger may send any."""
    if not hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode("utf-8", "surrogatepass")):
        raise SignatureInvalid("the signature is wrong")


def known(secrets: Mapping[str, str], name: str) -> str:
    """A secret to compare with: with none, nothing is verified."""
    secret = secrets.get(name)
    if not secret:
        raise SignatureInvalid(f"there is no {name} to verify with")
    return secret


def sendable(secrets: Mapping[str, str], name: str) -> str:
    """A secret that can stand in a request."""
    secret = secrets.get(name, "")
    if not secret or not secret.isascii() or not secret.isprintable() or " " in secret:
        raise SettingsInvalid(f"{name} is missing or is none: set it again")
    return secret


def moment(seconds: float) -> dt.datetime | None:
    """None for what no calendar holds."""
    try:
        return dt.datetime.fromtimestamp(seconds, dt.UTC)
    except (OverflowError, OSError, ValueError):
        return None


def placeholder(kind: str, name: str | None = None, mime_type: str | None = None) -> str:
    """What stands in the text for something that is not text: its kind and its name, on one line."""
    words = [" ".join(word.split())[:_LONGEST_NAME] for word in (name, mime_type) if word]
    about = f": {words[0]}" if words else ""
    more = f" ({words[1]})" if len(words) > 1 else ""
    return f"[{kind}{about}{more}]"


def with_placeholders(text: str | None, named: Sequence[str]) -> str:
    return "\n".join(part for part in ((text or "").strip(), *named) if part)


def retry_after(response: HttpResponse) -> float | None:
    value = response.headers.get("retry-after", "").strip()
    return float(value) if value.isascii() and value.isdigit() and len(value) < 10 else None


def refused(response: HttpResponse, reason: str) -> Transient | Permanent:
    """For an answer that the platform's own words say nothing more about."""
    if response.status in (408, 425, 429) or response.status >= 500:
        return Transient(reason, retry_after(response))
    return Permanent(reason)
