"""The masker: replaces each secret with `[masked:<kind>]` and leaves everything else unchanged.

In structured values every string and key is masked as text, and values under names such as `password` are replaced
completely. Input is never modified; a value without secrets is returned as the same object. Masking twice gives the
same result as masking once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from typing import Any

from threadline.core.masking.matcher import Prefilter, SecretMatch, find, make_prefilter
from threadline.core.masking.name_rules import (
    HARMLESS_VALUES,
    KEY_RULES,
    NAMED_RULES,
    QUOTED_NAME_RULES,
    VALUE_KEY_RULE,
    kind_of_name,
)
from threadline.core.masking.normal_form import NormalForm, normal_bytes, normalize
from threadline.core.masking.patterns import Rule
from threadline.core.masking.rules import RULES
from threadline.core.masking.stream import PartialMatches, StreamMasker

TEXT_RULES = (*NAMED_RULES, *RULES)
_JSON_RULES = frozenset((*KEY_RULES, VALUE_KEY_RULE))
_IS_PIN = re.compile(r"[0-9]{4,12}")
_IS_MASK = re.compile(r"\[masked:[a-z0-9-]+\]")
_SCHEMA_TYPES = frozenset(("string", "number", "integer", "boolean", "object", "array", "null"))
# Deeper JSON is refused before it is stored (see `jsontext.MAX_DEPTH`), so it need not be masked.
_DEEPEST = 100


@cache
def _shared_prefilter(with_re2: bool | None) -> Prefilter:
    """One per process: it is immutable, and building it takes about 50 ms."""
    return make_prefilter((*TEXT_RULES, *KEY_RULES, VALUE_KEY_RULE), with_re2=with_re2)


@cache
def _shared_partial_matches() -> PartialMatches:
    """One per process, for the same reason."""
    return PartialMatches(TEXT_RULES)


def compile_rules() -> None:
    """Compiles what every masker of this process uses, which is otherwise done with the first texts: about 75 ms."""
    _shared_prefilter(None)
    _shared_partial_matches()
    for rule in (*TEXT_RULES, *KEY_RULES, *QUOTED_NAME_RULES, VALUE_KEY_RULE):
        rule.compile()
    for complete in (True, False):
        normalize(b"%20", complete=complete)


class SecretMasker:
    """A `core.sealing.Masker`. `with_re2` selects the prefilter; by default RE2 if it is installed."""

    def __init__(self, *, with_re2: bool | None = None) -> None:
        self._with_re2 = with_re2

    # Built on first use: 50 ms would be noticeable in the start-up time of a command.
    @cached_property
    def _prefilter(self) -> Prefilter:
        return _shared_prefilter(self._with_re2)

    def mask_text(self, text: str) -> str:
        raw = text.encode("utf-8", "surrogatepass")
        rules = self._text_rules(raw)
        if not rules:
            return text
        normal = normalize(raw)
        found = list(find(normal.view, rules))
        return replace_matches(raw, normal, found).decode("utf-8", "surrogatepass") if found else text

    def _text_rules(self, raw: bytes) -> Sequence[Rule]:
        rules = self._prefilter.rules(raw)
        return [rule for rule in rules if rule not in _JSON_RULES] if rules else ()

    def mask_json(self, value: Any) -> Any:
        return self._mask_value(value, None, 0)

    def may_hold(self, raw: bytes) -> bool:
        """False only if `mask_json` would not change the value of this JSON."""
        rules = self._prefilter.rules(raw)
        if not rules:
            return False
        view = normal_bytes(raw)
        return any(found.rule is not VALUE_KEY_RULE or _contains_name(view) for found in find(view, rules))

    def stream(self) -> StreamMasker:
        """For one text that arrives in chunks."""
        return StreamMasker(self._text_rules, _shared_partial_matches())

    def _mask_value(self, value: Any, kind: str | None, depth: int) -> Any:
        """`kind` is the kind of secret that an enclosing name announces, if any."""
        if isinstance(value, str):
            return self.mask_text(value) if kind is None else _mask_named(value, kind)
        if depth > _DEEPEST:
            return value
        if isinstance(value, dict):
            return self._mask_object(value, kind, depth)
        if isinstance(value, (list, tuple)):
            items = [self._mask_value(item, kind, depth + 1) for item in value]
            return value if all(new is old for new, old in zip(items, value, strict=True)) else items
        if kind in ("password", "pin") and isinstance(value, (int, float)) and not isinstance(value, bool):
            masked = _mask_named(str(value), kind)
            return value if masked == str(value) else masked
        return value

    def _mask_object(self, value: dict[Any, Any], kind: str | None, depth: int) -> dict[Any, Any]:
        if kind is not None and _is_schema(value):
            kind = None
        pair_kind = _kind_of_pair(value)
        masked_object: dict[Any, Any] = {}
        changed = False
        for key, item in value.items():
            new_key = self._mask_key(key, masked_object, value)
            named_kind = (
                pair_kind if key == "value" and pair_kind else kind_of_name(key) if isinstance(key, str) else None
            )
            new_item = self._mask_value(item, named_kind or kind, depth + 1)
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


def replace_matches(raw: bytes, normal: NormalForm, found: Iterable[SecretMatch]) -> bytes:
    """The source with every match in its normal form replaced."""
    out: list[bytes] = []
    done = 0
    for one in found:
        out += (raw[done : normal.source_start(one.secret_start)], one.rule.label)
        done = normal.source_end(one.secret_end)
    return b"".join((*out, raw[done:]))


def _contains_name(view: bytes) -> bool:
    return next(find(view, QUOTED_NAME_RULES), None) is not None


def _mask_named(value: str, kind: str) -> str:
    is_harmless = not value or _IS_MASK.fullmatch(value) or value in HARMLESS_VALUES.get(kind, ())
    # The pin of a person has at least four digits; the pin of a circuit has one or two, or a name.
    if is_harmless or (kind == "pin" and not _IS_PIN.fullmatch(value)):
        return value
    return f"[masked:{kind}]"


def _is_schema(value: dict[Any, Any]) -> bool:
    """`{"password": {"type": "string"}}` is a JSON Schema: it describes a password and contains none."""
    type_ = value.get("type")
    return isinstance(type_, str) and type_ in _SCHEMA_TYPES


def _kind_of_pair(value: dict[Any, Any]) -> str | None:
    """`{"name": "Authorization", "value": "…"}`: a common format for headers and settings."""
    name = value.get("name", value.get("key"))
    return kind_of_name(name) if isinstance(name, str) and "value" in value else None
