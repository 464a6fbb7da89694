"""Masking: no secret reaches the disk, a log or another person's screen.

`SecretMasker` masks whole texts and structured values; its `stream()` is a `StreamMasker` for one text that arrives in
pieces. Rules are data (`rules`, `names`, `encoded`), written in a small language (`patterns`), tried on a normal form
of the text (`folding`) where a sieve says it is worth it (`finding`).
"""

from threadline.core.masking.masker import SecretMasker
from threadline.core.masking.stream import StreamMasker

__all__ = ["SecretMasker", "StreamMasker"]
