"""What the service writes to its log: a constant phrase and values, as JSON lines or for people to read.

Text that users wrote does not get in by accident. Of an exception only its type and the places it passed are written,
because messages quote what they were given; only errors of the store and of the settings say more, as they name files
and servers and nothing else. What other libraries log passes the masker first.
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
_TOO_TALKATIVE = ("httpx2", "httpcore2", "uvicorn.access")
"""They log addresses at INFO, and an address may hold a token."""
_DEEPEST = 12


class Lines(logging.Formatter):
    def __init__(self, form: LogFormat) -> None:
        super().__init__()
        self._write = _json if form == "json" else _for_people
        self._masker = SecretMasker()

    def format(self, record: logging.LogRecord) -> str:
        said = record.getMessage()
        error = record.exc_info[1] if record.exc_info else None
        moment = dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds")
        line = {
            "time": moment.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": said if record.name.startswith("threadline") else self._masker.mask_text(said),
        }
        more = {key: value for key, value in vars(record).items() if key not in _STANDARD and value is not None}
        return self._write(line, more, [] if error is None else told(error))


def _json(line: dict[str, str], more: dict[str, Any], error: list[str]) -> str:
    return json.dumps({**line, **more, **({"error": error} if error else {})}, default=str)


def _for_people(line: dict[str, str], more: dict[str, Any], error: list[str]) -> str:
    values = "".join(f" {key}={value}" for key, value in more.items())
    said = f"{line['time']} {line['level'].upper()} {line['logger']}: {line['event']}{values}"
    # One record is one line, whatever a library has put into it; the places of an error are lines of their own.
    return "\n    ".join((said.replace("\n", "\\n").replace("\r", "\\r"), *error))


def told(error: BaseException) -> list[str]:
    """An error as the log may have it: types and places, innermost last; its causes follow."""
    said: list[str] = []
    standing: BaseException | None = error
    while standing is not None and len(said) < 4 * _DEEPEST:
        name = type(standing).__name__
        said.append(f"{name}: {standing}" if isinstance(standing, StoreFailed | SettingsInvalid) else name)
        frames = traceback.extract_tb(standing.__traceback__)[-_DEEPEST:]
        said += [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        standing = standing.__cause__ or (None if standing.__suppress_context__ else standing.__context__)
    return said


def configure(form: LogFormat, stream: TextIO | None = None) -> None:
    """Everything goes to the stream (standard error), in this form."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(Lines(form))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for name in _TOO_TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
