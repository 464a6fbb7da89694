"""Options of one turn: what a request asks of this reply alone. They are stored with the turn and change no thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from threadline.core.model_options import ModelOptions

SEEN_KEY = "options"
"""In `Turn.seen`."""


class TurnOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """`instructions` is a system message of this turn, after the agent's own. `response_format` is passed on to the
    model as it is. `metadata` is the caller's own. `previous` is the turn that the request continues. `earlier` counts
    the messages that were stored with the request, right before it. `answered` are the calls whose outputs came with a
    request that is a message."""

    instructions: str | None = None
    response_format: dict[str, Any] | None = None
    metadata: dict[str, str] = {}
    background: bool = False
    previous: str | None = None
    earlier: int = 0
    answered: tuple[str, ...] = ()
    model_options: ModelOptions = ModelOptions()


def stored_options(options: TurnOptions) -> dict[str, Any]:
    """For `Turn.seen`."""
    return {} if options == TurnOptions() else {SEEN_KEY: msgspec.to_builtins(options)}


def options_in(seen: Mapping[str, Any]) -> TurnOptions:
    """`seen` is the turn's."""
    return msgspec.convert(seen.get(SEEN_KEY, {}), TurnOptions)
