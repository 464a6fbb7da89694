"""Files of one folder, for tools: no path, link or race leads out of it.

A path is resolved, must be inside the folder, and is then opened component by component from the folder's descriptor
without following links: a component that became a link since is refused. Only regular files are read and written;
devices, pipes and sockets are refused without waiting for them. Text is UTF-8 and bounded. A write replaces the file as
a whole. Errors are ToolFailed, for the model.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from threadline.agents.tool_execution import ToolFailed

MOST_BYTES = 2_000_000
_PROBED_BYTES = 8_192
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK opening a pipe would wait for its other end.
_FILE_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Workspace:
    def __init__(self, root: Path) -> None:
        self.root = root.resolve(strict=True)
        self._shown: dict[str, str | None] = {}
        """Digests of the contents that a person was shown a change of, by path; None is a file that did not exist."""

    def relative(self, path: str) -> str:
        """The path below the folder, links resolved; "" is the folder itself. ToolFailed for one that leads out."""
        if not path or "\x00" in path:
            raise ToolFailed("`path` must name a file in the folder")
        try:
            real = (self.root / path).resolve()
        except (OSError, RuntimeError) as exc:
            raise ToolFailed(f"{path!r} cannot be resolved: {exc}") from exc
        if real != self.root and self.root not in real.parents:
            raise ToolFailed(f"{path!r} is outside the folder {self.root}: only files below it may be used")
        return "" if real == self.root else str(real.relative_to(self.root))

    def read_bytes(self, path: str) -> bytes:
        """ToolFailed for anything but a regular file of at most `MOST_BYTES`."""
        relative = self.relative(path)
        with self._parent(relative) as folder, _described(path):
            descriptor = os.open(Path(relative).name or ".", os.O_RDONLY | _FILE_FLAGS, dir_fd=folder)
            try:
                found = os.fstat(descriptor)
                if not stat.S_ISREG(found.st_mode):
                    raise ToolFailed(f"{path!r} is {_kind(found.st_mode)}, not a file")
                if found.st_size > MOST_BYTES:
                    raise ToolFailed(f"{path!r} must have at most {MOST_BYTES:,} bytes, got {found.st_size:,}")
                # One byte more than allowed: a file may grow, and some in /proc have no size.
                raw = b""
                while len(raw) <= MOST_BYTES and (block := os.read(descriptor, MOST_BYTES + 1 - len(raw))):
                    raw += block
            finally:
                os.close(descriptor)
        if len(raw) > MOST_BYTES:
            raise ToolFailed(f"{path!r} must have at most {MOST_BYTES:,} bytes")
        return raw

    def read_text(self, path: str, *, strict: bool = False) -> str:
        """Text; bytes that are not UTF-8 are replaced, or refused if `strict`, because writing them would lose them."""
        raw = self.read_bytes(path)
        if b"\x00" in raw[:_PROBED_BYTES]:
            raise ToolFailed(f"{path!r} must be a text file, got a binary one of {len(raw):,} bytes")
        try:
            return raw.decode("utf-8", "strict" if strict else "replace")
        except UnicodeDecodeError as exc:
            raise ToolFailed(f"{path!r} is not UTF-8 text (byte {exc.start}): it cannot be edited") from exc

    def text_before(self, path: str) -> str | None:
        """What a write would replace, remembered as shown: a write then refuses if it has changed. None if there is no
        file."""
        relative = self.relative(path)
        text = self.read_text(path, strict=True) if (self.root / relative).exists() else None
        self._shown[relative] = None if text is None else _digest(text.encode())
        return text

    def write_text(self, path: str, text: str) -> None:
        """Replaces or creates the file, with its folders. ToolFailed if it is not what was shown."""
        relative = self.relative(path)
        if not relative:
            raise ToolFailed(f"{path!r} must be a file, got a folder")
        raw = text.encode("utf-8", "replace")
        if len(raw) > MOST_BYTES:
            raise ToolFailed(f"the text must have at most {MOST_BYTES:,} bytes, got {len(raw):,}")
        self._check_unchanged(path, relative)
        with self._parent(relative, create=True) as folder, _described(path):
            name = Path(relative).name
            mode = 0o666
            with contextlib.suppress(FileNotFoundError):
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if not stat.S_ISREG(found.st_mode):
                    raise ToolFailed(f"{path!r} is {_kind(found.st_mode)}, not a file")
                mode = stat.S_IMODE(found.st_mode)
            _replace(folder, name, raw, mode, keep_mode=mode != 0o666)

    def _check_unchanged(self, path: str, relative: str) -> None:
        if relative not in self._shown:
            return
        shown = self._shown.pop(relative)
        present = _digest(self.read_bytes(path)) if (self.root / relative).exists() else None
        if present != shown:
            raise ToolFailed(f"{path!r} has changed since the change was shown: read it and try again")

    def list_folder(self, path: str) -> list[tuple[str, bool]]:
        """Names and whether each is a folder, sorted."""
        relative = self.relative(path)
        with self._open_folder(relative) as folder, _described(path), os.scandir(folder) as entries:
            return sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)

    @contextlib.contextmanager
    def _parent(self, relative: str, *, create: bool = False) -> Iterator[int]:
        parent = str(Path(relative).parent) if relative else ""
        with self._open_folder("" if parent == "." else parent, create=create) as folder:
            yield folder

    @contextlib.contextmanager
    def _open_folder(self, relative: str, *, create: bool = False) -> Iterator[int]:
        with _described(relative or "."):
            folder = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                for part in Path(relative).parts:
                    if create:
                        with contextlib.suppress(FileExistsError):
                            os.mkdir(part, dir_fd=folder)
                    inner = os.open(part, _FOLDER_FLAGS, dir_fd=folder)
                    os.close(folder)
                    folder = inner
            except BaseException:
                os.close(folder)
                raise
        try:
            yield folder
        finally:
            os.close(folder)


def _replace(folder: int, name: str, raw: bytes, mode: int, *, keep_mode: bool) -> None:
    temporary = f".{name[:100]}.{secrets.token_hex(6)}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE_FLAGS, mode, dir_fd=folder)
    try:
        try:
            if keep_mode:
                os.fchmod(descriptor, mode)
            view = memoryview(raw)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


@contextlib.contextmanager
def _described(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        if exc.errno == errno.ELOOP:
            raise ToolFailed(f"{path!r} became a link while it was opened") from exc
        raise ToolFailed(f"{path!r}: {exc.strerror}") from exc


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a folder"
    if stat.S_ISLNK(mode):
        return "a link"
    return "a device, a pipe or a socket"


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()
