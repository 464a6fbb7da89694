"""Rules for secrets that are recognised by a name: a password in a setting, a token in a query, a cookie in a header.

The same names apply in text (`password = "…"`, `api_key=…`) and in structured values, where a quote follows them. The
end of a name counts, in any case and with any separator: `DB_PASSWORD` and `userPassword` match, `token_count`,
`max_tokens` and `public_key` do not. An unquoted value is masked only if it does not look like a word, except directly
after `password=`, where a word is a password unless it is a name in code (`password=userPassword`).
"""

from __future__ import annotations

from functools import lru_cache

from threadline.core.masking.matcher import find
from threadline.core.masking.normal_form import normal_bytes
from threadline.core.masking.patterns import Rule, Run, Secret, Step, Word, mixed, tail
from threadline.core.masking.rules import ALNUM, BEARER, BEARER_TAIL, BLANK, NO_TAIL

_BARE = "[A-Za-z0-9._~+/=#@^*%!?:-]"
_BARE_TAIL = tail("(?:[A-Za-z0-9_~+/=#@^*%-]|[.:!?](?=[A-Za-z0-9_~+/=#@^*%-]))*+", unfinished=r"[.:!?]\Z")
_HEADER_TAIL = tail(r"""[^\r\n"'\x1e]*+""")
_LONGEST_NAME = 128

# Variables, templates, placeholders and masks are not secrets, and neither is an authentication scheme alone.
_PLACEHOLDER = r"[ \t\r\n:=>`]{0,5}\[masked:|\$\{|\$[A-Z_]|\{|<|\*\*\*|\.\.\.|(?i:your)[-_ ]"
# `credentials: 'include'` is an option of the browser's `fetch`.
HARMLESS_VALUES = {"credential": ("include", "omit", "same-origin")}
_FETCH_OPTIONS = f"(?:{'|'.join(HARMLESS_VALUES['credential'])})['\"\\x1e]"
_NO_PLACEHOLDER = rf"""(?!{_PLACEHOLDER}|{_FETCH_OPTIONS}|(?i:bearer|basic|token) {{0,2}}(?:["'\x1e]|{_PLACEHOLDER}))"""
_PLACEHOLDER_REACH = 24
_TO_VALUE: tuple[Step, ...] = (Run("[:=]", 1, 2), Run("[>]", 0, 1), Run(BLANK, 0, 3))


def _quoted(quote: str, closing: str) -> Secret:
    # A quote directly after the opening quote closes an empty value.
    value = Run(rf"[^{closing}\"\x1e]", 1, 1, _NO_PLACEHOLDER, _PLACEHOLDER_REACH)
    return Secret((value,), tail(f"[^{closing}]*+"), lead=(*_TO_VALUE, Run(f"[{quote}]", 1, 1)))


def _bare(separator: str, blanks: int, least: int) -> Secret:
    return Secret((mixed(_BARE, least, 32),), _BARE_TAIL, lead=(Run(separator, 1, 1), Run(BLANK, 0, blanks)))


# Letters alone, but not words: twice two capitals with at most one letter between them, which no name in code has.
_RANDOM_LETTERS = Secret(
    (Run(ALNUM, 20, 20, f"(?=(?:{ALNUM}{{0,28}}?[a-z][A-Z][a-z]?[A-Z]){{2}})", 64, f"{ALNUM}{{20,}}"),),
    _BARE_TAIL,
    lead=(Run("[:=]", 1, 1), Run(BLANK, 0, 3)),
)

_VALUES = (
    _quoted('"', '"'),
    _quoted(r"\x1e", r'"\x1e'),
    _quoted("'", "'"),
    _bare("[=]", 1, 6),
    _bare("[:]", 3, 8),
    _RANDOM_LETTERS,
)
# Not a word that says something about a password, not a name in code, and not the start of an expression.
_NO_PASSWORDS = (
    *("required", "optional", "true", "false", "null", "none", "undefined", "hidden", "prompt", "missing", "invalid"),
    *("incorrect", "wrong", "changed", "empty", "unknown", "default", "entered", "given", "password", "passwd", "pass"),
    *("passphrase", "passcode", "pwd", "secret", "token", "key", "value", "input", "field", "text", "name", "string"),
    *("hash", "env", "str", "secretstr", "object", "number", "boolean"),
)
_WORD_PASSWORD = Secret(
    (
        Run(
            "[A-Za-z]",
            5,
            64,
            rf"(?![A-Za-z]{{0,24}}?(?i:{'|'.join(_NO_PASSWORDS)})(?![A-Za-z]))(?=[A-Za-z]{{5,64}}(?![A-Za-z0-9._(\[-]))",
            66,
            "[A-Za-z]{5,}",
        ),
    ),
    NO_TAIL,
    lead=("=",),
)
_PIN = Secret(
    (Run("[0-9]", 4, 12, "(?=[0-9]{4,12}(?![0-9A-Za-z]))", 13, "[0-9]{4,}"),),
    NO_TAIL,
    lead=(Run("[:=]", 1, 2), Run("[>]", 0, 1), Run(BLANK, 0, 3), Run(r"""["'\x1e]""", 0, 1)),
)
_COOKIE_VALUES = Secret(
    (Run("[A-Za-z0-9_.-]", 1, 64), "=", Run(r"""[^\x00-\x20;"'\x1e]""", 4, 4)),
    _HEADER_TAIL,
    lead=(":", Run(BLANK, 0, 3)),
)


def _authorization(schemes: tuple[str, ...], value: Run) -> Secret:
    to_value = (Run("[:=]", 1, 1), Run(BLANK, 0, 3), Word(schemes), Run(BLANK, 1, 3))
    return Secret((value,), BEARER_TAIL, lead=to_value)


_AUTHORIZATION_VALUES = (
    _authorization(("basic", "digest", "negotiate"), Run(BEARER, 8, 8)),
    _authorization(("bearer", "token", "apikey", "bot"), mixed(BEARER, 8, 24)),
)

_OF_A_KEY = (
    *("api", "access", "secret", "private", "signing", "encryption", "master", "auth", "ssh", "deploy", "webhook"),
    *("admin", "openai", "anthropic", "stripe", "account", "subscription"),
)
_ONLY_SUCH_KEYS = f"(?:{'|'.join(f'(?<=(?i:{word}))|(?<=(?i:{word})[_. -])' for word in _OF_A_KEY)})"
# Page tokens and tokens of a model's vocabulary are not secrets.
_OTHER_TOKENS = ("page", "next", "ation", "sync", "stop", "eos", "bos", "pad", "unk", "sep", "cls", "mask", "special")
_NO_SUCH_TOKENS = "".join(f"(?<!(?i:{word}))(?<!(?i:{word})[_. -])" for word in _OTHER_TOKENS)

# `PWD` alone is the working directory; `db_pwd` and `userPwd` are passwords.
_PART_OF_A_NAME = "(?:(?<=[A-Za-z0-9][_. -])|(?<=[a-z])(?=P))"
# `pin`, `card_pin` and `userPin`, but not the end of `spin`.
_WHOLE_PIN = "(?:(?<![A-Za-z0-9])|(?<=[a-z])(?=P))"

# kind, words, look-behind, values tried before the usual ones
_NAMES: tuple[tuple[str, tuple[str, ...], str, tuple[Secret, ...]], ...] = (
    ("password", ("password", "passwd", "passphrase", "passcode"), "", (_WORD_PASSWORD,)),
    ("password", ("pwd",), _PART_OF_A_NAME, (_WORD_PASSWORD,)),
    ("pin", ("pin",), _WHOLE_PIN, (_PIN,)),
    ("credential", ("credential",), "", ()),
    ("secret", ("secret", "secretstring"), "", ()),
    ("token", ("token",), _NO_SUCH_TOKENS, ()),
    ("api-key", ("key",), _ONLY_SUCH_KEYS, ()),
    ("authorization", ("authorization",), "", _AUTHORIZATION_VALUES),
    ("cookie", ("cookie",), "", (_COOKIE_VALUES,)),
    ("jwt", ("jwt",), "(?<![A-Za-z0-9])", ()),
)
_PLURALS = frozenset(("password", "secret", "api-key", "cookie", "credential"))
# Their values are only those that are listed with the name.
_OWN_VALUES_ONLY = frozenset(("pin",))


def _plural(kind: str) -> Word:
    return Word(("s", "")) if kind in _PLURALS else Word(("",))


NAMED_RULES: tuple[Rule, ...] = tuple(
    Rule(
        kind,
        words,
        more if kind in _OWN_VALUES_ONLY else more + _VALUES,
        lead=(_plural(kind), Run("[0-9_]", 0, 2), Run(r"""["'`\x1e]""", 0, 1), Run(BLANK, 0, 3)),
        behind=behind,
        any_case=True,
        masks_anchor=False,
    )
    for kind, words, behind, more in _NAMES
)

_QUOTE = Run(r'["\x1e]', 1, 1)
_TO_KEY_END: tuple[Step, ...] = (_QUOTE, Run(BLANK, 0, 3), ":")


def _quoted_names(*end: Step) -> tuple[Rule, ...]:
    between = Run(r"[ \t\r\n0-9_.:*-]", 0, 3)
    return tuple(
        Rule(kind, words, (Secret((_plural(kind), between, *end), NO_TAIL),), behind=behind, any_case=True)
        for kind, words, behind, _ in _NAMES
    )


QUOTED_NAME_RULES = _quoted_names(_QUOTE)
KEY_RULES = _quoted_names(*_TO_KEY_END)
VALUE_KEY_RULE = Rule("value", ("value",), (Secret(_TO_KEY_END, NO_TAIL),), behind='(?<=["\x1e])')


@lru_cache(maxsize=4096)
def _kind_of(name: str) -> str | None:
    view = normal_bytes(name.encode("utf-8", "surrogatepass")) + b'"'
    kinds = [found.rule.kind for found in find(view, QUOTED_NAME_RULES) if found.end == len(view)]
    return kinds[0] if kinds else None


def kind_of_name(name: str) -> str | None:
    """The kind of secret that a value under this name is; None for other names."""
    return _kind_of(name[-_LONGEST_NAME:])
