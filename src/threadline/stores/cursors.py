"""Page cursors: an opaque position in a list.

A cursor contains a checksum over the list it was issued for (its owner and filters), so an invented, truncated or
foreign cursor is rejected instead of returning a page of something else. It is not a secret and grants nothing: the
page is still limited to the caller's scope.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import NamedTuple

from threadline.core.errors import InvalidCursor

_CHECKSUM_BYTES = 9
# Safe in a URL like the usual pair, but without a dash: a command line would take a cursor with a leading dash for an
# option.
_ALTCHARS = b"._"


class Position(NamedTuple):
    """The last row of a page: what the listing is ordered by, and the id that breaks ties."""

    at_us: int
    id: str


def encode_cursor(listing: str, position: Position) -> str:
    return _encode(listing, f"{position.at_us}.{position.id}".encode())


def decode_cursor(listing: str, cursor: str) -> Position:
    """InvalidCursor unless `encode_cursor` made it for the same listing."""
    try:
        body = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=_ALTCHARS, validate=True)[_CHECKSUM_BYTES:]
        at_us, _, id = body.decode().partition(".")
        position = Position(int(at_us), id)
    except (binascii.Error, UnicodeError, ValueError):
        raise InvalidCursor("cursor was not issued here: start again without one") from None
    # Compared as text, because base64 has several encodings of the same bytes.
    if _encode(listing, body) != cursor:
        raise InvalidCursor("cursor was not issued for this list: start again without one")
    return position


def _encode(listing: str, body: bytes) -> str:
    checksum = hashlib.blake2b(b"%b\0%b" % (listing.encode(), body), digest_size=_CHECKSUM_BYTES).digest()
    return base64.b64encode(checksum + body, _ALTCHARS).decode().rstrip("=")
