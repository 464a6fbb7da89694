"""Rules for secrets that are recognised by their form: a vendor's prefix, a token format, a key block.

Minimum lengths are low where the prefix is distinctive, so that half a secret is masked too. Where the prefix is an
English word, the rest must not look like a word. Directly after a letter or digit (`tokenghp_…`) a prefix counts only
if no English word ends in it, and with the length of a whole secret. Tails include every letter and digit that follows,
so that masking twice gives the same result as masking once; for the same reason a lead is too short to contain a
secret. Not covered: secrets without a form or a name, and encoded ones: see
docs/decisions/2026-11-16-base64-is-not-decoded.md.
"""

from __future__ import annotations

from threadline.core.masking.patterns import Rule, Run, Secret, Several, Step, Word, mixed, tail

ALNUM = "[A-Za-z0-9]"
BLANK = r"[ \t\r\n]"
BEARER = "[A-Za-z0-9._~+/=-]"
WORD = "[A-Za-z0-9_-]"
_AWS = "[A-Za-z0-9/+]"
_PEM = "[A-Za-z0-9+/=]"

UNBROKEN = "(?<![A-Za-z0-9])"
# After a letter or digit too, but not inside an image or other base64, where any few letters occur by chance.
_GLUED = "(?:(?<![A-Za-z0-9])|(?<![A-Za-z0-9+/=_-]{16}))"

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


def scrambled(chars: str, count: int = 20) -> tuple[Run, Run, Run]:
    """`count` characters that are random and not a slug or a name in code: with a lower-case letter, a capital and a
    digit among the first 32; with three capitals after lower-case letters; or with two of those and two capitals in a
    row. Of ten million times 32 random characters of base64url, about three have none of these."""
    all_three = "".join(f"(?={chars}{{0,31}}{one})" for one in ("[a-z]", "[A-Z]", "[0-9]"))
    changes = f"(?=(?:{chars}{{0,28}}?[a-z][A-Z]){{3}})"
    capitals = f"(?=(?:{chars}{{0,28}}?[a-z][A-Z]){{2}})(?={chars}{{0,58}}[A-Z][A-Z])"
    loose = f"{chars}{{{count},}}"
    return (
        Run(chars, count, count, all_three, 32, loose),
        Run(chars, count, count, changes, 90, loose),
        Run(chars, count, count, capitals, 60, loose),
    )


_SCRAMBLED = tuple(Secret((run,), WORD_TAIL) for run in scrambled(WORD))

_GENERIC_KEYS = (
    Rule(
        "api-key",
        ("sk-",),
        (Secret((_SHORT_WORDS, Run(ALNUM, 16, 16)), WORD_TAIL), *_SCRAMBLED),
        behind=UNBROKEN,
    ),
    Rule(
        "api-key",
        ("key-", "token-", "api-"),
        (
            # There are words of sixteen letters ("key-responsibilities"), but hardly any of twenty-four.
            *[Secret((_SHORT_WORDS, key), WORD_TAIL) for key in (mixed(ALNUM, 16, 16), Run(ALNUM, 24, 24))],
            *_SCRAMBLED,
        ),
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
        behind=_GLUED,
    ),
    Rule(
        "aws-secret",
        ("secret", "aws"),
        (
            # Forty hexadecimal digits are a commit id.
            Secret((Run(_AWS, 40, 40, f"(?![0-9a-f]{{40}})(?={_AWS}{{0,39}}[0-9])", 40),), BASE64_TAIL),
            Secret((scrambled(_AWS, 40)[1],), BASE64_TAIL),
        ),
        lead=(Run("[A-Za-z_ -]", 0, 16), Run(r"""[ \t\r\n"'`:=>\x1e]""", 1, 6)),
        any_case=True,
        masks_anchor=False,
    ),
)

_BEARER_TOKEN = Rule(
    "bearer-token",
    ("bearer",),
    (
        Secret((mixed(BEARER, 16, 32),), BEARER_TAIL),
        Secret((Run(ALNUM, 24, 24),), BEARER_TAIL),
        *[Secret((run,), BEARER_TAIL) for run in scrambled(BEARER)],
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
    behind=_GLUED.replace("(?<![A-Za-z0-9])", "(?<![A-Za-z0-9_-])"),
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

_AZURE = (
    Rule(
        "azure-key",
        ("accountkey=", "sharedaccesskey="),
        (Secret((Run(_AWS, 20, 20),), BASE64_TAIL),),
        any_case=True,
        masks_anchor=False,
    ),
    # A shared access signature, in a URL or a connection string.
    Rule(
        "azure-key",
        ("sig=",),
        (Secret((Run(_AWS, 40, 40),), BASE64_TAIL),),
        behind="(?<=[?&;])",
        masks_anchor=False,
    ),
    # The secret of an application in Entra ID: three characters, a digit and this.
    Rule(
        "azure-key",
        ("6Q~", "7Q~", "8Q~", "9Q~"),
        (Secret((Run("[A-Za-z0-9_.~-]", 31, 31),), tail("[A-Za-z0-9_.~-]*+")),),
        behind="(?<=[A-Za-z0-9_.~-]{3})",
    ),
)


def _glued(kind: str, *anchors: str, chars: str = ALNUM, least: int = 30) -> Rule:
    return _prefix(kind, *anchors, chars=chars, least=least, behind=_GLUED)


# Whole secrets directly after a letter or digit.
_GLUED_KEYS = (
    _glued("anthropic-key", "sk-ant-api03-", "sk-ant-admin01-", "sk-ant-oat01-", chars=WORD),
    _glued("github-token", "ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
    _glued("github-token", "github_pat_", chars="[A-Za-z0-9_]"),
    _glued("gitlab-token", "glpat-", chars=WORD, least=20),
    _glued("slack-token", "xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xoxe-", "xoxo-", chars=WORD, least=20),
    _glued("google-key", "AIzaSy", chars=WORD),
    _glued("npm-token", "npm_"),
    _glued("pypi-token", "pypi-AgE", chars=WORD),
    _glued("huggingface-token", "hf_"),
    _glued("groq-key", "gsk_"),
    _glued("digitalocean-token", "dop_v1_", "doo_v1_", chars="[0-9a-f]", least=40),
    _glued("shopify-token", "shpat_", "shpss_", chars="[0-9a-fA-F]"),
    _glued("linear-key", "lin_api_"),
    _glued("age-key", "AGE-SECRET-KEY-1", chars="[A-Z0-9]", least=40),
    Rule("sendgrid-key", ("SG.",), (Secret((Run(WORD, 22, 22), ".", Run(WORD, 43, 43)), WORD_TAIL),), behind=_GLUED),
    Rule(
        "stripe-key",
        ("sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_"),
        (Secret((mixed(ALNUM, 24, 24),), WORD_TAIL),),
        behind=_GLUED,
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
    _prefix("google-key", "AIza", chars=WORD, least=30, behind="(?<![A-Za-z0-9+/])"),
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
    *_AZURE,
    *_GLUED_KEYS,
)
