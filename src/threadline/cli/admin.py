"""`threadline migrate|copy|purge|doctor`: for whoever runs the database."""

from __future__ import annotations

import argparse
from typing import Any


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    """Added with the stores."""
