"""The terminal: `threadline`."""

from threadline.cli.main import main

__all__ = ["main"]
