"""Masking: removes secrets before a text is stored, logged or shown.

`SecretMasker` masks whole texts and structured values; its `stream()` returns a `StreamMasker` for one text that
arrives in chunks. Rules are data (`rules`, `name_rules`), written in a small language (`patterns`), and matched against
a normal form of the text (`normal_form`). A prefilter selects the few rules that can match at all (`matcher`).
`PersonalDataMasker` masks personal data as well.
"""

from collections.abc import Collection

from threadline.core.masking.masker import SecretMasker, compile_rules
from threadline.core.masking.personal_data import PersonalDataKind, PersonalDataMasker
from threadline.core.masking.stream import StreamMasker

__all__ = ["PersonalDataKind", "PersonalDataMasker", "SecretMasker", "StreamMasker", "compile_rules", "make_masker"]


def make_masker(personal_data: Collection[PersonalDataKind]) -> SecretMasker:
    """A masker for secrets, and for these kinds of personal data."""
    return PersonalDataMasker(personal_data) if personal_data else SecretMasker()
