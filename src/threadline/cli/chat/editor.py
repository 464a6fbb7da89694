"""Writes a text in the user's editor: `/edit` and `/summary edit` in a chat."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import tempfile
from pathlib import Path

from threadline.core.errors import InvalidInput

_DEFAULT = "vi"


async def edit_text(text: str) -> str | None:
    """Opens $VISUAL or $EDITOR with the text; what it was saved as, None if that is blank. InvalidInput if the editor
    cannot be started or reports a failure."""
    editor = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or _DEFAULT)
    with tempfile.TemporaryDirectory(prefix="threadline-") as folder:
        # A folder of its own: editors put swap files beside the file, which must be as private as the text.
        file = Path(folder) / "message.md"
        file.write_text(text, encoding="utf-8")
        loop = asyncio.get_running_loop()
        # Ctrl-C in the editor also reaches this process, which would end the chat.
        loop.add_signal_handler(signal.SIGINT, lambda: None)
        try:
            ended = await asyncio.to_thread(subprocess.run, [*editor, str(file)], check=False)
        except OSError as exc:
            raise InvalidInput(f"cannot start {editor[0]!r}: {exc.strerror}; set EDITOR to your editor") from exc
        finally:
            loop.remove_signal_handler(signal.SIGINT)
        if ended.returncode != 0:
            raise InvalidInput(f"{editor[0]} failed with {ended.returncode}: its text is not used")
        try:
            written = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as exc:
            raise InvalidInput(f"cannot read what {editor[0]} wrote: {exc}") from exc
    return written.rstrip("\n") if written.strip() else None
