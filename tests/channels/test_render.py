"""Markdown replies as each platform shows them, and long replies in several messages."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from threadline.channels import markdown
from threadline.channels.markdown import Block, Span
from threadline.channels.slack import Slack
from threadline.channels.telegram import Telegram
from threadline.channels.telegram_entities import compose, measure, units
from threadline.channels.text_split import Size, cut, split
from threadline.channels.whatsapp import WhatsApp
from threadline.ports import Channel

GOLDEN = Path(__file__).parent / "golden"
CHANNELS: list[Channel] = [Slack(), Telegram(), WhatsApp()]
LIMITS = {"slack": 4000, "telegram": 4096, "whatsapp": 4096}

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=60)
WORDS = st.text("ab cd.\n😀e\u0301👩\u200d👧🇩🇪&<", min_size=1, max_size=60)
STYLES = st.frozensets(st.sampled_from(["bold", "italic", "strike", "code"]), max_size=2)
SPANS = st.lists(st.builds(Span, WORDS, STYLES, st.sampled_from([None, "https://a.example"])), min_size=1, max_size=5)
BLOCKS = st.lists(
    st.one_of(
        st.builds(Block, st.sampled_from(["text", "quote"]), SPANS.map(tuple)),
        st.builds(Block, st.just("code"), WORDS.map(lambda text: (Span(text),))),
    ),
    max_size=6,
)


def shown(payload: str) -> str:
    body: Any = json.loads(payload)["text"]
    return body if isinstance(body, str) else body["body"]


def ink(text: str) -> str:
    return "".join(text.split())


def plain_size(block: Block) -> Size:
    return Size(len(block.text))


@pytest.mark.parametrize("channel", CHANNELS, ids=lambda channel: channel.platform)
def test_a_reply_is_rendered_as_in_the_golden_file(channel: Channel) -> None:
    rendered = [json.loads(payload) for payload in channel.render((GOLDEN / "reply.md").read_text(encoding="utf-8"))]
    expected = json.loads((GOLDEN / f"reply.{channel.platform}.json").read_text(encoding="utf-8"))
    assert rendered == expected


@pytest.mark.parametrize("channel", CHANNELS, ids=lambda channel: channel.platform)
def test_an_empty_reply_has_no_payload(channel: Channel) -> None:
    assert channel.render("") == channel.render(" \n\n\t") == []


@pytest.mark.parametrize(
    "text", ["[name]: https://a.example", "<!-- a comment -->", ">" * 300 + " deep", "&nbsp;x", "\\"]
)
def test_no_text_disappears_because_of_markdown_syntax(text: str) -> None:
    for channel in CHANNELS:
        assert channel.render(text)


@pytest.mark.parametrize("channel", CHANNELS, ids=lambda channel: channel.platform)
@settings(max_examples=40, deadline=None)
@given(text=TEXT)
def test_any_text_can_be_rendered(channel: Channel, text: str) -> None:
    for payload in channel.render(text):
        assert shown(payload).strip()
        assert units(shown(payload)) <= LIMITS[channel.platform]


@pytest.mark.parametrize("channel", CHANNELS, ids=lambda channel: channel.platform)
def test_a_long_reply_is_split_between_words_in_order(channel: Channel) -> None:
    text = "\n\n".join(" ".join(f"word{n}x{m}" for m in range(90)) + "." for n in range(40))
    payloads = channel.render(text)
    assert len(payloads) > 5
    assert " ".join(" ".join(map(shown, payloads)).split()) == " ".join(text.split())
    assert all(len(shown(payload)) <= LIMITS[channel.platform] for payload in payloads)


@pytest.mark.parametrize("channel", [Slack(), WhatsApp()], ids=lambda channel: channel.platform)
def test_long_code_becomes_several_code_blocks(channel: Channel) -> None:
    code = "\n".join(f"    line {n:04} < 1" for n in range(2000))
    payloads = [shown(payload) for payload in channel.render(f"See:\n\n```python\n{code}\n```\n\nDone.")]
    assert len(payloads) > 5
    assert all(payload.count("```") % 2 == 0 for payload in payloads)
    lines = [line for payload in payloads for line in payload.splitlines() if line.startswith("    line")]
    assert [line.replace("&lt;", "<") for line in lines] == code.splitlines()


def test_escaping_counts_toward_the_limit() -> None:
    payloads = [shown(payload) for payload in Slack().render("<&>" * 3000)]
    assert max(map(len, payloads)) <= 4000
    # No escape is cut in two.
    assert "".join(payloads) == "&lt;&amp;&gt;" * 3000


def test_telegram_messages_have_at_most_a_hundred_entities() -> None:
    payloads = [json.loads(payload) for payload in Telegram().render("**a** b " * 250)]
    assert [len(payload["entities"]) for payload in payloads] == [100, 100, 50]


@pytest.mark.parametrize(
    "text", ["[" * 40_000, "![" * 20_000, "*a " * 15_000, "`a" * 20_000, "> a\n" * 4_000, "a\n\n" * 3_000]
)
def test_hostile_texts_are_rendered_quickly(text: str) -> None:
    began = time.process_time()
    for channel in CHANNELS:
        channel.render(text)
    assert time.process_time() - began < 10


@settings(max_examples=60, deadline=None)
@given(blocks=BLOCKS, limit=st.integers(4, 60))
def test_splitting_loses_nothing_but_white_space_and_keeps_the_limit(blocks: list[Block], limit: int) -> None:
    pieces = list(split([block for block in blocks if block.text.strip()], plain_size, Size(limit)))
    assert ink("".join(block.text for piece in pieces for block in piece)) == ink(
        "".join(block.text for block in blocks)
    )
    for piece in pieces:
        assert sum(len(block.text) for block in piece) + 2 * (len(piece) - 1) <= limit


@settings(max_examples=60, deadline=None)
@given(blocks=BLOCKS, limit=st.integers(8, 80))
def test_every_entity_covers_text_and_whole_characters(blocks: list[Block], limit: int) -> None:
    for piece in split([block for block in blocks if block.text.strip()], measure, Size(limit, ranges=6)):
        message = compose(piece)
        wide = message["text"].encode("utf-16-le")
        assert len(wide) // 2 <= limit
        assert len(message.get("entities", ())) <= 6
        for entity in message.get("entities", ()):
            covered = wide[entity["offset"] * 2 : (entity["offset"] + entity["length"]) * 2]
            assert len(covered) == entity["length"] * 2 > 0
            assert covered.decode("utf-16-le").strip()


def test_graphemes_are_not_split() -> None:
    family, flag, accent = "👩\u200d👩\u200d👧", "🇩🇪", "e\u0301"
    for character in (family, flag, accent, "👍🏽"):
        block = Block("text", (Span(character * 6),))
        pieces = [piece.text for piece in cut(block, plain_size, Size(len(character) + 1))]
        assert pieces == [character] * 6


def test_a_split_prefers_lines_then_sentences_then_words() -> None:
    def first(text: str, limit: int) -> str:
        return next(cut(Block("text", (Span(text),)), plain_size, Size(limit))).text

    assert first("one two\nthree four five", 14) == "one two"
    assert first("One two. Three four five six", 14) == "One two."
    assert first("one two three four", 12) == "one two"
    assert first("abcdefghij", 4) == "abcd"


def test_styles_continue_after_a_split() -> None:
    (block,) = markdown.parse_markdown("**one two three four**")
    pieces = list(cut(block, plain_size, Size(9)))
    assert [(piece.text, piece.spans[0].styles) for piece in pieces] == [
        ("one two", frozenset({"bold"})),
        ("three", frozenset({"bold"})),
        ("four", frozenset({"bold"})),
    ]
