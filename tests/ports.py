"""Free TCP ports for servers that tests start.

The kernel assigns ports of its own range to outgoing connections, so a port of that range that is free now may be taken
a moment later. These ports are below that range.
"""

from __future__ import annotations

import random
import socket

_LOWEST, _HIGHEST = 20_000, 32_767


def free_port() -> int:
    """A port of 127.0.0.1 that is free, and outside the range from which the kernel assigns ports."""
    while True:
        # Not the seeded generator of a test: two processes would draw the same numbers.
        port = random.SystemRandom().randint(_LOWEST, _HIGHEST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
