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
    """Encrypts small secrets with the operator's keys. `bound_to` names the purpose: a ciphertext can be decrypted only
    with the same purpose, which is not stored in it."""

    @property
    def key_id(self) -> str:
        """The key for new secrets. SettingsInvalid if there is none."""
        ...

    def encrypt(self, plain: bytes, bound_to: Sequence[str]) -> bytes:
        """Encrypted with `key_id`; never the same twice."""
        ...

    def decrypt(self, key_id: str, sealed: bytes, bound_to: Sequence[str]) -> bytes:
        """SettingsInvalid if the key is unknown, or cannot decrypt this for this purpose."""
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
