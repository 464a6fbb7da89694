"""The process of a local model: llama.cpp's own HTTP server, for the process that started it.

A program: the arguments are the model's file and the context size, the key is read from standard input. It prints its
address once the model is loaded and exits when its standard input closes, so it cannot outlive its parent.
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
    # A normal exit would wait for threads that may still be generating text.
    os._exit(0)


if __name__ == "__main__":
    main()
