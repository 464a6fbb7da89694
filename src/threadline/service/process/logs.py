"""Log output: a constant phrase and values per record, as JSON lines or as text.

User content must not reach the log. Of an exception only its type and its stack are written, because messages may
quote input; errors of the store and of the settings are written with their text, which names only files and servers.
Records of other libraries are masked.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import sys
import traceback
from typing import Any, Literal, TextIO, TypeAlias

from threadline.core.errors import SettingsInvalid, StoreFailed
from threadline.core.masking import SecretMasker

LogFormat: TypeAlias = Literal["human", "json"]
_STANDARD = frozenset((*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "color_message"))
_NOISY_LOGGERS = ("httpx2", "httpcore2", "uvicorn.access")
"""They log URLs at INFO, and a URL may contain a token."""
_MAX_FRAMES = 12


class LogFormatter(logging.Formatter):
    def __init__(self, form: LogFormat) -> None:
        super().__init__()
        self._write = _to_json if form == "json" else _to_text
        self._masker = SecretMasker()

    def format(self, record: logging.LogRecord) -> str:
        event = record.getMessage()
        error = record.exc_info[1] if record.exc_info else None
        time = dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds")
        line = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": event if record.name.startswith("threadline") else self._masker.mask_text(event),
        }
        more = {key: value for key, value in vars(record).items() if key not in _STANDARD and value is not None}
        return self._write(line, more, [] if error is None else describe_exception(error))


def _to_json(line: dict[str, str], more: dict[str, Any], error: list[str]) -> str:
    return json.dumps({**line, **more, **({"error": error} if error else {})}, default=str)


def _to_text(line: dict[str, str], more: dict[str, Any], error: list[str]) -> str:
    values = "".join(f" {key}={value}" for key, value in more.items())
    text = f"{line['time']} {line['level'].upper()} {line['logger']}: {line['event']}{values}"
    # One record is one line, even if a library logs newlines. Stack frames follow on lines of their own.
    return "\n    ".join((text.replace("\n", "\\n").replace("\r", "\\r"), *error))


def describe_exception(error: BaseException) -> list[str]:
    """Types and stack frames, innermost last, followed by those of its causes. No messages."""
    lines: list[str] = []
    current: BaseException | None = error
    while current is not None and len(lines) < 4 * _MAX_FRAMES:
        name = type(current).__name__
        lines.append(f"{name}: {current}" if isinstance(current, StoreFailed | SettingsInvalid) else name)
        frames = traceback.extract_tb(current.__traceback__)[-_MAX_FRAMES:]
        lines += [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return lines


def configure(form: LogFormat, stream: TextIO | None = None) -> None:
    """Sends all records to the stream, standard error by default."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(LogFormatter(form))
    # `force` replaces handlers that a library may have installed.
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for name in _NOISY_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
