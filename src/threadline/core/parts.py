"""Message parts, as in the AI SDK's UIMessage.

A part is a frozen value with one class per kind. `decode` reads a stored JSON array; `encode` writes one. Stored bytes
are never rewritten: a part of an unknown kind is read as `OtherPart` with its JSON unchanged. A tool call and its
result are one part, `ToolPart`, with a state. Input and output of a tool stay JSON bytes, so that numbers of any size
are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from threadline.core import jsontext
from threadline.core.errors import InvalidInput, InvalidJson

ToolState: TypeAlias = Literal[
    "input-streaming",
    "input-available",
    "approval-requested",
    "approval-responded",
    "output-available",
    "output-error",
    "output-denied",
]
_KINDS = frozenset(("text", "reasoning", "file", "source-url", "source-document", "step-start", "dynamic-tool"))
_TOOL_STATES: frozenset[str] = frozenset(get_args(ToolState))


class TextPart(msgspec.Struct, frozen=True):
    text: str


class ReasoningPart(msgspec.Struct, frozen=True):
    """A model's reasoning. Signed reasoning (see `provider_metadata`) goes back to its provider only unchanged."""

    text: str
    provider_metadata: dict[str, Any] | None = None


class FilePart(msgspec.Struct, frozen=True):
    media_type: str
    url: str
    filename: str | None = None


class SourceUrlPart(msgspec.Struct, frozen=True):
    source_id: str
    url: str
    title: str | None = None


class SourceDocumentPart(msgspec.Struct, frozen=True):
    source_id: str
    media_type: str
    title: str
    filename: str | None = None


class StepStartPart(msgspec.Struct, frozen=True):
    """The boundary between two rounds of the model."""


class DataPart(msgspec.Struct, frozen=True):
    name: str
    data: Any
    id: str | None = None


class Approval(msgspec.Struct, frozen=True):
    id: str
    approved: bool | None = None
    reason: str | None = None


class ToolPart(msgspec.Struct, frozen=True):
    """A tool call and its result, if there is one. `input` and `output` are JSON bytes."""

    call_id: str
    name: str
    state: ToolState
    input: bytes | None = None
    output: bytes | None = None
    error: str | None = None
    approval: Approval | None = None
    dynamic: bool = False

    @property
    def is_answered(self) -> bool:
        return self.state in ("output-available", "output-error", "output-denied")

    def input_value(self) -> Any:
        return None if self.input is None else jsontext.parse(self.input, "tool input")

    def output_value(self) -> Any:
        return None if self.output is None else jsontext.parse(self.output, "tool output")


class OtherPart(msgspec.Struct, frozen=True):
    """A part of a kind that this version does not know. `json` is the whole part as stored."""

    type: str
    json: bytes


Part: TypeAlias = (
    TextPart
    | ReasoningPart
    | FilePart
    | SourceUrlPart
    | SourceDocumentPart
    | StepStartPart
    | DataPart
    | ToolPart
    | OtherPart
)


class _WireApproval(msgspec.Struct):
    id: str
    approved: bool | None = None
    reason: str | None = None


class _Wire(msgspec.Struct, rename="camel"):
    """The keys of all known kinds: the fastest way to decode a list of mixed kinds in one pass."""

    type: str
    text: str | None = None
    state: str | None = None
    provider_metadata: dict[str, Any] | None = None
    media_type: str | None = None
    url: str | None = None
    filename: str | None = None
    source_id: str | None = None
    title: str | None = None
    id: str | None = None
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    tool_call_id: str | None = None
    tool_name: str | None = None
    input: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    output: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error_text: str | None = None
    approval: _WireApproval | None = None


class _Kind(msgspec.Struct):
    type: str


class _TextOut(msgspec.Struct, tag_field="type", tag="text"):
    text: str


class _ApprovalOut(msgspec.Struct, omit_defaults=True):
    id: str
    approved: bool | None = None
    reason: str | None = None


class _ToolOut(msgspec.Struct, rename="camel"):
    """A tool part with its keys in the order they are written; unset keys are omitted."""

    type: str
    tool_name: str | msgspec.UnsetType
    tool_call_id: str
    state: str
    error_text: str | msgspec.UnsetType
    approval: _ApprovalOut | msgspec.UnsetType
    input: msgspec.Raw | msgspec.UnsetType
    output: msgspec.Raw | msgspec.UnsetType


_decode_wires = msgspec.json.Decoder(list[_Wire]).decode
_decode_wire = msgspec.json.Decoder(_Wire).decode
_decode_kind = msgspec.json.Decoder(_Kind).decode
_decode_raws = msgspec.json.Decoder(list[msgspec.Raw]).decode


def decode(raw: bytes) -> tuple[Part, ...]:
    """The parts of a stored JSON array. InvalidJson if it is not an array of objects with a `type`."""
    try:
        wires = _decode_wires(raw)
    except msgspec.ValidationError:
        # A key has a type that no known kind gives it; a part of an unknown kind may do that.
        return _decode_one_by_one(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise InvalidJson(f"parts must be a list of message parts: {exc}") from exc
    parts = [_known(wire) for wire in wires]
    if None not in parts:
        return tuple(part for part in parts if part is not None)
    raws = _decode_raws(raw)
    return tuple(
        OtherPart(wire.type, bytes(raws[index])) if part is None else part
        for index, (wire, part) in enumerate(zip(wires, parts, strict=True))
    )


def split(raw: bytes) -> list[bytes]:
    """The unchanged JSON of each part of a valid array."""
    return [bytes(part) for part in _decode_raws(raw)]


def _decode_one_by_one(raw: bytes) -> tuple[Part, ...]:
    parts: list[Part] = []
    try:
        for item in _decode_raws(raw):
            kind = _decode_kind(item).type
            wire = _decode_wire(item) if _is_known_kind(kind) else None
            parts.append((wire and _known(wire)) or OtherPart(kind, bytes(item)))
    except msgspec.DecodeError as exc:
        raise InvalidJson(f"parts must be a list of message parts: {exc}") from exc
    return tuple(parts)


def _is_known_kind(kind: str) -> bool:
    return kind in _KINDS or kind.startswith(("tool-", "data-"))


def _known(wire: _Wire) -> Part | None:
    match wire.type:
        case "text" if wire.text is not None:
            return TextPart(wire.text)
        case "reasoning" if wire.text is not None:
            return ReasoningPart(wire.text, wire.provider_metadata)
        case "step-start":
            return StepStartPart()
        case "file" if wire.media_type is not None and wire.url is not None:
            return FilePart(wire.media_type, wire.url, wire.filename)
        case "source-url" if wire.source_id is not None and wire.url is not None:
            return SourceUrlPart(wire.source_id, wire.url, wire.title)
        case "source-document" if wire.source_id is not None and wire.media_type is not None and wire.title is not None:
            return SourceDocumentPart(wire.source_id, wire.media_type, wire.title, wire.filename)
        case "dynamic-tool":
            return _tool(wire, wire.tool_name, dynamic=True)
        case kind if kind.startswith("tool-"):
            return _tool(wire, kind[5:], dynamic=False)
        case kind if kind.startswith("data-") and wire.data is not msgspec.UNSET:
            return DataPart(kind[5:], msgspec.json.decode(wire.data), wire.id)
    return None


def _tool(wire: _Wire, name: str | None, *, dynamic: bool) -> ToolPart | None:
    if not name or wire.tool_call_id is None or wire.state not in _TOOL_STATES:
        return None
    given = wire.approval
    approval = None if given is None else Approval(given.id, given.approved, given.reason)
    return ToolPart(
        call_id=wire.tool_call_id,
        name=name,
        state=wire.state,  # type: ignore[arg-type]  # one of _TOOL_STATES, as checked above
        input=None if wire.input is msgspec.UNSET else bytes(wire.input),
        output=None if wire.output is msgspec.UNSET else bytes(wire.output),
        error=wire.error_text,
        approval=approval,
        dynamic=dynamic,
    )


def encode(parts: Sequence[Part]) -> bytes:
    """The JSON array of these parts, with the AI SDK's key names; absent values are omitted."""
    return jsontext.write([_outgoing(part) for part in parts], "message part")


def _outgoing(part: Part) -> _TextOut | _ToolOut | msgspec.Raw:
    if isinstance(part, TextPart):
        if not isinstance(part.text, str):
            raise InvalidInput(f"text of a text part must be a string, got {jsontext.type_of(part.text)}")
        return _TextOut(part.text)
    if isinstance(part, ToolPart):
        return _tool_out(part)
    encoded: bytes | None = _encode_one(part)
    if encoded is None:  # callers without a type checker pass strings and dicts
        fault = f"got {type(part).__name__}"
        raise InvalidInput(f"each part of a message must be a part such as threadline.TextPart(…), {fault}")
    return msgspec.Raw(encoded)


def _encode_one(
    part: ReasoningPart | FilePart | SourceUrlPart | SourceDocumentPart | StepStartPart | DataPart | OtherPart,
) -> bytes:
    match part:
        case ReasoningPart():
            return _object({"type": "reasoning", "text": part.text, "providerMetadata": part.provider_metadata})
        case FilePart():
            return _object({"type": "file", "mediaType": part.media_type, "url": part.url, "filename": part.filename})
        case SourceUrlPart():
            return _object({"type": "source-url", "sourceId": part.source_id, "url": part.url, "title": part.title})
        case SourceDocumentPart():
            return _object(
                {
                    "type": "source-document",
                    "sourceId": part.source_id,
                    "mediaType": part.media_type,
                    "title": part.title,
                    "filename": part.filename,
                }
            )
        case StepStartPart():
            return b'{"type":"step-start"}'
        case DataPart():
            head = {"type": f"data-{part.name}", "data": part.data}
            return jsontext.dump(head if part.id is None else {**head, "id": part.id}, "data part")
        case OtherPart():
            return part.json


def _object(fields: dict[str, Any]) -> bytes:
    return jsontext.dump({key: value for key, value in fields.items() if value is not None}, "part")


def _tool_out(part: ToolPart) -> _ToolOut:
    unset = msgspec.UNSET
    given = part.approval
    return _ToolOut(
        "dynamic-tool" if part.dynamic else f"tool-{part.name}",
        part.name if part.dynamic else unset,
        part.call_id,
        part.state,
        unset if part.error is None else part.error,
        unset if given is None else _ApprovalOut(given.id, given.approved, given.reason),
        unset if part.input is None else msgspec.Raw(part.input),
        unset if part.output is None else msgspec.Raw(part.output),
    )


def plain_text(parts: Sequence[Part]) -> str:
    """The text parts, separated by blank lines. Used for search and titles."""
    return "\n\n".join([part.text for part in parts if isinstance(part, TextPart)])


def tool_part(
    name: str,
    call_id: str,
    input: Any,
    *,
    output: Any = msgspec.UNSET,
    error: str | None = None,
    dynamic: bool = False,
) -> ToolPart:
    """A tool part from plain Python data: finished if an output or an error is given, open otherwise."""
    if output is not msgspec.UNSET and error is not None:
        raise InvalidInput("tool call must have an output or an error, got both")
    answered = output is not msgspec.UNSET
    return ToolPart(
        call_id=call_id,
        name=name,
        state="output-error" if error is not None else "output-available" if answered else "input-available",
        input=jsontext.dump(input, "tool input"),
        output=jsontext.dump(output, "tool output") if answered else None,
        error=error,
        dynamic=dynamic,
    )
