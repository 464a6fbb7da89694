"""Ids, keys and names: how they are generated and validated, and checks of free text.

Generated ids are 26 characters of Crockford base32: a 48-bit millisecond clock, a 16-bit counter and 64 random bits.
They sort by time, within one process strictly. Ids are ASCII, so that an id has only one spelling; names are for
people and may be any visible text, in Unicode's NFC.
"""

from __future__ import annotations

import re
import threading
import time
import unicodedata
from os import urandom

from threadline.core.errors import InvalidInput, InvalidName, InvalidText, LimitExceeded, quote

_CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"
# An id is generated for every message, so two characters (ten bits) are looked up at a time. The last sixty bits are
# random, so each of their characters can use five bits of its own random byte.
_PAIRS = [first + second for first in _CROCKFORD for second in _CROCKFORD]
_DIGITS = bytes(ord(_CROCKFORD[byte & 31]) for byte in range(256))
_KEY_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
_KEY_CHARACTERS = bytes(_KEY_ALPHABET[byte & 63] for byte in range(256))

_TENANT = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
ID_PATTERN = r"^[A-Za-z0-9._:-]{1,128}$"
STATE_KEY_PATTERN = r"^[A-Za-z0-9_-]{1,128}$"
"""The patterns as published in the API description, as JSON Schema."""
_ID = re.compile(ID_PATTERN, re.ASCII)
_STATE_KEY = re.compile(STATE_KEY_PATTERN, re.ASCII)
_GENERATED = re.compile(f"[{_CROCKFORD}]{{26}}")

_REGIONAL = "".join(map(chr, range(0x1F1E6, 0x1F200)))

NAME_LENGTH = 100
USER_ID_LENGTH = 256
THREAD_KEY_LENGTH = 256
TITLE_LENGTH = 100
_PIECE = 4 * TITLE_LENGTH
_CONTROLS_TO_BLANKS = dict.fromkeys((*range(32), 127), " ")

# `_last` must only grow: concurrent threads would otherwise generate ids out of order.
_id_lock = threading.Lock()
_last = 0


def new_id() -> str:
    """A time-ordered id, greater than every id that this process generated before."""
    global _last
    with _id_lock:
        tick = (time.time_ns() // 1_000_000) << 16
        if tick <= _last:
            tick = _last + 1
        _last = tick
    random = urandom(13)
    high, low, pairs = tick >> 26, (tick << 4) & 0x3FFFFFFF | random[0] & 15, _PAIRS
    return (
        f"{pairs[high >> 30]}{pairs[high >> 20 & 1023]}{pairs[high >> 10 & 1023]}{pairs[high & 1023]}"
        f"{pairs[low >> 20]}{pairs[low >> 10 & 1023]}{pairs[low & 1023]}{random[1:].translate(_DIGITS).decode()}"
    )


def new_state_key() -> str:
    """Never starts with a dash: a command line would parse it as an option."""
    while True:
        key = urandom(21).translate(_KEY_CHARACTERS).decode()
        if key[0] != "-":
            return key


def check_tenant_id(value: str) -> str:
    if not _TENANT.fullmatch(value):
        raise InvalidName(f"tenant id must match {_TENANT.pattern}, got {quote(value)}")
    return value


def check_user_id(value: str) -> str:
    _check_is_text("user id", value)
    if not value.strip() or len(value) > USER_ID_LENGTH or not value.isprintable():
        raise InvalidName(f"user id must be 1–{USER_ID_LENGTH} printable characters, got {quote(value)}")
    return value


def _check_is_text(what: str, value: object) -> None:
    # The type checker sees a string here; a caller without one may pass anything.
    if not isinstance(value, str):
        raise InvalidInput(f"{what} must be a string, got {type(value).__name__}")


def check_id(kind: str, value: str) -> str:
    """Ids of threads, messages, timelines, turns and agents."""
    _check_is_text(f"{kind} id", value)
    if not _ID.fullmatch(value.replace("_", "-")):
        raise InvalidName(f"{kind} id must match {ID_PATTERN[1:-1]}, got {quote(value)}")
    return value


def check_generated_id(kind: str, value: str) -> str:
    """An id from `new_id`. Where rows are paged by id, other text would return a wrong page."""
    if not _GENERATED.fullmatch(value):
        raise InvalidName(f"{kind} id must be 26 characters of 0-9 and a-z as a list returns it, got {quote(value)}")
    return value


def is_generated_id(value: str) -> bool:
    """Whether it looks like an id from `new_id`."""
    return _GENERATED.fullmatch(value) is not None


def is_id(value: str) -> bool:
    return _ID.fullmatch(value.replace("_", "-")) is not None


def is_state_key(value: str) -> bool:
    return _STATE_KEY.fullmatch(value) is not None


def check_state_key(value: str) -> str:
    """A key that an HTTP chat client chose."""
    _check_is_text("state key", value)
    if not is_state_key(value):
        raise InvalidName(f"state key must match {STATE_KEY_PATTERN[1:-1]}, got {quote(value)}")
    return value


def check_thread_key(value: str) -> str:
    """The state key of a thread, as the library and adapters choose it: their own names for things, kept as given."""
    _check_is_text("state key", value)
    if not value.strip() or len(value) > THREAD_KEY_LENGTH or not value.isprintable():
        raise InvalidName(f"state key must be 1 to {THREAD_KEY_LENGTH} printable characters, got {quote(value)}")
    return value


def check_name(kind: str, value: str) -> str:
    """A name chosen by a person: visible characters only, trimmed, in NFC so that it has one spelling."""
    return _check_visible(f"{kind} name", value)


def check_title(value: str) -> str:
    """A title chosen by a person. It has the same limit as a name."""
    return _check_visible("title", value)


def _check_visible(what: str, value: str) -> str:
    _check_is_text(what, value)
    name = unicodedata.normalize("NFC", value).strip()
    if not name:
        raise InvalidName(f"{what} must not be empty")
    if len(name) > NAME_LENGTH:
        raise LimitExceeded(f"{what} length", NAME_LENGTH, len(name))
    # Of ASCII, what is printable is visible.
    if not name.isprintable() or not (name.isascii() or not any(map(_is_invisible, name))):
        raise InvalidName(f"{what} must contain only visible characters, got {quote(name)}")
    return name


def title_from(text: str) -> str:
    """A title from a first message: one line of at most 100 characters, not cut inside a grapheme."""
    visible, line = "", ""
    for at in range(0, len(text), _PIECE):
        visible += _visible(text[at : at + _PIECE])
        line = " ".join(visible.split())
        # Enough for a title: the rest of a long text need not be read.
        if len(line) > 2 * TITLE_LENGTH:
            break
    if len(line) <= TITLE_LENGTH:
        return line
    end = TITLE_LENGTH - 1
    while end > 0 and _splits_grapheme(line, end):
        end -= 1
    return (line[:end] if end else line[: TITLE_LENGTH - 1]).rstrip() + "…"


def _visible(text: str) -> str:
    if text.isascii():
        return text.translate(_CONTROLS_TO_BLANKS)
    return "".join(
        " " if unicodedata.category(c) in {"Cc", "Cs"} else c
        for c in text
        if _is_joiner(c) or not _is_blank_character(c)
    )


def check_text(what: str, value: str) -> str:
    """Text that the API accepts: no lone surrogates, no NUL, at least one visible character."""
    check_characters(what, value)
    if not any(not c.isspace() and not _is_invisible(c) for c in value):
        raise InvalidText(f"{what} must not be empty")
    return value


def check_characters(what: str, value: str) -> str:
    if "\x00" in value:
        raise InvalidText(f"{what} must not contain NUL characters")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidText(f"{what} must not contain lone surrogates (half a character)") from None
    return value


def _is_invisible(char: str) -> bool:
    return _is_blank_character(char) or unicodedata.category(char) in {"Cc", "Cs"}


def _is_blank_character(char: str) -> bool:
    # Cf covers zero-width characters, bidirectional controls and tag characters; the rest are blank letters.
    return unicodedata.category(char) in {"Cf", "Co", "Cn"} or char in "\u115f\u1160\u3164\uffa0\u034f"


def _splits_grapheme(line: str, at: int) -> bool:
    return (
        bool(unicodedata.combining(line[at]))
        or _is_joiner(line[at])
        or _is_joiner(line[at - 1])
        or _splits_flag(line, at)
    )


def _splits_flag(line: str, at: int) -> bool:
    # A flag is two regional letters, so the letters of a row of flags pair up from its start.
    return line[at] in _REGIONAL and (at - len(line[:at].rstrip(_REGIONAL))) % 2 == 1


def _is_joiner(char: str) -> bool:
    # Zero-width joiners, variation selectors and skin tones belong to the character before them.
    return char == "\u200d" or "\ufe00" <= char <= "\ufe0f" or "\U0001f3fb" <= char <= "\U0001f3ff"
