"""Importing the conversations of another program, as `threadline threads import` does."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.arena import Arena
from bench.budgets import HISTORY_IMPORT, HISTORY_IMPORT_AGAIN, HISTORY_IMPORT_MEMORY, OURS
from bench.children import Child, ImportOrder, ImportReport
from bench.contenders.ours import place_for_ours
from bench.results import Row
from bench.workload import endless_turns

MESSAGES = 20
_STARTED = 1_700_000_000


async def history_import(arena: Arena) -> list[Row]:
    """An export of ChatGPT with 10,000 conversations of 20 messages each, every tenth with an edited question: the
    minutes until all are stored, those of a repetition, which stores nothing, and the peak of memory."""
    conversations = arena.sized(10_000, 200)
    file = arena.file("conversations").with_suffix(".json")
    _write(file, conversations)
    order = ImportOrder(await place_for_ours(arena), str(file))
    first, again = [await (await Child.start("import", order)).report(ImportReport, seconds=800) for _ in range(2)]
    file.unlink()
    if (first.created, again.unchanged) != (conversations, conversations):
        raise RuntimeError(f"imported {first.created} and found {again.unchanged} of {conversations} conversations")
    at = f"{conversations:,} conversations, {conversations * MESSAGES:,} messages"
    return [
        Row(HISTORY_IMPORT.name, OURS, "min", first.seconds / 60, at=at),
        Row(HISTORY_IMPORT_AGAIN.name, OURS, "min", again.seconds / 60, at=at),
        Row(HISTORY_IMPORT_MEMORY.name, OURS, "MB", max(first.peak_megabytes, again.peak_megabytes), at=at),
    ]


def _write(file: Path, count: int) -> None:
    texts = itertools.cycle([text for turn in itertools.islice(endless_turns(), 2_000) for text in turn[:2]])
    with file.open("w", encoding="utf-8") as out:
        out.write("[")
        for number in range(count):
            out.write(("," if number else "") + json.dumps(_conversation(number, texts)))
        out.write("]")


def _conversation(number: int, texts: Iterator[str]) -> dict[str, Any]:
    started = _STARTED + 1_000 * number
    mapping: dict[str, Any] = {"root": {"id": "root", "message": None, "parent": None, "children": []}}
    parent = "root"
    for place in range(MESSAGES):
        # Every tenth conversation has a question that was edited: its last two messages answer an earlier one.
        if place == MESSAGES - 2 and number % 10 == 0:
            parent = mapping[mapping[parent]["parent"]]["parent"]
        id = f"{number:08x}-{place:04x}"
        mapping[parent]["children"].append(id)
        mapping[id] = {"id": id, "parent": parent, "children": [], "message": _message(id, place, started, texts)}
        parent = id
    return {
        "title": f"Conversation {number}",
        "create_time": started,
        "update_time": started + MESSAGES,
        "mapping": mapping,
        "current_node": parent,
        "conversation_id": f"{number:032x}",
        "id": f"{number:032x}",
    }


def _message(id: str, place: int, started: int, texts: Iterator[str]) -> dict[str, Any]:
    return {
        "id": id,
        "author": {"role": "assistant" if place % 2 else "user", "name": None, "metadata": {}},
        "create_time": started + place,
        "content": {"content_type": "text", "parts": [next(texts)]},
        "status": "finished_successfully",
        "metadata": {"model_slug": "gpt-4o"} if place % 2 else {},
        "recipient": "all",
    }
