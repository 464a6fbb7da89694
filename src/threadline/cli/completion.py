"""`threadline completion`: completion of commands and options in bash, zsh and fish, by argcomplete.

The script that is printed calls `threadline` with `_ARGCOMPLETE` set; `main` then completes and does nothing else.
"""

from __future__ import annotations

import argparse
import os

from threadline.core.errors import ExtraMissing

PROGRAM = "threadline"


async def print_script(args: argparse.Namespace) -> None:
    try:
        from argcomplete.shell_integration import shellcode  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as exc:
        raise ExtraMissing("chat", "shell completion") from exc
    print(shellcode([PROGRAM], shell=args.shell))


def complete(parser: argparse.ArgumentParser) -> None:
    """Prints completions and ends the process if a shell asks for them; otherwise returns."""
    if "_ARGCOMPLETE" not in os.environ:
        return
    try:
        from argcomplete import autocomplete  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        return
    autocomplete(parser)
