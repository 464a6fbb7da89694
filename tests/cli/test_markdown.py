"""Markdown in a terminal: the colours do not depend on how the text was split into pieces."""

from __future__ import annotations

import os
import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadline.cli.chat.markdown import MarkdownStream
from threadline.cli.chat.tables import TableFilter
from threadline.cli.output import display_width

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_ALPHABET = st.text(alphabet="ab #*`~[]()->\n ", max_size=60)
SAMPLE = """\
# A heading

A paragraph with **bold text**, *emphasis*, ~~struck~~ words, `code` and [a link](https://example.org/page) that is \
long enough to be wrapped in a narrow window. 東京の天気は晴れです。

- a list item that is longer than forty columns, so that it continues below its own text
- two
  1. nested

| city | people | remark |
|------|-------:|--------|
| Lisbon | 545,000 | hills, trams and a river that is as wide as a sea |
| Porto | 232,000 | wine |

```python
def add(a, b):
    return a + b  # a line
```

https://example.org/a/very/long/address/that/does/not/fit/into/a/narrow/window/at/all
> a quotation
"""


def render(pieces: list[str], *, colours: bool = True) -> str:
    stream = MarkdownStream(colours=colours)
    return "".join(stream.feed(piece) for piece in pieces) + stream.flush()


@given(_ALPHABET.map(lambda text: text.replace("a", "|")), st.lists(st.integers(0, 60), max_size=6))
def test_tables_without_colours_do_not_depend_on_the_pieces_that_arrive(text: str, cuts: list[int]) -> None:
    edges = sorted({0, len(text), *(cut for cut in cuts if cut <= len(text))})
    once, filtered = TableFilter(40), TableFilter(40)
    expected = once.feed(text) + once.flush()
    assert "".join(filtered.feed(text[a:b]) for a, b in pairwise(edges)) + filtered.flush() == expected


def test_headings_emphasis_code_and_lists_are_coloured() -> None:
    out = render(["# Title\n", "- one **two** `three`\n", "```py\nx = 1\n```\n"])
    assert "\x1b[1;34mTitle\x1b[0m\n" in out
    assert "• one \x1b[1mtwo\x1b[0m \x1b[36mthree\x1b[0m\n" in out
    assert "x = \x1b[34m1\x1b[39" in out.replace(" \x1b[39;49;00m", " ") or "\x1b[34m1" in out
    assert "\x1b[36mx = 1\n" in render(["```\nx = 1\n```\n"])
    out = render(["see *this*, ~~that~~, [a page](https://a.example/b) and 6*7*8, *args\n"])
    assert "\x1b[3mthis\x1b[0m, \x1b[9mthat\x1b[0m, \x1b[4ma page\x1b[0m (https://a.example/b) and 6*7*8, *args" in out


@pytest.mark.req("T-07")
@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("colours", [True, False])
def test_markdown_is_wrapped_to_the_width(width: int, colours: bool, tmp_path: Path) -> None:
    """The screens are in golden files; THREADLINE_GOLDEN=1 writes them again."""
    stream = MarkdownStream(colours=colours, width=width)
    out = "".join(stream.feed(char) for char in SAMPLE) + stream.flush()
    assert max(display_width(line) for line in _ANSI.sub("", out).splitlines()) <= width
    golden = Path(__file__).parent / "golden" / f"markdown-{width}{'' if colours else '-plain'}.txt"
    if os.environ.get("THREADLINE_GOLDEN"):
        golden.write_text(out)
    assert out == golden.read_text()


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
