"""Masking of personal data, for tenants that choose it: e-mail addresses, phone, card, account and identity numbers.

A number counts only if its check digits are right, or if its form leaves little doubt: most numbers in a conversation
identify no person. Phone numbers are those that start with a country code, and North American ones; national ids are
chosen by country. Names and addresses of people are not recognised.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple, TypeAlias

from threadline.core.masking.masker import SecretMasker
from threadline.core.masking.stream import StreamMasker

PersonalDataKind: TypeAlias = Literal[
    "email", "phone", "card", "iban", "br-cpf", "ch-ahv", "es-dni", "fr-nir", "it-cf", "uk-nino", "us-ssn"
]

# Bounds the text that a stream holds back: longer than any address or number.
_LONGEST = 640
# Characters before and after a space inside a number.
_GROUP_END = frozenset(string.ascii_uppercase + string.digits + ")")
_GROUP_START = frozenset(string.ascii_uppercase + string.digits + "(")
# What a look-behind of any kind reads.
_CONTEXT = 2
# The least that every kind contains, in JSON too, where characters may be escaped.
_HINT = re.compile(rb"@|[0-9][0-9 ().+/-]{4,}[0-9]|[A-Z]{2}[0-9]{2}|\\[u/]")


class _Kind(NamedTuple):
    label: str
    pattern: str
    is_valid: Callable[[str], bool]


def _luhn(number: str) -> bool:
    digits = [int(digit) for digit in reversed(number)]
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


# Beginnings and lengths of the card brands.
_BRANDS = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|3[47]\d{13}"
    r"|3(?:0[0-5]|[68]\d)\d{11}|6(?:011|4[4-9]\d|5\d\d)\d{12}|35(?:2[89]|[3-8]\d)\d{12}|62\d{14,17}"
)


def _is_card(text: str) -> bool:
    digits = re.sub(r"[ -]", "", text)
    return _BRANDS.fullmatch(digits) is not None and _luhn(digits)


_IBAN_LENGTHS = {
    "AD": 24,
    "AE": 23,
    "AL": 28,
    "AT": 20,
    "AZ": 28,
    "BA": 20,
    "BE": 16,
    "BG": 22,
    "BH": 22,
    "BR": 29,
    "CH": 21,
    "CR": 22,
    "CY": 28,
    "CZ": 24,
    "DE": 22,
    "DK": 18,
    "DO": 28,
    "EE": 20,
    "EG": 29,
    "ES": 24,
    "FI": 18,
    "FO": 18,
    "FR": 27,
    "GB": 22,
    "GE": 22,
    "GI": 23,
    "GL": 18,
    "GR": 27,
    "GT": 28,
    "HR": 21,
    "HU": 28,
    "IE": 22,
    "IL": 23,
    "IS": 26,
    "IT": 27,
    "JO": 30,
    "KW": 30,
    "KZ": 20,
    "LB": 28,
    "LI": 21,
    "LT": 20,
    "LU": 20,
    "LV": 21,
    "MC": 27,
    "MD": 24,
    "ME": 22,
    "MK": 19,
    "MT": 31,
    "NL": 18,
    "NO": 15,
    "PK": 24,
    "PL": 28,
    "PT": 25,
    "QA": 29,
    "RO": 24,
    "RS": 22,
    "SA": 24,
    "SE": 24,
    "SI": 19,
    "SK": 24,
    "SM": 27,
    "TN": 24,
    "TR": 26,
    "UA": 29,
    "VA": 22,
    "XK": 20,
}
# One alternative for each country, so that capitals after the number are not taken for a part of it.
_IBAN = "|".join(rf"{country}\d\d(?: ?[A-Z0-9]){{{length - 4}}}" for country, length in _IBAN_LENGTHS.items())


def _is_iban(text: str) -> bool:
    plain = text.replace(" ", "")
    return int("".join(str(int(char, 36)) for char in plain[4:] + plain[:4])) % 97 == 1


def _is_phone(text: str) -> bool:
    return 8 <= sum(char.isdigit() for char in text) <= 15


# `icon@2x.png` is a file, and `git@host.org:owner` a repository.
_FILE_ENDINGS = ("png", "jpg", "jpeg", "gif", "svg", "webp", "pdf", "js", "ts", "css", "json", "zip", "gz", "tgz", "py")


def _is_email(text: str) -> bool:
    local, _, domain = text.partition("@")
    return local != "git" and ".." not in text and domain.rpartition(".")[2].lower() not in _FILE_ENDINGS


def _is_cpf(text: str) -> bool:
    digits = [int(char) for char in text if char.isdigit()]
    return all(
        sum(digit * (size + 1 - at) for at, digit in enumerate(digits[:size])) * 10 % 11 % 10 == digits[size]
        for size in (9, 10)
    )


def _is_ahv(text: str) -> bool:
    digits = [int(char) for char in text if char.isdigit()]
    return sum(digit * (3 if at % 2 else 1) for at, digit in enumerate(digits)) % 10 == 0


def _is_dni(text: str) -> bool:
    plain = text.replace("-", "").translate(str.maketrans("XYZ", "012", ""))
    return "TRWAGMYFPDXBNJZSQVHLCKE"[int(plain[:8]) % 23] == text[-1]


def _is_nir(text: str) -> bool:
    plain = text.replace(" ", "").replace("2A", "19").replace("2B", "18")
    return 97 - int(plain[:13]) % 97 == int(plain[13:])


def _always(_: str) -> bool:
    return True


def _kind(label: str, pattern: str, is_valid: Callable[[str], bool] = _always) -> _Kind:
    return _Kind(f"[masked:{label}]", pattern, is_valid)


# Not inside a longer word or number; a full stop or hyphen before a digit continues a number.
_START, _END = r"(?<![\w.+-])", r"(?![\w-])"
_KINDS: dict[PersonalDataKind, _Kind] = {
    "iban": _kind("iban", rf"(?<!\w)(?:{_IBAN})(?!\w)", _is_iban),
    "card": _kind(
        "card",
        rf"{_START}(?:\d{{4}}([ -])\d{{4}}\1\d{{4}}\1\d{{4}}(?:\1\d{{3}})?"
        rf"|\d{{4}}([ -])\d{{6}}\2\d{{4,5}}|\d{{13,19}}){_END}",
        _is_card,
    ),
    "us-ssn": _kind("national-id", rf"{_START}(?!000|666|9\d\d)\d{{3}}-(?!00)\d\d-(?!0000)\d{{4}}{_END}"),
    "br-cpf": _kind("national-id", rf"{_START}\d{{3}}\.\d{{3}}\.\d{{3}}-\d\d{_END}", _is_cpf),
    "ch-ahv": _kind("national-id", rf"{_START}756\.\d{{4}}\.\d{{4}}\.\d\d{_END}", _is_ahv),
    "es-dni": _kind("national-id", rf"{_START}(?:\d{{8}}|[XYZ]\d{{7}})-?[A-HJ-NP-TV-Z]{_END}", _is_dni),
    "fr-nir": _kind(
        "national-id", rf"{_START}[12] ?\d\d ?(?:0[1-9]|1[0-2]) ?(?:\d\d|2[AB]) ?\d{{3}} ?\d{{3}} ?\d\d{_END}", _is_nir
    ),
    "it-cf": _kind("national-id", rf"{_START}[A-Z]{{6}}\d\d[A-EHLMPRST]\d\d[A-Z]\d{{3}}[A-Z]{_END}"),
    "uk-nino": _kind(
        "national-id",
        rf"{_START}(?!BG|GB|KN|NK|NT|TN|ZZ)[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z] ?\d\d ?\d\d ?\d\d ?[A-D]{_END}",
    ),
    "phone": _kind(
        "phone",
        rf"{_START}(?:(?:\+|(?<!\d )00(?=[1-9]\d{{0,2}}[ ./-]))[1-9]\d{{0,2}}"
        r"(?:[ ./-]?(?:\(\d{1,4}\)|\d{1,4})){2,6}"
        rf"|(?:\([2-9]\d\d\) ?|[2-9]\d\d-)[2-9]\d\d-\d{{4}}){_END}",
        _is_phone,
    ),
    "email": _kind(
        "email",
        r"(?<![\w./%+-])[A-Za-z0-9][\w.%+-]{0,63}@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.){1,8}[A-Za-z]{2,24}"
        r"(?![A-Za-z0-9-])",
        _is_email,
    ),
}


class PersonalDataMasker(SecretMasker):
    """Masks secrets and these kinds of personal data."""

    def __init__(self, kinds: Iterable[PersonalDataKind]) -> None:
        super().__init__()
        chosen = frozenset(kinds)
        # Compiled here and not at import: most processes use none.
        self._kinds = [(kind, re.compile(kind.pattern, re.ASCII)) for name, kind in _KINDS.items() if name in chosen]

    def mask_text(self, text: str) -> str:
        return self.mask_personal_data(super().mask_text(text))

    def mask_personal_data(self, text: str, start: int = 0) -> str:
        """Masks what begins at `start` or later. Repeated until nothing changes, because a mask may free what stands
        after it (`7 0049 …`)."""
        found = text
        while True:
            before = found
            for kind, pattern in self._kinds:
                found = _replace_valid(kind, pattern, found, start)
            if found == before:
                return text if found == text else found

    def may_hold(self, raw: bytes) -> bool:
        return _HINT.search(raw) is not None or super().may_hold(raw)

    def stream(self) -> PersonalDataStream:  # type: ignore[override]  # both are a TextStream
        return PersonalDataStream(super().stream(), self)

    def move_cut(self, text: str, cut: int) -> int:
        """The last position up to `cut` that is not inside an address or a number."""
        for kind, pattern in self._kinds:
            for found in pattern.finditer(text, 0):
                if found.start() < cut < found.end() and kind.is_valid(found[0]):
                    cut = found.start()
        return cut


def _replace_valid(kind: _Kind, pattern: re.Pattern[str], text: str, start: int) -> str:
    out: list[str] = []
    done = 0
    for found in pattern.finditer(text, start):
        if kind.is_valid(found[0]):
            out += (text[done : found.start()], kind.label)
            done = found.end()
    return "".join((*out, text[done:])) if out else text


def _open_end(text: str) -> int:
    """The start of what may become an address or a number: the last word, with the words before it if only a space
    between groups of digits and capitals separates them. ASCII only, so that text without spaces (Chinese, Japanese)
    is not held back."""
    at = end = len(text)
    while at > max(0, end - _LONGEST):
        char = text[at - 1]
        is_inside = char == " " and (at == end or text[at] in _GROUP_START) and at > 1 and text[at - 2] in _GROUP_END
        if not is_inside and not "!" <= char <= "~":
            break
        at -= 1
    return at


class PersonalDataStream:
    """What secrets' stream lets through, held back while its end may become an address or a number."""

    def __init__(self, secrets: StreamMasker, masker: PersonalDataMasker) -> None:
        self._secrets = secrets
        self._masker = masker
        self._before = ""
        self._held = ""

    def feed(self, text: str) -> str:
        self._held += self._secrets.feed(text)
        cut = _open_end(self._held)
        if len(self._held) - cut == _LONGEST:
            cut = self._masker.move_cut(self._held, cut)
        shown = self._masked(self._held[:cut])
        self._held = self._held[cut:]
        self._before = (self._before + shown)[-_CONTEXT:]
        return shown

    def flush(self) -> str:
        rest = self._masked(self._held + self._secrets.flush())
        self._before = self._held = ""
        return rest

    def _masked(self, text: str) -> str:
        start = len(self._before)
        return self._masker.mask_personal_data(self._before + text, start)[start:]
