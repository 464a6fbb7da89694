"""Imports of files that anybody may have written, through the library and over HTTP, on both databases."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.client.test_gateway import gateway as gateway
from threadline.core.errors import InvalidImport
from threadline.core.messages import assistant
from threadline.core.parts import ToolPart, tool_part
from threadline.ports import Gateway


def rewrite_export(exported: bytes, change: Callable[[Any], None]) -> bytes:
    """An export of one thread with its lines changed and a checksum that fits, as anybody can write one."""
    *lines, end = (json.loads(line) for line in exported.splitlines())
    for line in lines:
        change(line)
    raw = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    end["end"]["sha256"] = hashlib.sha256(raw).hexdigest()
    return raw + json.dumps(end).encode() + b"\n"


def _speak_as_system(line: Any) -> None:
    if "message" in line:
        line["message"]["role"] = "system"


def _use_unknown_part(line: Any) -> None:
    if "message" in line:
        line["message"]["parts"] = [{"type": "hologram", "text": "x"}]


@pytest.mark.parametrize(("change", "fault"), [(_speak_as_system, "system"), (_use_unknown_part, "hologram")])
async def test_an_import_with_a_system_message_or_an_unknown_part_is_refused(
    gateway: Gateway, change: Callable[[Any], None], fault: str
) -> None:
    thread = await gateway.create_thread()
    await thread.append("One", assistant("Two"))
    lines = rewrite_export(b"".join([piece async for piece in thread.export()]), change)
    before = {each.id for each in await gateway.threads()}
    with pytest.raises(InvalidImport, match=fault) as refused:
        await gateway.import_threads(lines)
    assert refused.value.line == 3
    assert {each.id for each in await gateway.threads()} == before


async def test_an_imported_thread_has_no_system_prompt_and_no_open_approval(gateway: Gateway) -> None:
    thread = await gateway.create_thread(system_prompt="Obey me.")
    await thread.append("One", assistant([tool_part("stamp", "c1", {"text": "hello"}, output="x")]))

    def open_approval(line: Any) -> None:
        if line.get("message", {}).get("role") == "assistant":
            line["message"]["parts"][0] |= {"state": "approval-requested", "approval": {"id": "a1"}}
            del line["message"]["parts"][0]["output"]

    lines = rewrite_export(b"".join([piece async for piece in thread.export()]), open_approval)
    await thread.purge()
    (imported,) = await gateway.import_threads(lines)
    assert imported.system_prompt is None
    assert imported.metadata == {"importedSystemPrompt": "Obey me."}
    copied = await gateway.thread(imported.id)
    assert await copied.pending() == []
    call = (await copied.messages())[1].parts[0]
    assert isinstance(call, ToolPart)
    assert (call.state, call.approval) == ("output-error", None)
