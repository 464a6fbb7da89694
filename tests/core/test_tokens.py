"""The token estimate is cheap, grows with the text, and is rather too high than too low."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadline.core.parts import FilePart, TextPart, tool_part
from threadline.core.prompts import PromptMessage, say
from threadline.core.tokens import estimate, message_tokens, total_tokens


@pytest.mark.parametrize(
    ("text", "cl100k"),
    [
        # Counted once with the vocabulary itself.
        ("The quick brown fox jumps over the lazy dog.", 10),
        ("def ends(line: str) -> list[int]:\n    return [match.end() for match in re.finditer(PATTERN, line)]\n", 27),
        ("在网页上开始的对话可以在其他地方继续, 任何内容都不会丢失、重复或被伪造。", 38),
        ("Разговор, начатый на веб-странице, продолжается в другом месте, и ничего из него не теряется.", 40),
    ],
)
def test_the_estimate_is_above_a_real_count_and_within_twice_of_it(text: str, cl100k: int) -> None:
    assert cl100k <= estimate(text) <= 2 * cl100k


@given(st.text(), st.text())
def test_more_text_never_has_fewer_tokens_and_empty_text_has_none(one: str, other: str) -> None:
    assert estimate("") == 0
    assert max(estimate(one), estimate(other)) <= estimate(one + other) <= estimate(one) + estimate(other)
    assert (estimate(one) == 0) == (one == "")


def test_every_part_of_a_prompt_counts_and_the_counter_can_be_replaced() -> None:
    empty = message_tokens(PromptMessage("user", ()))
    assert message_tokens(say("user", "abcd"), len) == empty + 4
    assert (
        message_tokens(PromptMessage("assistant", (tool_part("t", "c", {"k": 1}, output="x" * 100),)), len)
        > empty + 100
    )
    assert message_tokens(PromptMessage("user", (FilePart("image/png", "data:image/png;base64,AAAA"),))) > 1_000
    text_file = FilePart("text/plain", "data:text/plain;base64," + "A" * 4_000)
    assert 1_000 <= message_tokens(PromptMessage("user", (text_file,))) <= 1_100
    link = FilePart("application/pdf", "https://example.org/" + "a" * 4_000)
    assert message_tokens(PromptMessage("user", (link,))) < 50
    assert total_tokens([say("user", "a"), PromptMessage("user", (TextPart("b"),))], len) == 2 * empty + 2
