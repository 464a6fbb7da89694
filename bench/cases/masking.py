"""Masking: what it adds to every text that is stored, with RE2 and without.

The measurement is `bench.masking`'s own, in processor time of one thread; this puts it among the results.
"""

from __future__ import annotations

from bench import masking
from bench.arena import Arena
from bench.budgets import MASKING, MASKING_MESSAGE, OURS
from bench.results import Row

WITHOUT_RE2 = "Threadline, without RE2"
UNMASKED = "Threadline, masking off"


async def mask(arena: Arena) -> list[Row]:
    """Megabytes of chat masked in a second, and microseconds to seal a message of 2 kB with masking and without.
    Every text that is stored passes the masker, so a slow one would be felt in every turn."""
    found = masking.run()
    unmasked = found["seal 2 kB, µs, without"]
    sealing = {OURS: found["seal 2 kB, µs, re2"], WITHOUT_RE2: found["seal 2 kB, µs, literals"], UNMASKED: unmasked}
    return [
        Row(MASKING.name, OURS, "MB/s", found["text, MB/s, re2"]),
        Row(MASKING.name, WITHOUT_RE2, "MB/s", found["text, MB/s, literals"]),
        *(
            Row(MASKING_MESSAGE.name, name, "µs", value, ratio=value / unmasked, against=UNMASKED)
            for name, value in sealing.items()
        ),
    ]
