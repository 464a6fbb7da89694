"""Ports that are named before anybody listens on them.

The kernel gives those of its own range to every connection that is made, so one of them may be gone a moment after it
was found free, for the minute that its last packets may still be under way. These come from below that range.
"""

from __future__ import annotations

import random
import socket

_LOWEST, _HIGHEST = 20_000, 32_767


def free_port() -> int:
    """A port of 127.0.0.1 on which nobody listens, and which nobody is given by chance."""
    while True:
        # Not the seeded chance of a test: two processes would draw the same numbers.
        port = random.SystemRandom().randint(_LOWEST, _HIGHEST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
