"""What the surrounding process provides: the time, which processes run, a cipher for secrets, and tracing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias


class Clock(Protocol):
    def now(self) -> dt.datetime:
        """The time, in UTC. What processes on several machines compare, leases and due times, is read from the database
        instead: see `TurnOperations.lease_time`."""
        ...


class Processes(Protocol):
    """This process as it names itself in leases, and whether the others still run."""

    @property
    def worker(self) -> str:
        """The name of this process, never used again by another one."""
        ...

    def is_running(self, worker: str) -> bool | None:
        """False if the process of that name has certainly ended. None if it cannot be known here: it runs on another
        machine, or in a container with other files. Then its leases decide."""
        ...

    def has_new_crash(self) -> bool:
        """Whether another process of this machine has ended without closing since the last call."""
        ...

    def close(self) -> None:
        """After this the process counts as ended."""
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
    """A traced operation. It starts when it is created, and ends once."""

    def set(self, name: str, value: str | float | bool | Sequence[str]) -> None: ...

    def rename(self, name: str) -> None: ...

    def end(self, error: str | None = None) -> None:
        """`error` names the kind of failure; it never contains text from a user."""
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
        """Starts a span under `parent`, or under the remote caller that the request's `headers` name."""
        ...

    async def close(self) -> None:
        """Sends the remaining spans."""
        ...
