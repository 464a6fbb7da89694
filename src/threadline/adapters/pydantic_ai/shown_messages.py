"""Messages of Pydantic AI as parts of Threadline's messages. System prompts and instructions are not shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic_ai.messages import BinaryContent, ModelMessage
from pydantic_core import to_jsonable_python

from threadline.adapters.shown_parts import fit_parts
from threadline.core import jsontext
from threadline.core.errors import InvalidInput
from threadline.core.files import data_url
from threadline.core.parts import FilePart, Part, ReasoningPart, TextPart, ToolPart, tool_part
from threadline.core.sanitize import sanitize_json, sanitize_text

_CALLS = ("tool-call", "builtin-tool-call")
_RETURNS = ("tool-return", "builtin-tool-return", "retry-prompt")


def shown_parts(messages: Sequence[ModelMessage], conversation: Sequence[ModelMessage]) -> tuple[Part, ...]:
    """The parts of some messages. A call is shown with its result, which may be in a later message of the
    conversation; a result whose call is not known is shown by itself."""
    # `part_kind` decides what a part is; its classes have subclasses.
    every: list[Any] = [part for message in conversation for part in message.parts]
    called = {part.tool_call_id for part in every if part.part_kind in _CALLS}
    results = {part.tool_call_id: part for part in every if part.part_kind in _RETURNS and part.tool_call_id}
    found: list[Part] = []
    own: list[Any] = [part for message in messages for part in message.parts]
    for part in own:
        if part.part_kind in _CALLS:
            found.append(_call(part, results.get(part.tool_call_id)))
        elif part.part_kind not in _RETURNS:
            found.extend(_said(part))
        elif part.tool_call_id not in called and part.tool_name:
            found.append(_result(part.tool_name, part.tool_call_id, {}, part))
    return fit_parts(found)


def _said(part: Any) -> Iterator[Part]:
    match part.part_kind:
        case "text":
            yield TextPart(sanitize_text(part.content))
        case "thinking":
            signed = (
                {part.provider_name: {"signature": part.signature}} if part.signature and part.provider_name else None
            )
            yield ReasoningPart(sanitize_text(part.content), signed)
        case "file":
            yield _binary(part.content)
        case "user-prompt":
            for item in [part.content] if isinstance(part.content, str) else part.content:
                yield from _content(item)


def _content(item: Any) -> Iterator[Part]:
    if isinstance(item, str):
        yield TextPart(sanitize_text(item))
    elif isinstance(item, BinaryContent):
        yield _binary(item)
    elif isinstance(getattr(item, "url", None), str):
        yield FilePart(item.media_type, item.url)
    elif isinstance(getattr(item, "content", None), str):
        yield TextPart(sanitize_text(item.content))


def _binary(content: Any) -> FilePart:
    return FilePart(content.media_type, data_url(content.media_type, content.base64))


def _call(part: Any, result: Any) -> ToolPart:
    given = part.args
    if isinstance(given, str):
        try:
            given = jsontext.parse(given or "{}", "args")
        except InvalidInput:
            # The model wrote what is no JSON: the tool was not run with it.
            given = part.args
    if result is None:
        return tool_part(part.tool_name, part.tool_call_id, sanitize_json(given or {}).value)
    return _result(part.tool_name, part.tool_call_id, given or {}, result)


def _result(name: str, call_id: str, given: Any, result: Any) -> ToolPart:
    value = sanitize_json(to_jsonable_python(result.content, fallback=str, bytes_mode="base64")).value
    shown = sanitize_json(given).value
    if result.part_kind == "retry-prompt" or getattr(result, "outcome", "success") != "success":
        text = value if isinstance(value, str) else jsontext.dump(value, "result").decode()
        return tool_part(name, call_id, shown, error=text or "failed")
    return tool_part(name, call_id, shown, output=value)
