"""The entry point: reads the command line, runs one command, turns errors into one line and an exit code.

Exit codes: 0 done, 1 failed, 2 wrong input, 3 not found, 4 conflict, 5 refused, 6 the database failed, 130 interrupted.
The command line is declared in `grammar`; the module of a command is imported when it runs.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from importlib import import_module
from typing import Any

from threadline.cli.parser import build_parser
from threadline.cli.printable import shown
from threadline.core.errors import (
    Conflict,
    InvalidInput,
    NotFound,
    Refused,
    ServiceUnavailable,
    SettingsInvalid,
    StoreFailed,
    ThreadlineError,
)

_EXIT_CODES: tuple[tuple[type[ThreadlineError], int], ...] = (
    (InvalidInput, 2),
    (SettingsInvalid, 2),
    (NotFound, 3),
    (Conflict, 4),
    (Refused, 5),
    (StoreFailed, 6),
    (ServiceUnavailable, 6),
)


def main(argv: Sequence[str] | None = None) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a character shows a question mark
    args = build_parser().parse_args(argv)
    try:
        code: int | None = asyncio.run(_command(args.run)(args))
        sys.stdout.flush()
        return code or 0
    except ThreadlineError as exc:
        print(f"threadline: {shown(str(exc), multiline=True)}", file=sys.stderr)
        return next((code for kind, code in _EXIT_CODES if isinstance(exc, kind)), 1)
    except (KeyboardInterrupt, EOFError):
        print("threadline: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever read our output has enough
        _drop_output()
        return 0
    except OSError as exc:
        _drop_output()
        print(f"threadline: {shown(exc.filename or 'the output')}: {exc.strerror or exc}", file=sys.stderr)
        return 1


def _drop_output() -> None:
    """The interpreter flushes once more at its end, and must not complain either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _command(name: str) -> Callable[[argparse.Namespace], Coroutine[Any, Any, int | None]]:
    module, _, function = name.partition(":")
    found: Callable[[argparse.Namespace], Coroutine[Any, Any, int | None]] = getattr(
        import_module(f"threadline.cli.{module}"), function
    )
    return found
