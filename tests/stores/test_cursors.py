"""Page cursors: an issued cursor can be decoded, any other is rejected."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from threadline.core.errors import InvalidCursor
from threadline.stores.rows import Position, decode_cursor, encode_cursor

positions = st.builds(
    Position, st.integers(-(2**63), 2**63 - 1), st.from_regex(r"[A-Za-z0-9._:-]{1,128}", fullmatch=True)
)


@given(st.text(), positions)
def test_a_cursor_leads_back_to_its_position(listing: str, position: Position) -> None:
    assume("\ud800" not in listing)
    cursor = encode_cursor(listing, position)
    assert decode_cursor(listing, cursor) == position
    assert cursor.isascii()
    assert not cursor.startswith("-"), "a command line takes it for an option"


@given(positions, st.text(), st.text())
def test_a_cursor_of_another_listing_is_refused(position: Position, issued: str, asked: str) -> None:
    assume(issued != asked)
    with pytest.raises(InvalidCursor):
        decode_cursor(asked, encode_cursor(issued, position))


@given(st.text())
def test_an_invented_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidCursor):
        decode_cursor("threads", cursor)


@given(positions, st.data())
def test_a_cursor_with_one_character_changed_is_refused(position: Position, data: st.DataObject) -> None:
    cursor = encode_cursor("threads", position)
    at = data.draw(st.integers(0, len(cursor) - 1))
    other = data.draw(st.characters(codec="ascii").filter(lambda char: char != cursor[at]))
    with pytest.raises(InvalidCursor):
        decode_cursor("threads", cursor[:at] + other + cursor[at + 1 :])
