"""Problems of the service as the errors they were there: the same classes, the same codes, the same words.

An error is made without its constructor, which would write other words than those that came. A code that is not known
here, as a newer service may send, becomes the nearest error of its status.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from threadline.core import errors
from threadline.core.errors import ThreadlineError

_BY_STATUS: tuple[tuple[range, type[ThreadlineError]], ...] = (
    (range(401, 402), errors.TokenRefused),
    (range(403, 404), errors.Refused),
    (range(404, 405), errors.NotFound),
    (range(409, 410), errors.Conflict),
    (range(429, 430), errors.ServiceUnavailable),
    (range(400, 500), errors.InvalidInput),
    # A fault that the same request would meet again, unlike those of a service that is down or busy.
    (range(500, 501), errors.ThreadlineError),
    (range(501, 600), errors.ServiceUnavailable),
)
_FIELDS = ("currentCount", "turnId", "stateKey", "limit", "allowed", "line")
_NAMES = {"currentCount": "current_count", "turnId": "turn_id", "stateKey": "state_key"}


def _family(root: type[ThreadlineError]) -> Iterator[type[ThreadlineError]]:
    yield root
    for child in root.__subclasses__():
        yield from _family(child)


_BY_CODE = {kind.code: kind for kind in _family(ThreadlineError)}


def to_error(status: int, body: bytes) -> ThreadlineError:
    """The error that an answer tells of, whatever its body is."""
    said = _read(body)
    code, detail = said.get("code"), said.get("detail")
    kind = _BY_CODE.get(code) if isinstance(code, str) else None
    if kind is None:
        kind = next((each for statuses, each in _BY_STATUS if status in statuses), errors.ServiceUnavailable)
    error = kind.__new__(kind)
    Exception.__init__(error, detail if isinstance(detail, str) else f"the service answered {status}")
    for name in _FIELDS:
        if name in said:
            setattr(error, _NAMES.get(name, name), said[name])
    return error


def _read(body: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return value if isinstance(value, dict) else {}
