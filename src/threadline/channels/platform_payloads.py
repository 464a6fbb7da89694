"""Shared by the channel codecs: JSON bodies, headers, secrets, placeholders for media, and outcomes by HTTP status.

A verified body comes from the platform itself, so parsing is more lenient than for the API: lone surrogates and NULs
are replaced, not rejected. Nesting depth is limited nevertheless.
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
from threadline.core.platform_messages import Delivery, HttpResponse, Permanent, Transient
from threadline.core.sanitize import sanitize_text

T = TypeVar("T")
# Names of files are shown to the agent in one line.
_LONGEST_NAME = 120


def parse_json(body: bytes) -> Any:
    """InvalidJson or LimitExceeded."""
    jsontext.check_depth(body, "webhook")
    try:
        value = json.loads(body.decode(), parse_constant=_refuse)
    except UnicodeDecodeError:
        raise InvalidJson("webhook must be UTF-8") from None
    except (ValueError, RecursionError) as exc:
        raise InvalidJson(f"webhook must be JSON: {exc}") from exc
    # Only an escape can produce a lone surrogate or a NUL.
    return _sanitize(value) if b"\\u" in body else value


def _sanitize(value: Any) -> Any:
    match value:
        case str():
            return sanitize_text(value)
        case list():
            return [_sanitize(item) for item in value]
        case dict():
            return {sanitize_text(name): _sanitize(item) for name, item in value.items()}
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def convert_or_none(value: Any, shape: type[T]) -> T | None:
    """The value as this struct; None if it has another shape."""
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError:
        return None


def parse_body(response: HttpResponse, shape: type[T]) -> T | None:
    """The body of a platform's response; None if it cannot be read."""
    try:
        return convert_or_none(parse_json(response.body), shape)
    except InvalidInput:
        return None


def single_header(headers: Sequence[tuple[str, str]], name: str) -> str:
    """The value of a header. SignatureInvalid if it is missing or repeated."""
    found = [value for key, value in headers if key.lower() == name]
    if len(found) != 1:
        raise SignatureInvalid(f"header {name} must be sent once, got it {len(found)} times")
    return found[0]


def require_equal(given: str, expected: str) -> None:
    """SignatureInvalid if they differ. Compares bytes, because `compare_digest` raises for text that is not ASCII."""
    if not hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode("utf-8", "surrogatepass")):
        raise SignatureInvalid("signature does not match")


def require_secret(secrets: Mapping[str, str], name: str) -> str:
    """A secret to verify with. SignatureInvalid without one, so that nothing passes unverified."""
    secret = secrets.get(name)
    if not secret:
        raise SignatureInvalid(f"{name} is not set, so nothing can be verified: set it")
    return secret


def require_sendable_secret(secrets: Mapping[str, str], name: str) -> str:
    """A secret that can be sent in a header or URL."""
    secret = secrets.get(name, "")
    if not secret or not secret.isascii() or not secret.isprintable() or " " in secret:
        raise SettingsInvalid(f"{name} is missing or contains invalid characters: set it again")
    return secret


def time_from_timestamp(seconds: float) -> dt.datetime | None:
    """The time of a Unix timestamp; None if it is out of range."""
    try:
        return dt.datetime.fromtimestamp(seconds, dt.UTC)
    except (OverflowError, OSError, ValueError):
        return None


def place_by_recipient(delivery: Delivery) -> Delivery:
    """Each thread or topic, where replies go, as a place of its own."""
    # What follows a slash is who alone sees the reply.
    placed = [msgspec.structs.replace(each, place=each.recipient.partition("/")[0]) for each in delivery.arrivals]
    return delivery._replace(arrivals=tuple(placed))


def placeholder(kind: str, name: str | None = None, mime_type: str | None = None) -> str:
    """The text that replaces media: its kind and name, on one line."""
    details = [" ".join(word.split())[:_LONGEST_NAME] for word in (name, mime_type) if word]
    first = f": {details[0]}" if details else ""
    second = f" ({details[1]})" if len(details) > 1 else ""
    return f"[{kind}{first}{second}]"


def join_text(text: str | None, named: Sequence[str]) -> str:
    return "\n".join(part for part in ((text or "").strip(), *named) if part)


def retry_after(response: HttpResponse) -> float | None:
    value = response.headers.get("retry-after", "").strip()
    return float(value) if value.isascii() and value.isdigit() and len(value) < 10 else None


def failure_for_status(response: HttpResponse, reason: str) -> Transient | Permanent:
    """The outcome of a failed request by its HTTP status alone."""
    if response.status in (408, 425, 429) or response.status >= 500:
        # A rate limit is for this message or this chat; other failures are for every message.
        return Transient(reason, retry_after(response), is_outage=response.status != 429)
    return Permanent(reason)
