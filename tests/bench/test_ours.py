"""Threadline as the bench drives it: what is measured is what it says it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.contenders.ours import ThreadlineLibrary, ThreadlineStore
from bench.crowds import count_wrong, run_crowd
from bench.workload import Turn, turns


@pytest.mark.parametrize("contender", [ThreadlineStore, ThreadlineLibrary])
async def test_a_turn_appended_is_the_last_of_the_last_turns(
    tmp_path: Path, contender: type[ThreadlineStore | ThreadlineLibrary]
) -> None:
    history = turns(21)
    opened = await contender.open(str(tmp_path / "bench.sqlite3"))
    thread_id = await opened.start(history[:20])
    await opened.append(thread_id, history[20])
    read = await opened.last_turns(thread_id, 12)
    await opened.close()
    assert [message.text for message in read[0::2]] == [turn.question for turn in history[9:]]
    assert [message.text for message in read[1::2]] == [turn.answer for turn in history[9:]]


async def test_a_crowd_on_one_thread_is_counted_message_by_message(tmp_path: Path) -> None:
    ours = await ThreadlineLibrary.open(str(tmp_path / "bench.sqlite3"))
    thread_id = await ours.start([])
    crowd = await run_crowd(ours.append, [thread_id] * 8, per_task=3)
    stored = [(message.seq, message.id) for message in await ours.thread(thread_id).messages()]
    await ours.close()
    assert (len(crowd.acknowledged), len(crowd.latencies), crowd.errors) == (48, 24, [])
    assert count_wrong(crowd.acknowledged, stored) == 0
    assert count_wrong(crowd.acknowledged, stored[:-1]) == 1


async def test_what_a_crowd_is_refused_is_counted_and_not_timed() -> None:
    async def refuse(thread_id: str, turn: Turn) -> None:
        raise OSError("no")

    crowd = await run_crowd(refuse, ["a", "b"], per_task=2)
    assert (crowd.errors, crowd.latencies, crowd.acknowledged) == (["OSError: no"] * 4, [], [])
