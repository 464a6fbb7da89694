"""The entry point: reads the command line, runs one command, turns errors into one line and an exit code.

Exit codes: 0 done, 1 failed, 2 wrong input, 3 not found, 4 conflict, 5 refused, 6 the database failed, 130 interrupted.
Commands live in modules of their own, which declare their arguments beside the code that runs them and import what is
heavy only when they run.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence

from threadline.cli import admin, contexts, threads
from threadline.cli.chat import command as chat
from threadline.cli.output import shown
from threadline.core.errors import (
    Conflict,
    InvalidInput,
    NotFound,
    Refused,
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
)


def main(argv: Sequence[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    try:
        code: int | None = asyncio.run(args.run(args))
        sys.stdout.flush()
        return code or 0
    except ThreadlineError as exc:
        print(f"threadline: {shown(str(exc))}", file=sys.stderr)
        return next((code for kind, code in _EXIT_CODES if isinstance(exc, kind)), 1)
    except KeyboardInterrupt:
        print("threadline: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Whoever read our output has enough; the interpreter's own flush at exit must not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="threadline",
        description="Keeps the conversations between people and AI agents.",
        epilog="Settings come from threadline.toml and THREADLINE_* variables; options win over both.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    common = _common_options()
    for module in (chat, threads, contexts, admin):
        module.add_commands(commands, common)
    return parser


def _common_options() -> argparse.ArgumentParser:
    """Options that every command takes, wherever they stand after it."""
    common = argparse.ArgumentParser(add_help=False)
    group = common.add_argument_group("common options")
    group.add_argument("--database", metavar="URL", help="a file, ':memory:' or postgresql://… (default: settings)")
    group.add_argument("--settings", metavar="FILE", help="read this file instead of threadline.toml")
    group.add_argument("--tenant", help="act in this tenant (default: local)")
    group.add_argument("--user", help="act as this user (default: local)")
    return common


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from threadline import __version__  # noqa: PLC0415 - the package imports this module's siblings

        print(f"threadline {__version__}")
        parser.exit()
