"""Golden files: conversations as UIMessages, and their encoding in each format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from threadline.core import parts as parts_
from threadline.core.prompts import PromptMessage

_FOLDER = Path(__file__).parent / "golden"


def golden(name: str) -> Any:
    return json.loads((_FOLDER / name).read_bytes())


def golden_prompt(name: str) -> tuple[PromptMessage, ...]:
    return tuple(
        PromptMessage(message["role"], parts_.decode(json.dumps(message["parts"]).encode())) for message in golden(name)
    )


def as_ui(messages: tuple[PromptMessage, ...]) -> list[dict[str, Any]]:
    return [{"role": message.role, "parts": json.loads(parts_.encode(message.parts))} for message in messages]
