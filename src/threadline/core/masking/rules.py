"""Rules for secrets that are recognised by their form: a vendor's prefix, a token format, a key block; also in base64.

Minimum lengths are low where the prefix is distinctive, so that half a secret is masked too. Where the prefix is an
English word, the rest must not look like a word. Tails include every letter and digit that follows, so that masking
twice gives the same result as masking once; for the same reason a lead is too short to contain a secret. Not covered:
secrets without a form or a name, and encrypted ones.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from functools import cache

from threadline.core.masking.patterns import Rule, Run, Secret, Several, Step, Word, mixed, tail

ALNUM = "[A-Za-z0-9]"
BLANK = r"[ \t\r\n]"
BEARER = "[A-Za-z0-9._~+/=-]"
WORD = "[A-Za-z0-9_-]"
_AWS = "[A-Za-z0-9/+]"
_PEM = "[A-Za-z0-9+/=]"

UNBROKEN = "(?<![A-Za-z0-9])"
# Letters and digits alone also occur inside images and other base64.
_NOT_BASE64 = "(?<![A-Za-z0-9+/])"

BASE64_TAIL = tail("[A-Za-z0-9+/_=-]*+")
# A tail is the end of a match, so its groups need not be possessive; before Python 3.11.5 those matched wrongly.
BEARER_TAIL = tail("(?:[A-Za-z0-9_~+/=-]|[.:](?=[A-Za-z0-9_~+/=-]))*", unfinished=r"[.:]\Z")
WORD_TAIL = tail("[A-Za-z0-9_-]*+")
NO_TAIL = tail("")
_PEM_TAIL = tail(
    rf"{_PEM}*+(?:{BLANK}{{1,8}}+{_PEM}{{16,}}+)*",
    *(Run(BLANK, 0, 8), Run(_PEM, 0, 15), Run(BLANK, 0, 8), "-----END ", Run("[A-Z ]", 0, 40), "-----"),
)


def _prefix(kind: str, *anchors: str, chars: str = ALNUM, least: int = 20, behind: str = UNBROKEN) -> Rule:
    return Rule(kind, anchors, (Secret((Run(chars, least, least),), WORD_TAIL),), behind=behind)


# One or two short words may come before the key itself: `sk-live-…`, `api-key-v1-…`.
_SHORT_WORDS = Several((Run(ALNUM, 2, 12), "-"), 2)

# Twenty characters with a lower-case letter, a capital and a digit are not a slug, with or without hyphens.
_SCRAMBLED = Run(WORD, 20, 20, "".join(f"(?={WORD}{{0,19}}{one})" for one in ("[a-z]", "[A-Z]", "[0-9]")), 20)

_GENERIC_KEYS = (
    Rule(
        "api-key",
        ("sk-",),
        (Secret((_SHORT_WORDS, Run(ALNUM, 16, 16)), WORD_TAIL), Secret((_SCRAMBLED,), WORD_TAIL)),
        behind=UNBROKEN,
    ),
    Rule(
        "api-key",
        ("key-", "token-", "api-"),
        # There are words of sixteen letters ("key-responsibilities"), but hardly any of twenty-four.
        tuple(Secret((_SHORT_WORDS, key), WORD_TAIL) for key in (mixed(ALNUM, 16, 16), Run("[A-Za-z]", 24, 24))),
        behind=UNBROKEN,
        any_case=True,
    ),
)

_AWS_KEYS = (
    Rule(
        "aws-key",
        ("AKIA", "ASIA", "ABIA", "ACCA"),
        (
            Secret((Run("[A-Z0-9]", 16, 16), Run(r"[ \t\r\n:,;|/]", 1, 4), Run(_AWS, 40, 40)), BASE64_TAIL),
            Secret((Run("[A-Z0-9]", 16, 16),), WORD_TAIL),
        ),
        behind=_NOT_BASE64,
    ),
    Rule(
        "aws-secret",
        ("secret", "aws"),
        # Forty hexadecimal digits are a commit id.
        (Secret((Run(_AWS, 40, 40, f"(?![0-9a-f]{{40}})(?={_AWS}{{0,39}}[0-9])", 40),), BASE64_TAIL),),
        lead=(Run("[A-Za-z_ -]", 0, 16), Run(r"""[ \t\r\n"'`:=>\x1e]""", 1, 6)),
        any_case=True,
        masks_anchor=False,
    ),
)

_BEARER_TOKEN = Rule(
    "bearer-token",
    ("bearer",),
    (
        Secret((mixed(BEARER, 16, 24),), BEARER_TAIL),
        Secret((Run(ALNUM, 24, 24),), BEARER_TAIL),
    ),
    lead=(Run(r"[ \t\r\n+:]", 1, 4),),
    behind=UNBROKEN,
    any_case=True,
    masks_anchor=False,
)

_USER = r"""[^\x00-\x20"'<>/:=@\[\\\x1e]"""
_PASSWORD = Run(r"""[^\x00-\x20"'<>/\\\x1e]""", 1, 256, r"(?!\[masked:)", 8)
_URL_PASSWORD = Rule(
    "url-password",
    ("://",),
    (
        Secret((_PASSWORD,), NO_TAIL, lead=(Run(_USER, 0, 15), ":"), trail=("@",)),
        # A user name of this length is a secret too: `https://<token>:x-oauth-basic@…`.
        Secret((Run(_USER, 16, 256), ":", _PASSWORD), NO_TAIL, trail=("@",)),
    ),
    masks_anchor=False,
)

_JWT = Rule(
    "jwt",
    ("eyJ",),
    (Secret((Run(WORD, 16, 1000), ".", Run(WORD, 4, 4)), BEARER_TAIL),),
    behind="(?<![A-Za-z0-9_-])",
)


def _key_block(headers: int) -> Secret:
    header: tuple[Step, ...] = (Run("[A-Za-z-]", 3, 16), ":", Run(r"[^\r\n]", 1, 100), Run(BLANK, 1, 8))
    kinds = Word(("", "RSA ", "EC ", "DSA ", "OPENSSH ", "ENCRYPTED ", "PGP ", "SSH2 ENCRYPTED "))
    begin: tuple[Step, ...] = (kinds, "PRIVATE KEY", Word(("-----", " BLOCK-----")), Run(BLANK, 0, 8))
    return Secret(begin + header * headers + (Run(_PEM, 16, 16),), _PEM_TAIL)


_PRIVATE_KEY = Rule("private-key", ("-----BEGIN ",), tuple(_key_block(headers) for headers in range(4)))

_WEBHOOKS = (
    Rule(
        "slack-webhook",
        ("hooks.slack.com/services/", "hooks.slack.com/workflows/"),
        (Secret((Run("[A-Za-z0-9/]", 20, 20),), tail("[A-Za-z0-9/_-]*+")),),
        masks_anchor=False,
    ),
    Rule(
        "telegram-token",
        (":AA",),
        (Secret((Run(WORD, 32, 32),), WORD_TAIL),),
        behind="(?<=[0-9]{8})",
        masks_anchor=False,
    ),
)

RULES: tuple[Rule, ...] = (
    _prefix("anthropic-key", "sk-ant-", chars=WORD, least=16),
    _prefix("openai-key", "sk-proj-", "sk-svcacct-", "sk-admin-", chars=WORD, least=16),
    _prefix("openrouter-key", "sk-or-v1-"),
    # The rest of such a key, for messages that start in the middle of one.
    _prefix("anthropic-key", "api03-", "admin01-", chars=WORD, least=24),
    _prefix("openai-key", "T3BlbkFJ", chars=WORD, least=16, behind=""),
    *_GENERIC_KEYS,
    *_AWS_KEYS,
    _BEARER_TOKEN,
    _URL_PASSWORD,
    _prefix("github-token", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", least=16),
    _prefix("github-token", "github_pat_", chars="[A-Za-z0-9_]", least=20),
    # Threadline's own: tl_<tenant>_<secret>.
    Rule(
        "threadline-token",
        ("tl_",),
        (Secret((Run("[a-z0-9-]", 1, 63), "_", Run("[0-9a-f]", 32, 32)), WORD_TAIL),),
        behind=UNBROKEN,
    ),
    _prefix("gitlab-token", "glpat-", chars=WORD, least=16),
    _prefix("slack-token", "xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xoxe-", "xoxo-", chars=WORD, least=16),
    _prefix("slack-token", "xapp-", chars=WORD, least=20),
    _JWT,
    _PRIVATE_KEY,
    *_WEBHOOKS,
    _prefix("google-key", "AIza", chars=WORD, least=30, behind=_NOT_BASE64),
    _prefix("google-key", "ya29.", "GOCSPX-", chars=WORD),
    _prefix("stripe-key", "sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_", least=16),
    _prefix("npm-token", "npm_", least=30),
    _prefix("pypi-token", "pypi-AgE", chars=WORD, least=30),
    _prefix("huggingface-token", "hf_", least=30),
    Rule("sendgrid-key", ("SG.",), (Secret((Run(WORD, 16, 16),), BEARER_TAIL),), behind=UNBROKEN),
    _prefix("twilio-key", "SK", chars="[0-9a-f]", least=32),
    _prefix("groq-key", "gsk_", least=30),
    _prefix("digitalocean-token", "dop_v1_", "doo_v1_", chars="[0-9a-f]", least=40),
    _prefix("shopify-token", "shpat_", "shpss_", chars="[0-9a-fA-F]", least=24),
    _prefix("linear-key", "lin_api_", least=30),
    _prefix("age-key", "AGE-SECRET-KEY-1", chars="[A-Z0-9]", least=40),
)


# Secrets inside base64. Three bytes become four characters, so a prefix has three encoded spellings, one per offset in
# a group of three, without the characters it shares with its neighbours. The bytes after the prefix allow only some
# characters in each place: random data (an image) matches a spelling every few hundred kilobytes, but never the
# characters after it as well.
_SHORTEST_SPELLING = 4
_FOLLOWING = 16
_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
# The URL-safe variant writes the last two differently.
_SPELLED = {62: "+-", 63: "/_"} | {value: chr(_ALPHABET[value]) for value in range(62)}

# prefixes, characters that follow
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
    """The bracket class of characters that six bits can encode, starting `skipped` bits into the byte `here`."""
    # Only a few bits of each byte count, so both sets are reduced before they are combined.
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
