"""Message bodies as they are stored: JSON, compressed with zstd if it is long.

Compression halves the disk space and the write-ahead log of a turn, and costs less than PostgreSQL's own attempt to
compress. No JSON text begins with the first byte of a zstd frame, so a body needs no flag.
"""

from __future__ import annotations

import zstandard

_MIN_COMPRESSED_BYTES = 1024
_ZSTD_FIRST_BYTE = 0x28


class Bodies:
    """One per store, because neither object may be used by two threads at the same time."""

    def __init__(self) -> None:
        self._compress = zstandard.ZstdCompressor(level=1).compress
        self._decompress = zstandard.ZstdDecompressor().decompress

    def pack(self, body: bytes) -> bytes:
        return body if len(body) < _MIN_COMPRESSED_BYTES else self._compress(body)

    def unpack(self, stored: bytes) -> bytes:
        return self._decompress(stored) if stored[0] == _ZSTD_FIRST_BYTE else stored
