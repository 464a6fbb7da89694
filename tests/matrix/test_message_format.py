"""Markdown as Matrix shows it: plain where nothing is formatted, safe, in pieces that fit."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadline.core.parts import Part, TextPart, tool_part
from threadline.core.reply_text import reply_markdown
from threadline.matrix.message_format import PIECE_BYTES, answering, edit, html, message, pieces


@pytest.mark.req("S2-18")
@pytest.mark.parametrize(
    ("text", "formatted"),
    [
        ("**bold** and `code`", "<p><strong>bold</strong> and <code>code</code></p>"),
        ("~~gone~~", "<p><s>gone</s></p>"),
        ("# Title\n\ntext", "<h1>Title</h1>\n<p>text</p>"),
        ("one\ntwo", "<p>one<br />\ntwo</p>"),
        ("[here](https://example.org)", '<p><a href="https://example.org">here</a></p>'),
        ("```py\nx < 1\n```", '<pre><code class="language-py">x &lt; 1\n</code></pre>'),
        ("- a\n- b", "<ul>\n<li>a</li>\n<li>b</li>\n</ul>"),
    ],
)
def test_markdown_becomes_the_html_that_clients_show(text: str, formatted: str) -> None:
    assert message(text) == {
        "msgtype": "m.text",
        "body": text,
        "format": "org.matrix.custom.html",
        "formatted_body": formatted,
        "m.mentions": {},
    }


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "[x](javascript:alert(1))",
        "[x](data:text/html,hi)",
        "![x](javascript:alert(1))",
        '![x"onload="y](https://e.org/"x)',
    ],
)
def test_nothing_active_gets_through(text: str) -> None:
    rendered = html(text)
    assert "<script" not in rendered
    assert "<img" not in rendered
    assert 'href="javascript' not in rendered
    assert 'href="data' not in rendered
    assert '"onload' not in rendered


def test_a_picture_is_a_link_and_a_column_has_no_style() -> None:
    assert html("![a cat](https://e.org/cat.png)") == '<p><a href="https://e.org/cat.png">a cat</a></p>'
    assert "style" not in html("| a |\n|--:|\n| 1 |")


def test_plain_words_have_no_html() -> None:
    assert message("Hello, you & me.") == {"msgtype": "m.text", "body": "Hello, you & me.", "m.mentions": {}}
    assert message("Sorry.", notice=True) == {"msgtype": "m.notice", "body": "Sorry.", "m.mentions": {}}


def test_an_edit_says_the_new_text_to_old_and_new_clients() -> None:
    changed = edit(answering(message("**b**"), "$question", "$root"), "$first")
    assert changed["body"] == "* **b**"
    assert changed["m.new_content"] == message("**b**")
    assert changed["m.relates_to"] == {"rel_type": "m.replace", "event_id": "$first"}


def test_an_answer_stays_in_its_thread() -> None:
    assert answering({}, "$q", "$root")["m.relates_to"] == {
        "m.in_reply_to": {"event_id": "$q"},
        "rel_type": "m.thread",
        "event_id": "$root",
        "is_falling_back": True,
    }
    assert answering({}, "$q", None)["m.relates_to"] == {"m.in_reply_to": {"event_id": "$q"}}


def test_tools_are_a_line_each() -> None:
    parts: list[Part] = [
        TextPart("Let me see. "),
        tool_part("clock", "1", {}, output="noon"),
        tool_part("pay", "2", {}),
        TextPart("Noon."),
    ]
    assert reply_markdown(parts) == "Let me see.\n\n*Tool `clock`: done*\n\n*Tool `pay`: running*\n\nNoon."


@pytest.mark.req("S2-18")
@pytest.mark.parametrize("letter", ["a", "&", '"', "ü", "🙂", "<"])
@pytest.mark.parametrize("between", ["", " ", "\n\n"])
def test_every_piece_of_a_long_text_fits_into_an_event_and_nothing_is_lost(letter: str, between: str) -> None:
    text = between.join([letter * 20] * 1_200)
    split = pieces(text)
    assert all(len(json.dumps(edit(message(piece), "$e"), ensure_ascii=False).encode()) <= 65_536 for piece in split)
    assert "".join("".join(split).split()) == "".join(text.split())


def test_a_long_reply_is_a_few_large_messages() -> None:
    paragraphs = [f"Paragraph {number} with **bold** words. " + "word " * 150 for number in range(200)]
    text = "\n\n".join(paragraphs)
    assert len(text) > 150_000
    assert len(pieces(text)) <= 9


@pytest.mark.req("M-05")
def test_the_list_of_mentions_is_empty() -> None:
    content = message("@room, ask Bob")
    assert content["m.mentions"] == {}
    assert edit(content, "$e")["m.new_content"]["m.mentions"] == {}


def test_a_long_text_is_split_between_paragraphs() -> None:
    paragraph = "word " * 500
    assert {piece.strip() for piece in pieces("\n\n".join([paragraph] * 20)) if piece.count("\n\n") == 0} <= {
        paragraph.strip()
    }


def test_a_split_code_block_continues_as_a_code_block() -> None:
    first, second, *_ = pieces("```py\n" + "x = 1\n" * (PIECE_BYTES // 4) + "```\ndone")
    assert first.endswith("x = 1\n```")
    assert second.startswith("```py\nx = 1\n")


@given(st.text(alphabet="ab \n`*&", max_size=300), st.text(alphabet="ab \n`*&", max_size=300))
def test_growing_text_keeps_the_pieces_it_had(begun: str, more: str) -> None:
    long = begun * 60
    before, after = pieces(long), pieces(long + more * 20)
    assert after[: len(before) - 1] == before[:-1]
