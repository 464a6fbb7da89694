"""What the process around the system lends it: the time, a key for secrets, and a record of where time went."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias


class Clock(Protocol):
    def now(self) -> dt.datetime:
        """The time, in UTC. Stores never ask the database for it."""
        ...


class Cipher(Protocol):
    """Seals small secrets under keys that only the operator has. What was sealed for one purpose opens for no other:
    `bound_to` says what it is for, and is not kept inside."""

    @property
    def key_id(self) -> str:
        """The key that new secrets are sealed under. SettingsInvalid if there is none."""
        ...

    def seal(self, plain: bytes, bound_to: Sequence[str]) -> bytes:
        """Sealed under `key_id`; never the same twice."""
        ...

    def unseal(self, key_id: str, sealed: bytes, bound_to: Sequence[str]) -> bytes:
        """SettingsInvalid if the key is not here, or does not open this for this purpose."""
        ...


SpanKind: TypeAlias = Literal["internal", "server", "client"]


class Span(Protocol):
    """A piece of work that is traced. It begins when it is made, and ends once."""

    def set(self, name: str, value: str | float | bool | Sequence[str]) -> None: ...

    def rename(self, name: str) -> None: ...

    def end(self, error: str | None = None) -> None:
        """`error` is a word for what went wrong, never a text that someone wrote."""
        ...


class Tracer(Protocol):
    def span(
        self,
        name: str,
        attributes: Mapping[str, Any],
        *,
        parent: Span | None = None,
        kind: SpanKind = "internal",
        headers: Mapping[str, str] | None = None,
    ) -> Span:
        """A span under its parent; without one, under the caller that the headers of a request name."""
        ...

    async def close(self) -> None:
        """Sends what is still to be sent."""
        ...
