"""The bot's device on the homeserver, stored between two runs of the process.

A folder that only its owner can read holds the device's id and token, its name in claims, the position in the sync up
to which everything is delivered, the messages that could not be decrypted yet, the cross-signing keys with the recovery
key, the names of the message keys that are backed up, and (written by matrix-nio) the device's own keys. Each file but
the list of backed-up keys is replaced as a whole, so that a crash leaves the old one or the new one.
"""

from __future__ import annotations

import fcntl
import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from threadline.core.errors import SettingsInvalid
from threadline.core.ids import new_id
from threadline.matrix.signing_keys import CrossSigningKeys

# Unreadable messages that are remembered: keys that have not arrived by then are unlikely to.
_MOST_UNREAD = 200

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


class WorkerName(msgspec.Struct, frozen=True):
    """How claims of deliveries name this device."""

    id: str


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

    def worker_id(self) -> str:
        """The same for every process that has this device, one after the other: each may take over what the one before
        it had claimed."""
        stored = self._read("worker.json", WorkerName)
        if stored is None:
            stored = WorkerName(new_id())
            self._write("worker.json", stored)
        return stored.id

    def progress(self) -> Progress | None:
        return self._read("progress.json", Progress)

    def store_progress(self, progress: Progress) -> None:
        self._write("progress.json", progress)

    def cross_signing(self) -> CrossSigningKeys | None:
        return self._read("cross_signing.json", CrossSigningKeys)

    def store_cross_signing(self, keys: CrossSigningKeys) -> None:
        self._write("cross_signing.json", keys)

    def store_recovery_key(self, recovery_key: str) -> Path:
        """For the operator, who moves it elsewhere: with it a new device gets the keys of a lost folder."""
        self._write_bytes("recovery_key.txt", f"{recovery_key}\n".encode())
        return self.path / "recovery_key.txt"

    def backed_up_keys(self, version: str) -> set[str]:
        """Names of the message keys in this version of the key backup."""
        file = self._backup_file(version)
        return set(file.read_text().split()) if file.exists() else set()

    def add_backed_up_keys(self, version: str, session_ids: list[str]) -> None:
        # Appended and not synced: a key that is uploaded again after a crash replaces itself.
        with self._backup_file(version).open("a") as file:
            file.write("".join(f"{each}\n" for each in session_ids))

    def _backup_file(self, version: str) -> Path:
        return self.path / f"backup-{''.join(char for char in version if char.isalnum())}.txt"

    def _read(self, name: str, kind: type[T]) -> T | None:
        file = self.path / name
        if not file.exists():
            return None
        try:
            return msgspec.json.decode(file.read_bytes(), type=kind)
        except (OSError, msgspec.DecodeError) as exc:
            raise SettingsInvalid(f"cannot read {file}: {exc}; move it away to start with a new device") from exc

    def _write(self, name: str, value: msgspec.Struct) -> None:
        self._write_bytes(name, msgspec.json.encode(value))

    def _write_bytes(self, name: str, content: bytes) -> None:
        file, fresh = self.path / name, self.path / f"{name}.new"
        opened = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(opened, "wb") as writing:
            writing.write(content)
            writing.flush()
            os.fsync(writing.fileno())
        fresh.replace(file)


class OpenBatch:
    """A batch of the sync that is being processed."""

    def __init__(self, cursor: SyncCursor, position: str) -> None:
        self._cursor = cursor
        self.position = position
        self._open = 1

    @property
    def is_done(self) -> bool:
        return self._open == 0

    def add(self) -> None:
        """One more thing to do."""
        self._open += 1

    def done(self) -> None:
        """One thing less; the batch itself counts as one until everything in it was added."""
        self._open -= 1
        if self.is_done:
            self._cursor.advance()


class SyncCursor:
    """The position in the sync up to which everything has been delivered. Batches are processed side by side and end in
    any order; the position moves past the oldest ones that are done. So an event that was read and not yet delivered is
    read again after a crash; the inbox recognises what it had already."""

    def __init__(self, folder: DeviceFolder) -> None:
        self._folder = folder
        stored = folder.progress()
        self.position = stored.position if stored else None
        self._unread = dict.fromkeys(stored.unread) if stored else {}
        self._batches: deque[OpenBatch] = deque()

    @property
    def unread(self) -> list[tuple[str, str]]:
        """Messages without a key: room and event."""
        return list(self._unread)

    def begin(self, position: str) -> OpenBatch:
        batch = OpenBatch(self, position)
        self._batches.append(batch)
        return batch

    def remember_unread(self, room_id: str, event_id: str) -> None:
        self._unread[room_id, event_id] = None
        while len(self._unread) > _MOST_UNREAD:
            self._unread.pop(next(iter(self._unread)))

    def forget_unread(self, room_id: str, event_id: str) -> None:
        self._unread.pop((room_id, event_id), None)

    def advance(self) -> None:
        has_moved = False
        while self._batches and self._batches[0].is_done:
            self.position, has_moved = self._batches.popleft().position, True
        if has_moved and self.position is not None:
            self._folder.store_progress(Progress(self.position, tuple(self._unread)))
