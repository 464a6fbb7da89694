"""Page cursors: a position in a listing, spelled so that nobody is tempted to read it.

A cursor carries a checksum over the listing it was issued for (whose it is, and how it was filtered), so one that was
made up, cut short, or taken from another listing is refused instead of giving a page of something else. It is no
secret and grants nothing: whoever brings one back still sees only what their scope sees.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import NamedTuple

from threadline.core.errors import InvalidCursor

_CHECKSUM_BYTES = 9
# As safe in an address as the usual pair, but no dash: a command line would take a cursor that begins so for an option.
_ALTCHARS = b"._"


class Position(NamedTuple):
    """The last row of a page: what the listing is ordered by, and the id that breaks ties."""

    at_us: int
    id: str


def encode_cursor(listing: str, position: Position) -> str:
    return _spelled(listing, f"{position.at_us}.{position.id}".encode())


def decode_cursor(listing: str, cursor: str) -> Position:
    """InvalidCursor unless `encode_cursor` made it for the same listing."""
    try:
        body = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=_ALTCHARS, validate=True)[_CHECKSUM_BYTES:]
        at_us, _, id = body.decode().partition(".")
        position = Position(int(at_us), id)
    except (binascii.Error, UnicodeError, ValueError):
        raise InvalidCursor("this cursor was not issued here: begin again without one") from None
    # Spelled again as a whole, because base64 has several spellings of the same bytes.
    if _spelled(listing, body) != cursor:
        raise InvalidCursor("this cursor was not issued for this listing: begin again without one")
    return position


def _spelled(listing: str, body: bytes) -> str:
    checksum = hashlib.blake2b(b"%b\0%b" % (listing.encode(), body), digest_size=_CHECKSUM_BYTES).digest()
    return base64.b64encode(checksum + body, _ALTCHARS).decode().rstrip("=")
