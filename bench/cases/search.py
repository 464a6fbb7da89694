"""Searching a large history: words that are rare, frequent, together, or nowhere.

Messages are questions of 200 characters, so that a million of them are written in a minute; the words searched for
are marks put among the others at known places.
"""

from __future__ import annotations

import itertools
import random
from functools import partial

from bench.arena import Arena
from bench.budgets import OURS, SEARCH
from bench.contenders.ours import ThreadlineLibrary, place_for_ours
from bench.measure import Operation, interleave
from bench.results import Row, timing
from bench.workload import SEED, commonest_word, prose
from threadline.core.messages import NewMessage, user

MESSAGES_PER_THREAD = 1_000
TEXT = 200
RARE = "quetzalcoatlus"


async def search(arena: Arena) -> list[Row]:
    """Searches in 1,000,000 messages of 200 characters in 1,000 threads of one owner: a word that ten messages hold,
    two words together, words in one message of a hundred and in two of three, and an unused word; words that are being
    typed, a text without spaces, and a title; single messages, and grouped by thread as the page shows them. People
    search while they type, so every keystroke waits for this."""
    ours = await ThreadlineLibrary.open(await place_for_ours(arena))
    total = arena.sized(1_000_000, 20_000)
    await _fill(ours, total)
    await ours.rest()
    await arena.settle()
    queries = {
        "a rare word": RARE,
        "two words": f"{RARE} {_SECOND}",
        "a word in one of a hundred": _HUNDREDTH,
        "a word in two of three": commonest_word(),
        "a word nobody used": "archaeopteryx",
        "the beginning of a rare word": RARE[:6],
        "two letters": commonest_word()[:2],
        "a text without spaces": _CHINESE[2:6],
        "a frequent word without spaces": _CHINESE_HUNDREDTH,
    }
    operations: dict[str, Operation] = {name: partial(ours.user.search, query) for name, query in queries.items()}
    operations |= {f"{name}, by thread": partial(ours.user.search_threads, query) for name, query in queries.items()}
    # Only threads have titles.
    operations["a title, by thread"] = partial(ours.user.search_threads, f"{_TITLE} 7")
    taken = await interleave(operations, rounds=arena.sized(10, 5), repeats=2)
    await ours.close()
    return [timing(SEARCH, OURS, samples, at=f"{total:,} messages, {name}") for name, samples in taken.items()]


_SECOND = "pterodactyl"
_HUNDREDTH = "plesiosaur"
_CHINESE = "\u6211\u4eec\u660e\u5929\u53bb\u5317\u4eac\u770b\u957f\u57ce"
"""We go to Beijing tomorrow to see the Great Wall."""
_CHINESE_HUNDREDTH = "\u8c22\u8c22"
_TITLE = "ichthyosaurs"


async def _fill(ours: ThreadlineLibrary, total: int) -> None:
    draw = random.Random(SEED)  # noqa: S311 - the same text in every run is the point
    texts = [prose(draw, TEXT) for _ in range(5_000)]
    for first in range(0, total, MESSAGES_PER_THREAD):
        thread = ours.add(await ours.user.create_thread(title=f"{_TITLE} {first // MESSAGES_PER_THREAD}"))
        messages = [_message(number, texts, total) for number in range(first, min(first + MESSAGES_PER_THREAD, total))]
        await thread.append(*messages)


def _message(number: int, texts: list[str], total: int) -> NewMessage:
    marks = itertools.compress(
        (RARE, _SECOND, _HUNDREDTH, _CHINESE, _CHINESE_HUNDREDTH),
        (
            number % (total // 10) == 7,
            number % (total // 5) == 7,
            number % 100 == 50,
            number % (total // 10) == 9,
            number % 100 == 51,
        ),
    )
    return user(" ".join((texts[number % len(texts)], *marks)))
