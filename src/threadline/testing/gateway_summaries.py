"""The gateway conformance suite, continued: summaries of older messages.

Import it beside `threadline.testing.gateway`, with the same fixture.
"""

from __future__ import annotations

import pytest

from threadline.core.errors import Conflict, InvalidInput, InvalidText, LimitExceeded
from threadline.core.messages import assistant
from threadline.ports import Gateway


async def test_long_threads_are_compacted_and_short_ones_are_not(gateway: Gateway) -> None:
    thread = await gateway.create_thread()
    assert await thread.compact() is None
    for number in range(6):
        await thread.append(f"Question {number} " + "word " * 50, assistant("Answer " * 50))
    assert await thread.summary() is None
    with pytest.raises(Conflict):
        await thread.set_summary("too early")
    summary = await thread.compact(budget=100)
    assert summary is not None
    assert "Question 0" in summary.text
    assert (summary.source, summary.label) == ("extract", "extract, not summarised by a model")
    assert thread.message_count == 12
    assert await thread.summary() == summary


@pytest.mark.req("A-05")
async def test_a_summary_can_be_edited(gateway: Gateway) -> None:
    thread = await gateway.create_thread()
    for number in range(3):
        await thread.append(f"Question {number} " + "word " * 50, assistant("Answer " * 50))
    made = await thread.compact(budget=100)
    edited = await thread.set_summary("We chose Lisbon.")
    assert made is not None
    assert (edited.point, edited.text, edited.source) == (made.point, "We chose Lisbon.", "person")
    assert await thread.summary() == edited
    for wrong, error in ((" ", InvalidText), ("x" * 40_000, LimitExceeded), (5, InvalidInput)):
        with pytest.raises(error):
            # Of the wrong type on purpose.
            await thread.set_summary(wrong)  # type: ignore[arg-type]
    assert await thread.summary() == edited
    await thread.rewind(0)
    assert await thread.summary() is None
