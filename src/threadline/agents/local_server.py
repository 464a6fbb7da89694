"""The process that a local model lives in: llama.cpp's own server, for the one who started it.

Run as a program, with the model's file and the context's size as arguments and the key on standard input. It prints its
address when the model is loaded and ends when its standard input does, so it cannot outlive whoever started it.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

xllamacpp: Any = importlib.import_module("xllamacpp")  # it carries no types

QUIET = -1


def main() -> None:
    path, context_tokens = sys.argv[1:]
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = int(context_tokens)
    params.n_parallel = 1
    params.verbosity = QUIET
    params.ui = False
    params.api_keys = [sys.stdin.readline().strip()]
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()
    # Its threads may be in the middle of a word that nobody waits for any more.
    os._exit(0)


if __name__ == "__main__":
    main()
