"""The masker: secrets out, everything else as it was.

In text, what a rule finds is replaced by `[masked:<kind>]`. In structured values every string and every key is such a
text, and values under telling names are replaced whole. Nothing is changed in place, what holds no secret comes back
as the very same object, and masking twice is the same as masking once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from typing import Any

from threadline.core.masking.encoded import ENCODED_RULES
from threadline.core.masking.matches import Found, Sieve, find, sieve_for
from threadline.core.masking.names import KEY_RULES, NAMED_RULES, QUOTED_NAME_RULES, VALUE_KEY_RULE, telling_kind
from threadline.core.masking.patterns import Rule
from threadline.core.masking.rules import RULES
from threadline.core.masking.stream import Openings, StreamMasker
from threadline.core.masking.text_fold import Folded, fold, view_of

TEXT_RULES = (*NAMED_RULES, *RULES, *ENCODED_RULES)
_JSON_RULES = frozenset((*KEY_RULES, VALUE_KEY_RULE))
_IS_MASK = re.compile(r"\[masked:[a-z0-9-]+\]")
_SCHEMA_TYPES = frozenset(("string", "number", "integer", "boolean", "object", "array", "null"))
# JSON deeper than this is refused before it is stored, so there is no need to follow it.
_DEEPEST = 100


@cache
def _shared_sieve(with_re2: bool | None) -> Sieve:
    """One for every masker of the process: it is never changed, and takes some 50 ms to make."""
    return sieve_for((*TEXT_RULES, *KEY_RULES, VALUE_KEY_RULE), with_re2=with_re2)


class SecretMasker:
    """A `core.sealing.Masker`. `with_re2` chooses the sieve; by default RE2 where it is installed."""

    def __init__(self, *, with_re2: bool | None = None) -> None:
        self._with_re2 = with_re2

    # Made when first needed: it takes longer than starting a terminal should have to wait.
    @cached_property
    def _sieve(self) -> Sieve:
        return _shared_sieve(self._with_re2)

    @cached_property
    def _openings(self) -> Openings:
        return Openings(TEXT_RULES)

    def mask_text(self, text: str) -> str:
        raw = text.encode("utf-8", "surrogatepass")
        rules = self._text_rules(raw)
        if not rules:
            return text
        folded = fold(raw)
        found = list(find(folded.view, rules))
        return masked(raw, folded, found).decode("utf-8", "surrogatepass") if found else text

    def _text_rules(self, raw: bytes) -> Sequence[Rule]:
        rules = self._sieve.rules(raw)
        return [rule for rule in rules if rule not in _JSON_RULES] if rules else ()

    def mask_json(self, value: Any) -> Any:
        return self._mask_value(value, None, 0)

    def may_hold(self, raw: bytes) -> bool:
        """False only if `mask_json` would change nothing in what this JSON says."""
        rules = self._sieve.rules(raw)
        if not rules:
            return False
        view = view_of(raw)
        return any(found.rule is not VALUE_KEY_RULE or _holds_name(view) for found in find(view, rules))

    def stream(self) -> StreamMasker:
        """For one text that arrives in pieces."""
        return StreamMasker(self._text_rules, self._openings)

    def _mask_value(self, value: Any, kind: str | None, depth: int) -> Any:
        """`kind` is what the name above tells of everything below it."""
        if isinstance(value, str):
            return self.mask_text(value) if kind is None else _mask_named(value, kind)
        if depth > _DEEPEST:
            return value
        if isinstance(value, dict):
            return self._mask_object(value, kind, depth)
        if isinstance(value, (list, tuple)):
            items = [self._mask_value(item, kind, depth + 1) for item in value]
            return value if all(new is old for new, old in zip(items, value, strict=True)) else items
        if kind == "password" and isinstance(value, (int, float)) and not isinstance(value, bool):
            return _mask_named(str(value), kind)
        return value

    def _mask_object(self, value: dict[Any, Any], kind: str | None, depth: int) -> dict[Any, Any]:
        if kind is not None and _is_schema(value):
            kind = None
        pair_kind = _kind_of_pair(value)
        masked_object: dict[Any, Any] = {}
        changed = False
        for key, item in value.items():
            new_key = self._mask_key(key, masked_object, value)
            told = pair_kind if key == "value" and pair_kind else telling_kind(key) if isinstance(key, str) else None
            new_item = self._mask_value(item, told or kind, depth + 1)
            changed = changed or new_key is not key or new_item is not item
            masked_object[new_key] = new_item
        return masked_object if changed else value

    def _mask_key(self, key: Any, taken: dict[Any, Any], given: dict[Any, Any]) -> Any:
        if not isinstance(key, str) or (new := self.mask_text(key)) is key:
            return key
        name, number = new, 1
        while name in taken or name in given:
            number += 1
            name = f"{new} {number}"
        return name


def masked(raw: bytes, folded: Folded, found: Iterable[Found]) -> bytes:
    """The source with what was found in its view replaced."""
    out: list[bytes] = []
    done = 0
    for one in found:
        out += (raw[done : folded.source_start(one.secret_start)], one.rule.label)
        done = folded.source_end(one.secret_end)
    return b"".join((*out, raw[done:]))


def _holds_name(view: bytes) -> bool:
    return next(find(view, QUOTED_NAME_RULES), None) is not None


def _mask_named(value: str, kind: str) -> str:
    return value if not value or _IS_MASK.fullmatch(value) else f"[masked:{kind}]"


def _is_schema(value: dict[Any, Any]) -> bool:
    """`{"password": {"type": "string"}}` describes a password and holds none."""
    type_ = value.get("type")
    return isinstance(type_, str) and type_ in _SCHEMA_TYPES


def _kind_of_pair(value: dict[Any, Any]) -> str | None:
    """`{"name": "Authorization", "value": "…"}`, as headers and settings are often listed."""
    name = value.get("name", value.get("key"))
    return telling_kind(name) if isinstance(name, str) and "value" in value else None
