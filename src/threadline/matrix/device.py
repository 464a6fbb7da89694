"""The bot's device on the homeserver, stored between two runs of the process.

A folder that only its owner can read holds the device's id and token, the position in the sync up to which everything
is delivered, the messages that could not be decrypted yet, and (written by matrix-nio) the keys. Each file is replaced
as a whole, so that a crash leaves the old one or the new one.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from threadline.core.errors import SettingsInvalid

T = TypeVar("T")


class Device(msgspec.Struct, frozen=True):
    """The device and its access token. A token from the settings is not stored here."""

    homeserver: str
    user_id: str
    device_id: str
    token: str = ""

    def __repr__(self) -> str:
        return f"<device {self.device_id} of {self.user_id}>"


class Progress(msgspec.Struct, frozen=True):
    """Everything before `position` is delivered. `unread` are messages without a key: (room, event)."""

    position: str
    unread: tuple[tuple[str, str], ...] = ()


class DeviceFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as exc:
            raise SettingsInvalid(f"cannot create {path}: {exc.strerror}") from exc

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One process at a time; the kernel releases the lock, whatever ends the process. SettingsInvalid."""
        with (self.path / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise SettingsInvalid(f"another bot is running on {self.path}") from None
            yield

    def device(self) -> Device | None:
        return self._read("device.json", Device)

    def store_device(self, device: Device) -> None:
        self._write("device.json", device)

    def progress(self) -> Progress | None:
        return self._read("progress.json", Progress)

    def store_progress(self, progress: Progress) -> None:
        self._write("progress.json", progress)

    def _read(self, name: str, kind: type[T]) -> T | None:
        file = self.path / name
        if not file.exists():
            return None
        try:
            return msgspec.json.decode(file.read_bytes(), type=kind)
        except (OSError, msgspec.DecodeError) as exc:
            raise SettingsInvalid(f"cannot read {file}: {exc}; move it away to start with a new device") from exc

    def _write(self, name: str, value: msgspec.Struct) -> None:
        file, fresh = self.path / name, self.path / f"{name}.new"
        opened = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(opened, "wb") as writing:
            writing.write(msgspec.json.encode(value))
            writing.flush()
            os.fsync(writing.fileno())
        fresh.replace(file)
