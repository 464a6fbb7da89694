"""Masking of a JSON object that arrives in chunks: the input of a tool while a model writes it.

Some values are secret because of their name, so a member of the object is held back until its name is known. A string
under a harmless name then passes piece by piece through a text stream, so that a long text is shown while it is
written. Every other value is held back until it is complete and masked together with its name. After a member named
`value` nothing more is shown, because another member may tell what it is (`{"name": "Authorization", "value": …}`).
Input that is not a JSON object is not shown until its call is complete.
"""

from __future__ import annotations

import re
from typing import Literal

from threadline.core import jsontext
from threadline.core.errors import InvalidInput
from threadline.core.sealing import Masker, TextStream

_OPENING = re.compile(r"\s*\{")
_CLOSING = re.compile(r"\s*\}")
_MEMBER = re.compile(r'\s*(?:,\s*)?("(?:[^"\\]|\\.)*")\s*:\s*(?=\S)')
_IN_STRING = re.compile(r'(?:[^"\\]|\\.)*', re.DOTALL)
_PAIRED_NAME = "value"


class JsonStream:
    """One per tool input. `feed` returns what is safe to show now."""

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._state: Literal["start", "member", "string", "value", "end"] = "start"
        self._held = ""
        self._name = ""
        self._text: TextStream = masker.stream()
        self._value = _ValueEnd()
        self._separator = ""

    def feed(self, text: str) -> str:
        self._held += text
        out: list[str] = []
        while self._state != "end" and (shown := self._advance()) is not None:
            out.append(shown)
        return "".join(out)

    def _advance(self) -> str | None:
        """One step; None if it needs more text."""
        match self._state:
            case "start":
                return self._start()
            case "member":
                return self._begin_member()
            case "string":
                return self._continue_string()
            case "value":
                return self._continue_value()
        return None

    def _start(self) -> str | None:
        if not self._held.strip():
            return None
        found = _OPENING.match(self._held)
        if found is None:
            return self._stop("")
        return self._take(found.end(), "member", "{")

    def _begin_member(self) -> str | None:
        if _CLOSING.match(self._held):
            return self._stop("}")
        found = _MEMBER.match(self._held)
        if found is None:
            return None
        try:
            name = jsontext.parse(found[1].encode("utf-8", "surrogatepass"), "name")
        except InvalidInput:
            return self._stop("")
        if name == _PAIRED_NAME:
            return self._stop("")
        self._name = name
        probe = {name: "a text"}
        if self._held[found.end()] == '"' and self._masker.mask_json(probe) is probe:
            shown = f'{self._separator}{found[1]}:"'
            self._separator = ","
            return self._take(found.end() + 1, "string", shown)
        self._value = _ValueEnd()
        return self._take(found.end(), "value", "")

    def _continue_string(self) -> str | None:
        found = _IN_STRING.match(self._held)
        end = 0 if found is None else found.end()
        content, rest = self._held[:end], self._held[end:]
        if rest.startswith('"'):
            self._held = rest[1:]
            self._state = "member"
            return self._text.feed(content) + self._text.flush() + '"'
        self._held = rest
        return self._text.feed(content) if content else None

    def _continue_value(self) -> str | None:
        end = self._value.find(self._held)
        if end is None:
            return None
        try:
            value = jsontext.parse(self._held[:end].encode("utf-8", "surrogatepass"), "tool input")
            member = jsontext.dump(self._masker.mask_json({self._name: value}), "tool input").decode()
        except InvalidInput:
            return self._stop("")
        shown = self._separator + member[1:-1]
        self._separator = ","
        return self._take(end, "member", shown)

    def _take(self, end: int, state: Literal["member", "string", "value"], shown: str) -> str:
        self._held, self._state = self._held[end:], state
        return shown

    def _stop(self, shown: str) -> str:
        """Nothing more is shown."""
        self._held, self._state = "", "end"
        return shown


class _ValueEnd:
    """Finds the end of a JSON value, reading each character once."""

    def __init__(self) -> None:
        self._at = 0
        self._depth = 0
        self._in_string = False

    def find(self, text: str) -> int | None:
        while self._at < len(text):
            char = text[self._at]
            if self._in_string:
                if char == "\\":
                    if self._at + 1 == len(text):
                        return None
                    self._at += 1
                elif char == '"':
                    self._in_string = False
                    if not self._depth:
                        return self._at + 1
            elif char == '"':
                self._in_string = True
            elif char in "[{":
                self._depth += 1
            elif char in "]}" and self._depth:
                self._depth -= 1
                if not self._depth:
                    return self._at + 1
            elif char in ",]} \t\r\n" and not self._depth:
                return self._at
            self._at += 1
        return None
