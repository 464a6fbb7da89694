"""The work: turns of realistic text, the same for every contender and in every run.

A turn is a question of 200 characters, an answer of 800 and one tool call whose part takes 1.3 kB as JSON. Words are
drawn from an invented vocabulary with the frequencies of a natural language, because text that compresses too well
would favour stores that compress, and random bytes would penalise them.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

SEED = 20261115
QUESTION = 200
ANSWER = 800
SNIPPET = 235
VOCABULARY = 20_000
MESSAGES_PER_TURN = 2

_ONSETS = ("b", "br", "c", "ch", "d", "dr", "f", "g", "gr", "h", "j", "l", "m", "n", "p", "r", "s", "st", "t", "v", "w")
_VOWELS = ("a", "e", "i", "o", "u", "ai", "ea", "ou")
_CODAS = ("", "", "", "n", "r", "l", "nd", "st")


class Turn(NamedTuple):
    question: str
    answer: str
    call_id: str
    query: str
    results: list[dict[str, Any]]

    @property
    def tool_input(self) -> dict[str, Any]:
        return {"query": self.query, "limit": len(self.results), "language": "en"}

    @property
    def tool_output(self) -> dict[str, Any]:
        return {"results": self.results, "total": 3 * len(self.results), "cached": False}


def turns(count: int, *, seed: int = SEED) -> list[Turn]:
    return list(itertools.islice(endless_turns(seed=seed), count))


def endless_turns(*, seed: int = SEED) -> Iterator[Turn]:
    draw = random.Random(seed)  # noqa: S311 - the same text in every run is the point
    for number in itertools.count():
        yield Turn(
            question=prose(draw, QUESTION),
            answer=prose(draw, ANSWER),
            call_id=f"call_{draw.randrange(16**24):024x}",
            query=prose(draw, 40),
            results=[_result(draw, 3 * number + place) for place in range(3)],
        )


def question_parts(turn: Turn) -> list[dict[str, Any]]:
    return [{"type": "text", "text": turn.question}]


def answer_parts(turn: Turn) -> list[dict[str, Any]]:
    tool = {
        "type": "tool-web_search",
        "toolCallId": turn.call_id,
        "state": "output-available",
        "input": turn.tool_input,
        "output": turn.tool_output,
    }
    return [tool, {"type": "text", "text": turn.answer}]


def prose(draw: random.Random, length: int) -> str:
    """Sentences of exactly so many characters."""
    words, weights = _vocabulary()
    text = ""
    while len(text) < length:
        sentence = " ".join(draw.choices(words, cum_weights=weights, k=draw.randint(6, 18)))
        text += sentence.capitalize() + ". "
    return text[: length - 1].rstrip(" .").ljust(length - 1, "e") + "."


def commonest_word() -> str:
    """Two of three texts of 200 characters hold it."""
    return _vocabulary()[0][0]


@cache
def _vocabulary() -> tuple[list[str], list[float]]:
    draw = random.Random(SEED)  # noqa: S311
    words: dict[str, None] = {}
    while len(words) < VOCABULARY:
        # Frequent words are short in every language; the list is in order of frequency.
        syllables = 1 + (len(words) > 150) + (draw.random() < 0.4)
        words["".join(_syllable(draw) for _ in range(syllables))] = None
    weights = itertools.accumulate(1 / (rank + 2.7) for rank in range(VOCABULARY))
    return list(words), list(weights)


def _syllable(draw: random.Random) -> str:
    return draw.choice(_ONSETS) + draw.choice(_VOWELS) + draw.choice(_CODAS)


def _result(draw: random.Random, number: int) -> dict[str, Any]:
    return {
        "title": prose(draw, 40),
        "url": f"https://example.org/{number}/{draw.randrange(10**8)}",
        "snippet": prose(draw, SNIPPET),
        "score": round(draw.random(), 4),
    }
