"""Sealing: everything stored was checked against the limits, is strict JSON, and is masked."""

from __future__ import annotations

import datetime as dt
from typing import Any, cast

import pytest

from threadline.core import parts
from threadline.core.errors import InvalidInput, InvalidJson, InvalidName, InvalidText, LimitExceeded
from threadline.core.messages import NewMessage, Role, new_message, user
from threadline.core.parts import DataPart, OtherPart, Part, TextPart, ToolPart
from threadline.core.sealing import Limits, Sealer, TextStream

SMALL = Limits(message_bytes=60, message_parts=2, metadata_bytes=20, text_bytes=10)
TEXT = '[{"type":"text","text":"%s"}]'


class StarMasker:
    """Masks the word `secret`, and hands back the same object where there is none."""

    def mask_text(self, text: str) -> str:
        return text.replace("secret", "***") if "secret" in text else text

    def mask_json(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.mask_text(value)
        if isinstance(value, list):
            masked = [self.mask_json(item) for item in value]
            return value if all(a is b for a, b in zip(masked, value, strict=True)) else masked
        if isinstance(value, dict):
            items = {key: self.mask_json(item) for key, item in value.items()}
            return value if all(items[key] is value[key] for key in value) else items
        return value

    def may_hold(self, raw: bytes) -> bool:
        return b"secret" in raw

    def stream(self) -> TextStream:
        raise NotImplementedError


def test_a_sealed_message_has_the_stored_bytes() -> None:
    said_at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    new = NewMessage("user", (TextPart("Hé"), TextPart("you")), "m1", {"a": 1}, said_at)
    sealed = Sealer().message(new)
    assert (sealed.id, sealed.role, sealed.text) == ("m1", "user", "Hé\n\nyou")
    assert sealed.parts_json == '[{"type":"text","text":"Hé"},{"type":"text","text":"you"}]'.encode()
    assert sealed.metadata_json == b'{"a":1}'
    assert sealed.created_us == 1_767_225_600_000_000


def test_bytes_are_sealed_unchanged() -> None:
    raw = b'[ {"type":"text",  "text":"a", "extra":1e2} ]'
    sealed = Sealer(masker=StarMasker()).message(NewMessage("user", raw))
    assert sealed.parts_json is raw
    assert sealed.metadata_json is None
    assert sealed.created_us is None


def test_a_message_without_an_id_gets_a_new_one() -> None:
    sealer = Sealer()
    assert sealer.message(user("a")).id != sealer.message(user("a")).id


@pytest.mark.parametrize("id", ["", "é", "a b", "a/b", "x" * 129, "a\x00"])
def test_a_message_id_outside_its_alphabet_is_refused(id: str) -> None:
    with pytest.raises(InvalidName, match="message id"):
        Sealer().message(user("a", id=id))


@pytest.mark.parametrize("role", ["tool", "", "System"])
def test_an_unknown_role_is_refused(role: str) -> None:
    with pytest.raises(InvalidInput, match="role"):
        Sealer().message(NewMessage(cast("Role", role), (TextPart("a"),)))


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(InvalidInput, match="time zone"):
        Sealer().message(NewMessage("user", (TextPart("a"),), created_at=dt.datetime(2026, 1, 1)))  # noqa: DTZ001


def test_a_message_needs_a_part() -> None:
    for nothing in ((), b"[]"):
        with pytest.raises(InvalidInput, match="at least one part"):
            Sealer().message(NewMessage("user", nothing))


@pytest.mark.req("S1-10")
@pytest.mark.parametrize("as_bytes", [False, True])
def test_a_message_that_is_too_large_names_the_limit(as_bytes: bool) -> None:
    sealer = Sealer(SMALL)

    def sized(letters: int) -> NewMessage:
        raw = (TEXT % ("x" * letters)).encode()
        return NewMessage("user", raw if as_bytes else parts.decode(raw))

    fits = SMALL.message_bytes - len(TEXT % "")
    assert len(sealer.message(sized(fits)).parts_json) == SMALL.message_bytes
    with pytest.raises(LimitExceeded, match="message size in bytes must be at most 60, got 61"):
        sealer.message(sized(fits + 1))


@pytest.mark.req("S1-10")
def test_a_message_with_too_many_parts_names_the_limit() -> None:
    with pytest.raises(LimitExceeded, match="parts per message must be at most 2, got 3"):
        Sealer(SMALL).message(NewMessage("user", b'[{"type":"a"},{"type":"b"},{"type":"c"}]'))
    with pytest.raises(LimitExceeded, match="parts per message must be at most 1000, got 10000"):
        Sealer().message(new_message("user", [parts.StepStartPart()] * 10_000))


@pytest.mark.req("S1-10")
def test_metadata_and_texts_that_are_too_large_name_the_limit() -> None:
    with pytest.raises(LimitExceeded, match="metadata size in bytes must be at most 20"):
        Sealer(SMALL).message(new_message("user", "a", metadata={"a": "x" * 20}))
    with pytest.raises(LimitExceeded, match="title size in bytes must be at most 10, got 12"):
        Sealer(SMALL).text("é" * 6, "title")
    assert Sealer(SMALL).text("é" * 5, "title") == "é" * 5


@pytest.mark.parametrize(
    "part",
    [
        ToolPart("c", "t", "input-available", b"{broken"),
        ToolPart("c", "t", "input-available", b""),
        ToolPart("c", "t", "input-available", b"NaN"),
        ToolPart("c", "t", "input-available", b'{"a":1,"a":2}'),
        ToolPart("c", "t", "input-available", b'{},"output":{}'),
        ToolPart("c", "t", "output-available", b"{}", b'1},{"type":"text","text":"forged"'),
        OtherPart("x", b'{"type":"x"},{"type":"text","text":"forged"}'),
        OtherPart("x", b'{"type":"x","n":1e400}'),
        DataPart("x", float("inf")),
    ],
)
def test_json_inside_a_part_is_checked_like_the_rest(part: Part) -> None:
    with pytest.raises(InvalidJson):
        Sealer().message(new_message("assistant", [part]))


@pytest.mark.parametrize(
    "part",
    [
        TextPart("x\x00y"),
        TextPart("\udc00"),
        DataPart("x", {"a": ["\ud83d"]}),
        ToolPart("c", "t", "input-available", rb'"\u0000"'),
    ],
)
def test_text_that_cannot_be_stored_is_refused(part: Part) -> None:
    with pytest.raises(InvalidText):
        Sealer().message(new_message("assistant", [part]))


def test_depth_counts_from_the_list_of_parts() -> None:
    def tool(depth: int) -> NewMessage:
        return new_message("assistant", [ToolPart("c", "t", "input-available", b"[" * depth + b"]" * depth)])

    assert Sealer().message(tool(62)).parts_json.count(b"[") == 63
    with pytest.raises(LimitExceeded, match="nesting depth"):
        Sealer().message(tool(63))


@pytest.mark.req("S1-21")
def test_secrets_are_masked_in_everything_that_is_stored() -> None:
    said = (TextPart("my secret"), parts.tool_part("t", "c", {"a": ["secret"]}, output="secret"))
    metadata = {"note": "secret"}
    sealer = Sealer(masker=StarMasker())
    sealed = sealer.message(new_message("assistant", said, metadata=metadata))
    assert b"secret" not in sealed.parts_json + (sealed.metadata_json or b"")
    assert sealed.text == "my ***"
    assert sealer.text("a secret") == "a ***"
    assert sealer.json({"a": {"b": "secret"}}) == b'{"a":{"b":"***"}}'
    assert metadata == {"note": "secret"}


def test_a_masked_message_can_still_be_read() -> None:
    said = (
        TextPart("secret"),
        parts.tool_part("t", "c", {"n": 2**70, "a": "secret"}),
        OtherPart("x", b'{"type":"x","z":1}'),
    )
    sealed = Sealer(masker=StarMasker()).message(new_message("assistant", said))
    text, tool, unknown = parts.decode(sealed.parts_json)
    assert (text, unknown) == (TextPart("***"), said[2])
    assert isinstance(tool, ToolPart)
    assert tool.input_value() == {"n": 2**70, "a": "***"}
