"""The secrets that are known by their own shape: a vendor's prefix, a token format, a key block.

Lengths are on the low side where the prefix tells enough, so that half a secret is masked as well. Where the prefix is
an English word the rest has to look like no word does. Tails take every letter and digit that follows, which is what
makes masking twice the same as masking once; for the same reason a lead is too short to hold a secret of its own. Left
out: secrets without a shape or a name, and any that are encrypted.
"""

from __future__ import annotations

from threadline.core.masking.patterns import Rule, Run, Secret, Several, Step, Word, mixed, tail

ALNUM = "[A-Za-z0-9]"
BASE64 = "[A-Za-z0-9+/_-]"
BLANK = r"[ \t\r\n]"
BEARER = "[A-Za-z0-9._~+/=-]"
WORD = "[A-Za-z0-9_-]"
_AWS = "[A-Za-z0-9/+]"
_PEM = "[A-Za-z0-9+/=]"

UNBROKEN = "(?<![A-Za-z0-9])"
# Letters and digits alone also stand in the middle of images and other base64.
_NOT_BASE64 = "(?<![A-Za-z0-9+/])"

BASE64_TAIL = tail("[A-Za-z0-9+/_=-]*+")
# Nothing follows a tail, so its groups need not be possessive; before Python 3.11.5 those matched wrongly.
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

# Twenty characters with all of a lower-case letter, a capital and a digit are no slug, hyphens or not.
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
        # A word of sixteen letters exists ("key-responsibilities"), one of twenty-four hardly does.
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
        # Forty characters of hexadecimal are a commit, however secret.
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
        # As long as this, the user is a secret as well: `https://<token>:x-oauth-basic@…`.
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
    # What remains of such a key when a message began in the middle of it.
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
