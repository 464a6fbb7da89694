"""Hypothesis strategies for masking: secrets whole, broken, hidden and joined, within prose."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.core.masking.secret_samples import LOOK_ALIKES, SECRETS
from threadline.core.masking.masker import TEXT_RULES

_WHOLE = [before + secret + after for _, before, secret, after in SECRETS]
_ANCHORS = sorted({anchor for rule in TEXT_RULES for anchor in rule.anchors})
_GLUE = ["", " ", "\n", "-", "_", ".", ":", "=", '"', '\\"', "'", "@", "/", "%", "%2D", "%25", "\\", "\\u0", "\\n", "["]
_HIDING = ["\u200b", "\u200b" * 40, "\ufe0f", "[masked:token]", "é", "日", "A1", "eyJ", "x" * 30, "1" * 9, "a", "S"]

_pieces = (
    st.sampled_from(_WHOLE)
    | st.sampled_from(_ANCHORS)
    | st.sampled_from(LOOK_ALIKES)
    | st.sampled_from(_GLUE)
    | st.sampled_from(_HIDING)
    | st.text(max_size=4)
)


@st.composite
def _broken(draw: st.DrawFn) -> str:
    """Part of a secret, perhaps with something in the middle of it."""
    text = draw(st.sampled_from(_WHOLE))
    start, end = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
    at = draw(st.integers(start, end))
    return text[start:at] + draw(st.sampled_from(_GLUE + _HIDING)) + text[at:end]


texts = st.lists(_pieces | _broken(), max_size=8).map("".join)


@st.composite
def cut_texts(draw: st.DrawFn) -> list[str]:
    """A text in pieces; some cuts are everywhere, some in a few places."""
    text = draw(texts)
    if draw(st.booleans()):
        size = draw(st.integers(1, 7))
        return [text[at : at + size] for at in range(0, len(text), size)]
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=6)))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
