"""Base of public values: frozen structs that can be turned into plain JSON data."""

from __future__ import annotations

from typing import Any

import msgspec


class PlainValue(msgspec.Struct, frozen=True):
    def to_dict(self) -> dict[str, Any]:
        """The fields as plain JSON data; times are ISO 8601 strings."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return fields
