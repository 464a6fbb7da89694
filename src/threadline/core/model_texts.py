"""The settings of texts that an agent's own model writes beside its turns."""

from __future__ import annotations

from typing import Annotated

import msgspec


class CompactionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Summaries of older messages. `automatic` writes one when the window is nearly full. `seconds` is for one call of
    the model."""

    automatic: bool = True
    seconds: Annotated[float, msgspec.Meta(gt=0)] = 60.0


class TitleSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Titles of threads. `by_model` asks the agent's model after the first reply; otherwise the title is the first
    words. `seconds` is for that call."""

    by_model: bool = True
    seconds: Annotated[float, msgspec.Meta(gt=0)] = 20.0
