"""Imports into both databases: nothing twice, what has grown is added, branches can be switched to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.importers.conftest import FILES, SAMPLES
from threadline.core.history import ImportedThread
from threadline.core.parts import ReasoningPart, ToolPart
from threadline.core.sealing import Sealer
from threadline.core.threads import Scope
from threadline.importers.report import SourceReport
from threadline.importers.sources import read_histories
from threadline.ports import Store, Transaction
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.message_builders import texts
from threadline.threads.history_import import HistoryImporter

pytestmark = pytest.mark.req("G-07")


class Imports:
    def __init__(self, store: Store, clock: ManualClock, tenant_id: str) -> None:
        self._importer = HistoryImporter(store, Sealer(), clock, Scope(tenant_id, "alice"))
        self.report = SourceReport()

    async def __call__(self, source: str, path: Path, *, is_settled: bool = True) -> list[ImportedThread]:
        found = read_histories(source, path, self.report, is_settled=is_settled)
        return [await self._importer.store(history) for history in found]


@pytest.fixture
def imports(store: Store, clock: ManualClock, tenant_id: str) -> Imports:
    # After the times in the samples: an import dates nothing in the future.
    clock.advance(20 * 365 * 86_400)
    return Imports(store, clock, tenant_id)


async def test_repeating_an_import_imports_nothing_twice(
    imports: Imports, alice: Transaction, sample: tuple[str, Path]
) -> None:
    first = await imports(*sample)
    assert {each.outcome for each in first} == {"created"}
    before = [await alice.messages(each.thread.id) for each in first]
    again = await imports(*sample)
    assert [(each.outcome, each.messages) for each in again] == [("unchanged", 0)] * len(first)
    assert [await alice.messages(each.thread.id) for each in again] == before
    assert len((await alice.threads(archived=None)).items) == len(first)
    assert imports.report.faults == []
    assert all(message.role != "system" for history in before for message in history)


async def test_a_grown_session_adds_only_what_is_new(imports: Imports, alice: Transaction, tmp_path: Path) -> None:
    for source in ("claude-code", "codex"):
        lines = FILES[source].read_text(encoding="utf-8").splitlines(keepends=True)
        path = tmp_path / FILES[source].name
        for length in range(1, len(lines) + 1):
            # The file while it is being written: what may still grow waits.
            path.write_text("".join(lines[:length]), encoding="utf-8")
            await imports(source, path, is_settled=False)
        grown = await imports(source, path)
        (whole,) = [each for each in grown if "agent" not in each.thread.metadata]
        fresh = {history.origin: history for history in read_histories(source, FILES[source], SourceReport())}
        expected = len(await alice.timelines(whole.thread.id))
        assert expected == sum("Timeline" in type(item).__name__ for item in next(iter(fresh.values())).items), source
        assert (await imports(source, path))[0].outcome == "unchanged"


async def test_claude_codes_branches_calls_and_signatures_are_kept(imports: Imports, alice: Transaction) -> None:
    thread, side = [each.thread for each in await imports("claude-code", FILES["claude-code"])]
    assert (thread.title, thread.working_dir, thread.model) == ("Trip to Lisbon", "/home/ada/trips", "claude-opus-4-5")
    assert (side.metadata["agent"], side.metadata["session"]) == ("agent-7", thread.metadata["session"])
    messages = await alice.messages(thread.id)
    assert texts(messages)[-4:] == ["Nearer to the sea?", "Cascais.", "And now?", "Book it."]
    thinking, _, read, listed = messages[1].parts
    assert isinstance(thinking, ReasoningPart)
    assert thinking.provider_metadata == {"anthropic": {"signature": "EqQBCkYIBxgCKkB+q/Zz=="}}
    assert isinstance(read, ToolPart)
    assert isinstance(listed, ToolPart)
    assert (read.output_value(), listed.error) == ("# Plan", "no such folder")
    other, present = await alice.timelines(thread.id)
    assert present.id == thread.timeline_id
    assert texts(await alice.messages(thread.id, timeline_id=other.id))[-2:] == ["Cheaper?", "Graça."]
    (turn, *_) = await alice.past_turns(thread.id)
    assert (turn.model, turn.surface, turn.usage["output_tokens"]) == ("claude-opus-4-5", "cli", 14)


async def test_chatgpts_branches_are_timelines(imports: Imports, alice: Transaction, tmp_path: Path) -> None:
    (done,) = await imports("chatgpt", FILES["chatgpt"])
    thread = done.thread
    assert thread.archived_at is not None
    assert texts(await alice.messages(thread.id))[-2:] == ["Where to sleep?", "Ribeira."]
    lines = await alice.timelines(thread.id)
    ends = [texts(await alice.messages(thread.id, timeline_id=line.id))[-2] for line in lines]
    assert ends == ["Where to eat?", "Where to sleep?", "Where to sleep?"]
    export = json.loads((SAMPLES / "conversations.json").read_text(encoding="utf-8"))
    mapping = export[0]["mapping"]
    mapping["a2b"]["children"].append("q3")
    mapping["q3"] = {**mapping["q2"], "id": "q3", "parent": "a2b", "children": []}
    export[0] |= {"current_node": "q3", "update_time": export[0]["update_time"] + 9}
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps(export), encoding="utf-8")
    (grown,) = await imports("chatgpt", path)
    assert (grown.outcome, grown.messages) == ("extended", 1)
    assert texts(await alice.messages(thread.id))[-2:] == ["Ribeira.", "Where to eat?"]


async def test_a_call_whose_result_comes_later_is_not_lost(
    imports: Imports, alice: Transaction, tmp_path: Path
) -> None:
    lines = FILES["claude-code"].read_text(encoding="utf-8").splitlines(keepends=True)
    path = tmp_path / "session.jsonl"
    path.write_text("".join(lines[:7]), encoding="utf-8")
    await imports("claude-code", path)
    path.write_text("".join(lines), encoding="utf-8")
    (done, _) = await imports("claude-code", path)
    (_, answer, *_) = await alice.messages(done.thread.id)
    states = [part.state for part in answer.parts if isinstance(part, ToolPart)]
    assert states == ["output-available", "output-error"]
