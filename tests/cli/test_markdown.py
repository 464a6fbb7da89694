"""Markdown in a terminal: the colours do not depend on how the text was split into pieces."""

from __future__ import annotations

import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from threadline.cli.chat.markdown import MarkdownStream

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_ALPHABET = st.text(alphabet="ab #*`->\n ", max_size=60)


def render(pieces: list[str], *, colours: bool = True) -> str:
    stream = MarkdownStream(colours=colours)
    return "".join(stream.feed(piece) for piece in pieces) + stream.flush()


def test_headings_emphasis_code_and_lists_are_coloured() -> None:
    out = render(["# Title\n", "- one **two** `three`\n", "```py\nx = 1\n```\n"])
    assert "\x1b[1;34mTitle\x1b[0m\n" in out
    assert "• one \x1b[1mtwo\x1b[0m \x1b[36mthree\x1b[0m\n" in out
    assert "\x1b[36mx = 1\n" in out


def test_markers_inside_a_code_block_are_printed_unchanged() -> None:
    assert "# not a heading\n**not bold**" in _ANSI.sub("", render(["```\n# not a heading\n**not bold**\n```\n"]))


def test_without_colours_the_text_is_printed_unchanged() -> None:
    assert render(["# a **b** `c`"], colours=False) == "# a **b** `c`"


@given(_ALPHABET, st.lists(st.integers(0, 60), max_size=6))
def test_the_output_does_not_depend_on_the_pieces_that_arrive(text: str, cuts: list[int]) -> None:
    edges = sorted({0, len(text), *(cut for cut in cuts if cut <= len(text))})
    pieces = [text[a:b] for a, b in pairwise(edges)]
    assert render(pieces) == render([text])


@given(_ALPHABET)
def test_no_letter_is_lost(text: str) -> None:
    plain = _ANSI.sub("", render([text]))
    assert [c for c in plain if c in "ab"] == [c for c in text if c in "ab"]


@given(_ALPHABET)
def test_colours_are_reset_at_the_end_of_the_text(text: str) -> None:
    out = render([text])
    codes = _ANSI.findall(out)
    assert not codes or codes[-1] == "\x1b[0m"
