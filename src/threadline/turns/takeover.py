"""Taking over: what a turn's earlier run has left, for the run that goes on with it.

A model gives its calls new ids each time it is asked. So a turn that had begun to run tools is not begun anew: the
agent is shown what it had said, with the calls it had made, and goes on from there under the same ids. What a call's
tool had come to, or that it may have run, the journal knows. A turn whose tools had not begun is answered again, and
the stream says so: the calls of an answer given up must never be taken for calls that wait for their tool.
"""

from __future__ import annotations

from typing import NamedTuple

from threadline.core import events, jsontext
from threadline.core.event_fold import Fold
from threadline.core.events import Event, ToolCall
from threadline.core.parts import Part, ToolPart, tool_part
from threadline.core.turns import Chunk, ToolRun, Turn
from threadline.ports import Transaction

_PAGE = 1000
_OF_A_CALL = (events.ToolInputStart, events.ToolInputDelta, events.ToolCall, events.ApprovalRequest)
_ANSWERS = (events.ToolResult, events.ToolError, events.ToolDenied)
_ENDS = (events.Finish, events.Failure)


class Begun(NamedTuple):
    """The stream so far; the events of it that stand; and the reply so far, with the calls that are still open.

    Nothing stands where no tool had begun."""

    chunks: list[Chunk]
    standing: list[Event]
    parts: tuple[Part, ...]


async def begun(tx: Transaction, turn: Turn, said: tuple[Part, ...] = ()) -> Begun:
    """`said` is the reply of an earlier turn that this one goes on with."""
    chunks = await stored_chunks(tx, turn.id)
    runs = await tx.tool_runs(turn.id)
    if not runs:
        return Begun(chunks, [], ())
    shown = _latest_answer([events.from_json(chunk.json) for chunk in chunks])
    answered = {event.call_id for event in shown if isinstance(event, _ANSWERS) and not _is_preliminary(event)}
    standing = [event for event in shown if _stands(event, answered)]
    fold = Fold(said)
    for event in standing:
        fold.add(event)
    known = answered | {part.call_id for part in said if isinstance(part, ToolPart)}
    still_open = [
        tool_part(call.name, call.call_id, call.input) for call in _calls(shown, runs) if call.call_id not in known
    ]
    return Begun(chunks, standing, (*fold.parts(), *still_open))


async def stored_chunks(tx: Transaction, turn_id: str) -> list[Chunk]:
    found: list[Chunk] = []
    while page := await tx.chunks(turn_id, after=found[-1].n if found else 0, limit=_PAGE):
        found += page
    return found


def _latest_answer(shown: list[Event]) -> list[Event]:
    given_up = [n for n, event in enumerate(shown) if isinstance(event, events.Restart)]
    return shown[given_up[-1] + 1 :] if given_up else shown


def _is_preliminary(event: Event) -> bool:
    return isinstance(event, events.ToolResult) and event.preliminary


def _stands(event: Event, answered: set[str]) -> bool:
    if isinstance(event, _ENDS):
        return False
    return not isinstance(event, _OF_A_CALL) or event.call_id in answered


def _calls(shown: list[Event], runs: list[ToolRun]) -> list[ToolCall]:
    """Every call that was made: those that were shown, and those whose intent was stored before they could be."""
    calls = {event.call_id: event for event in shown if isinstance(event, ToolCall)}
    for run in runs:
        if run.call_id not in calls:
            calls[run.call_id] = ToolCall(run.call_id, run.name, jsontext.parse(run.input_json, "tool input"))
    return list(calls.values())
