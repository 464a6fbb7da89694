"""Masking during sealing: nothing sealed contains a secret, and signed reasoning is never edited."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.core.masking.secret_samples import BODY
from threadline.core import parts
from threadline.core.errors import LimitExceeded
from threadline.core.masking import SecretMasker
from threadline.core.messages import NewMessage, assistant
from threadline.core.parts import (
    DataPart,
    FilePart,
    OtherPart,
    Part,
    ReasoningPart,
    SourceDocumentPart,
    SourceUrlPart,
    TextPart,
)
from threadline.core.sealing import Sealer

SECRET = f"ghp_{BODY}"
MASK = "[masked:github-token]"
SIGNED: dict[str, Any] = {"anthropic": {"signature": "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pk"}}
SEALER = Sealer(masker=SecretMasker())


@pytest.mark.req("S1-21")
@pytest.mark.parametrize(
    "part",
    [
        TextPart(f"use {SECRET}, please"),
        ReasoningPart(f"the key is {SECRET}"),
        FilePart("image/png", f"https://x.example/{SECRET}.png", f"{SECRET}.png"),
        FilePart("image/png", "data:image/png;base64,iVBORw0KGgo", f"{SECRET}.png"),
        SourceUrlPart("s", f"https://x.example/?q={SECRET}", SECRET),
        SourceDocumentPart("s", "text/plain", SECRET, SECRET),
        DataPart("x", {"a": [SECRET]}, SECRET),
        parts.tool_part("t", "c", {"q": SECRET}, output={"r": [SECRET], SECRET: 1}),
        parts.tool_part("t", "c", SECRET, error=f"failed with {SECRET}"),
        OtherPart("new", json.dumps({"type": "new", "x": {"y": SECRET}}).encode()),
    ],
    ids=lambda part: type(part).__name__,
)
def test_no_sealed_part_contains_a_secret(part: Part) -> None:
    sealed = SEALER.message(NewMessage("assistant", (part,), metadata={"m": SECRET, SECRET: 1}))
    assert sealed.metadata_json is not None
    stored = sealed.parts_json + sealed.metadata_json + sealed.text.encode()
    assert SECRET.encode() not in stored
    assert MASK.encode() in sealed.parts_json
    assert MASK.encode() in sealed.metadata_json
    assert type(parts.decode(sealed.parts_json)[0]) is type(part)


@pytest.mark.req("S1-21")
def test_values_in_tool_inputs_and_outputs_are_masked_by_name() -> None:
    tool = parts.tool_part(
        "login", "c", {"user": "bob", "password": "hunter2"}, output={"access_token": "a b", "ok": True}
    )
    (sealed,) = parts.decode(SEALER.message(assistant((tool,))).parts_json)
    assert isinstance(sealed, parts.ToolPart)
    assert sealed.input_value() == {"user": "bob", "password": "[masked:password]"}
    assert sealed.output_value() == {"access_token": "[masked:token]", "ok": True}


@pytest.mark.req("S1-21")
def test_a_part_without_a_secret_keeps_its_bytes() -> None:
    clean = (
        b'{ "type":"reasoning", "text":"I th\\u00efnk 1.50", "providerMetadata":{"anthropic":{"signature":"Eq+/="}} }'
    )
    raw = b"[" + clean + b', {"type":"text","text":"' + SECRET.encode() + b'"}]'
    sealed = SEALER.message(NewMessage("assistant", raw))
    assert clean in sealed.parts_json
    assert SECRET.encode() not in sealed.parts_json
    assert sealed.text == MASK


@pytest.mark.parametrize(
    "signed",
    [
        ReasoningPart(f"I use {SECRET}", SIGNED),
        ReasoningPart("I think", SIGNED | {"other": {"token": "something"}}),
    ],
)
def test_signed_reasoning_with_a_secret_is_dropped(signed: ReasoningPart) -> None:
    kept = ReasoningPart("I think", SIGNED)
    sealed = SEALER.message(assistant((TextPart("a"), signed, kept)))
    assert parts.decode(sealed.parts_json) == (TextPart("a"), kept)


def test_a_message_of_only_such_reasoning_gets_a_note() -> None:
    sealed = SEALER.message(assistant((ReasoningPart(SECRET, SIGNED),)))
    assert parts.decode(sealed.parts_json) == (TextPart("[masked:reasoning]"),)


def test_reasoning_without_a_signature_is_masked_like_any_text() -> None:
    sealed = SEALER.message(assistant((ReasoningPart(f"I use {SECRET}"),)))
    assert parts.decode(sealed.parts_json) == (ReasoningPart(f"I use {MASK}"),)


def test_a_message_without_secrets_is_stored_unchanged() -> None:
    raw = b'[ {"type":"text", "text":"the token-based key: value store \\n \\"quoted\\""} ]'
    assert SEALER.message(NewMessage("user", raw)).parts_json is raw


@pytest.mark.req("S1-21", "S0-17")
def test_texts_and_metadata_pass_the_same_rules() -> None:
    assert SEALER.text(f"pinned {SECRET}") == f"pinned {MASK}"
    assert (
        SEALER.json({"a": SECRET, "password": "x"}) == b'{"a":"[masked:github-token]","password":"[masked:password]"}'
    )


def test_metadata_too_deep_is_refused_before_it_is_masked() -> None:
    deep: Any = SECRET
    for _ in range(70):
        deep = [deep]
    with pytest.raises(LimitExceeded, match="nesting depth"):
        SEALER.json({"a": deep})
