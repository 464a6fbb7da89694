"""Secrets in base64: found by what their first letters become, and by what can follow them.

Three bytes become four characters, so a literal inside encoded text has three spellings, one for each byte of a group
it can begin at, less the characters it shares with a neighbour. The bytes of a secret that follow allow only some
characters in each place. Images meet a spelling by chance every few hundred kilobytes, and such a row after it never.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from functools import cache

from threadline.core.masking.patterns import Rule, Run, Secret
from threadline.core.masking.rules import ALNUM, BASE64_TAIL, BEARER, WORD

_SHORTEST_SPELLING = 4
_FOLLOWING = 16
_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
# The variant for URLs writes the last two otherwise.
_SPELLED = {62: "+-", 63: "/_"} | {value: chr(_ALPHABET[value]) for value in range(62)}

# what a secret begins with, what follows
_SECRETS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("AKIA", "ASIA"), "[A-Z0-9]"),
    (("sk-ant-", "sk-proj-", "github_pat_", "glpat-", "xoxb-", "xoxp-", "AIza"), WORD),
    (("ghp_", "gho_", "ghs_", "sk_live_", "rk_live_", "npm_", "sk-", "key-", "token-", "api-"), ALNUM),
    (("eyJhbGciOi", "eyJ0eXAiOi", "eyJraWQiOi"), WORD),
    (("PRIVATE KEY-----",), r"[A-Za-z0-9+/=\r\n]"),
    (("Bearer ",), BEARER),
)


def _rule(literal: bytes, follow: frozenset[int], before: int) -> Rule:
    known = [*[frozenset(range(256))] * before, *[frozenset((byte,)) for byte in literal], *[follow] * _FOLLOWING]
    first, last = -(-8 * before // 6), 8 * (before + len(literal)) // 6
    spelling = base64.b64encode(bytes(before) + literal)[first:last].decode()
    places = (divmod(6 * place, 8) for place in range(last, 8 * len(known) // 6))
    steps = tuple(Run(_characters(skipped, *known[at : at + 2]), 1, 1) for at, skipped in places)
    return Rule("base64-secret", (spelling,), (Secret(steps, BASE64_TAIL),))


@cache
def _characters(skipped: int, here: frozenset[int], after: frozenset[int] = frozenset((0,))) -> str:
    """The class of characters that six bits can become that begin so many bits into a byte."""
    # Few bits of each byte count, so few values are left of either before the two are put together.
    borrowed = max(skipped - 2, 0)
    highs = {byte << skipped >> 2 & 63 for byte in here}
    lows = {byte >> (8 - borrowed) for byte in after}
    values = {high & -1 << borrowed | low for high in highs for low in lows}
    chars = "".join(_SPELLED[value] for value in sorted(values))
    return f"[{chars.replace('-', '')}{'-' if '-' in chars else ''}]"


def _all_rules() -> Iterable[Rule]:
    for literals, chars in _SECRETS:
        follow = frozenset(found.group()[0] for found in re.finditer(chars.encode(), bytes(range(256))))
        for literal in literals:
            for before in range(3):
                rule = _rule(literal.encode(), follow, before)
                if len(rule.anchors[0]) >= _SHORTEST_SPELLING:
                    yield rule


ENCODED_RULES: tuple[Rule, ...] = tuple(_all_rules())
