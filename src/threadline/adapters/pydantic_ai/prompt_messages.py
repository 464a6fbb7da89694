"""A prompt as messages of Pydantic AI. Reasoning is left out: its signature is valid for one provider only."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from pydantic_ai.messages import (
    BinaryContent,
    DocumentUrl,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from threadline.adapters.framework_agent import Handover
from threadline.core import jsontext
from threadline.core.files import embedded, is_web_url
from threadline.core.parts import FilePart, Part, ToolPart, plain_text
from threadline.core.parts import TextPart as OurText
from threadline.core.prompts import file_note, outcome_text, split_rounds, text_with_file_notes, wrap_input


class History(NamedTuple):
    """`request` is None where the run continues a reply."""

    messages: list[ModelMessage]
    request: Any | None


def to_history(handover: Handover) -> History:
    """Calls that have been decided since are without a result: the run gives them one."""
    messages = list(handover.messages)
    request = user_content(messages.pop().parts) if messages and messages[-1].role == "user" else None
    found: list[ModelMessage] = []
    for message in messages:
        if message.role == "user":
            found.append(ModelRequest(parts=[UserPromptPart(content=user_content(message.parts))]))
        else:
            found += responses(message.parts, handover.decided_ids)
    return History(found, request)


def responses(parts: Sequence[Part], undecided: Collection[str] = ()) -> list[ModelMessage]:
    found: list[ModelMessage] = []
    for said, calls in split_rounds(parts):
        text = text_with_file_notes(said)
        shown: list[Any] = [TextPart(text)] if text else []
        shown += [ToolCallPart(call.name, jsontext.parse(wrap_input(call)), call.call_id) for call in calls]
        if shown:
            found.append(ModelResponse(parts=shown))
        results = [_result(call) for call in calls if call.call_id not in undecided]
        if results:
            found.append(ModelRequest(parts=results))
    return found


def _result(call: ToolPart) -> ToolReturnPart:
    content = call.output_value() if call.state == "output-available" else outcome_text(call)
    found = ToolReturnPart(tool_name=call.name, content=content, tool_call_id=call.call_id)
    if call.state == "output-denied":
        found.outcome = "denied"
    elif call.state == "output-error":
        found.outcome = "failed"
    return found


def user_content(parts: Sequence[Part]) -> Any:
    if not any(isinstance(part, FilePart) for part in parts):
        return plain_text(parts)
    return [_content(part) for part in parts if isinstance(part, OurText | FilePart)]


def _content(part: OurText | FilePart) -> Any:
    if isinstance(part, OurText):
        return part.text
    found = embedded(part)
    if found is not None:
        return BinaryContent(data=found.content, media_type=found.media_type)
    if is_web_url(part):
        kind = ImageUrl if part.media_type.startswith("image/") else DocumentUrl
        return kind(url=part.url, media_type=part.media_type)
    return file_note(part)
