"""Keeps a Synapse running while anybody uses it. Run by `synapse.py`, with the server's folder and its Python.

It waits for a lock that every user of the server shares. When it gets it, the last user is gone, and so is the server.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path


def main(home: Path, python: str) -> None:
    command = [python, "-m", "synapse.app.homeserver", "--config-path", str(home / "homeserver.yaml")]
    server = subprocess.Popen(command, cwd=home)
    threading.Thread(target=_tell_of_the_end, args=(server, home), daemon=True).start()
    users = os.open(home / "users", os.O_RDWR)
    fcntl.flock(users, fcntl.LOCK_EX)
    server.kill()
    server.wait()
    shutil.rmtree(home, ignore_errors=True)


def _tell_of_the_end(server: subprocess.Popen[bytes], home: Path) -> None:
    server.wait()
    if home.is_dir():
        (home / "ended").touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
