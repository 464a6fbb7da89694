"""Masking: removes secrets before a text is stored, logged or shown.

`SecretMasker` masks whole texts and structured values; its `stream()` returns a `StreamMasker` for one text that
arrives in chunks. Rules are data (`rules`, `name_rules`), written in a small language (`patterns`), and matched against
a normal form of the text (`normal_form`). A prefilter selects the few rules that can match at all (`matcher`).
"""

from threadline.core.masking.masker import SecretMasker
from threadline.core.masking.stream import StreamMasker

__all__ = ["SecretMasker", "StreamMasker"]
