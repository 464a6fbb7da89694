"""The question before something is permanently deleted."""

from __future__ import annotations

import argparse
import sys

from threadline.cli.printable import printable
from threadline.core.errors import Refused


def confirm_deletion(args: argparse.Namespace, what: str) -> None:
    """Asks at a terminal. Refused without a yes, or without a terminal and `--yes`."""
    if args.yes:
        return
    if not sys.stdin.isatty():
        raise Refused(f"this permanently deletes {printable(what)}: add --yes to confirm")
    if input(f"Permanently delete {printable(what)}? Type yes to confirm: ").strip() != "yes":
        raise Refused("not confirmed, nothing was deleted")
