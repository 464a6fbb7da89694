"""The entry point: parses the command line, runs one command, turns an error into one line and an exit code.

Exit codes: 0 done, 1 failed, 2 wrong input, 3 not found, 4 conflict, 5 refused, 6 database or service failed,
7 answered but not saved, 130 interrupted. `command_line` declares the commands; the module of a command is imported
when it runs.
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

from threadline.cli.command_line import build_parser
from threadline.cli.completion import complete
from threadline.cli.printable import printable
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
            # A terminal with a narrow encoding must not crash the command: it prints "?" instead.
            stream.reconfigure(errors="replace")
    parser = build_parser()
    complete(parser)
    args = parser.parse_args(argv)
    try:
        code: int | None = asyncio.run(_load_command(args.run)(args))
        sys.stdout.flush()
        return code or 0
    except ThreadlineError as exc:
        print(f"threadline: {printable(str(exc), multiline=True)}", file=sys.stderr)
        return next((code for kind, code in _EXIT_CODES if isinstance(exc, kind)), 1)
    except (KeyboardInterrupt, EOFError):
        print("threadline: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader closed the pipe, as `head` does
        _drop_output()
        return 0
    except OSError as exc:
        _drop_output()
        print(f"threadline: {printable(exc.filename or 'standard output')}: {exc.strerror or exc}", file=sys.stderr)
        return 1


def _drop_output() -> None:
    """Sends standard output to /dev/null: the interpreter flushes it again at exit, and that must not fail too."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _load_command(name: str) -> Callable[[argparse.Namespace], Coroutine[Any, Any, int | None]]:
    module, _, function = name.partition(":")
    command: Callable[[argparse.Namespace], Coroutine[Any, Any, int | None]] = getattr(
        import_module(f"threadline.cli.{module}"), function
    )
    return command
