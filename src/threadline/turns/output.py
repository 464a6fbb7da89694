"""The output of one run of a turn: what its agent emits, on the stream and in the reply.

    agent ─▶ EventNormalizer ─▶ Fold ─▶ LiveStream ─▶ readers (events), turn_chunks (JSON, in batches)
              masks, holds back  parts ─▶ NewMessage ─▶ Sealer ─▶ Turns.finish

Each event is normalized, masked and folded once. Readers in this process get the event itself; JSON is made once, when
chunks are stored. See docs/decisions/2026-11-16-mask-replies-on-the-stream.md. A reply that grows beyond what a message
may hold stops its agent.

A run that continues an earlier one begins with what that one left. A model gives its calls new ids each time it is
asked, so a turn whose tools had begun to run is not restarted: the agent is shown what it had said, with the calls it
had made, and continues under the same ids; the journal knows what became of each call. A turn whose tools had not begun
is answered again, and the stream says so with a Restart: calls of an abandoned answer must never run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from threadline.core import events, jsontext
from threadline.core.event_fold import Fold
from threadline.core.event_normalizer import EventNormalizer
from threadline.core.events import Event, ToolCall
from threadline.core.messages import NewMessage
from threadline.core.parts import Part, ToolPart, tool_part
from threadline.core.prompts import Prompt, PromptMessage
from threadline.core.reply_limits import ReplySize
from threadline.core.sealing import Limits
from threadline.core.steered_messages import is_steered_marker, steered_marker, steered_turn_ids
from threadline.core.tool_records import describe_unknown_outcome, recorded_result
from threadline.core.turns import BEGUN, CUT_SHORT, Chunk, ToolRun, Turn, TurnEnd, TurnStatus, reply_id
from threadline.ports import Transaction
from threadline.turns.acceptance import Ending
from threadline.turns.meters import Meter
from threadline.turns.streams import LiveStream

_PAGE = 1000
_OF_A_CALL = (events.ToolInputStart, events.ToolInputDelta, events.ToolCall, events.ApprovalRequest)
_RESULTS = (events.ToolResult, events.ToolError, events.ToolDenied)
_ENDS = (events.Finish, events.Failure)


class EarlierRun(NamedTuple):
    """The stream of an earlier run; the reply so far, folded from the events of it that count; and the calls that are
    still open. Without a tool run nothing of it counts, and `fold` is None."""

    chunks: list[Chunk]
    fold: Fold | None
    open_calls: tuple[ToolPart, ...]


class TurnOutput:
    def __init__(self, stream: LiveStream, normalizer: EventNormalizer, limits: Limits) -> None:
        self.stream = stream
        self.fold = Fold()
        self._size = ReplySize(limits)
        self.seen: dict[str, Any] = {}
        self.failure: str | None = None
        self.meter: Meter | None = None
        """Counts what the agent uses; None until it is called."""
        self._normalizer = normalizer
        self._is_closed = False

    def continue_reply(self, parts: tuple[Part, ...], metadata: dict[str, Any]) -> None:
        """Begins with the reply of an earlier turn, whose approvals this one answers. How much of it was there before
        is stored with the turn, for readers that come after the stream was dropped."""
        self.fold = Fold(parts, metadata)
        still_open = [part.call_id for part in parts if isinstance(part, ToolPart) and not part.is_answered]
        self.seen = {**self.seen, BEGUN: {"parts": len(parts), "open": still_open}}

    def continue_run(self, earlier: EarlierRun, prompt: Prompt, continued: tuple[Part, ...]) -> Prompt:
        """Begins with what an earlier run left. The prompt, with what the agent had said as its last message, in the
        place of `continued`, the reply of an earlier turn."""
        self.stream.restore(earlier.chunks)
        if earlier.fold is None:
            return prompt
        self.fold = earlier.fold
        said = PromptMessage("assistant", (*self.fold.parts(), *earlier.open_calls))
        before = prompt.messages[:-1] if continued else prompt.messages
        return msgspec.structs.replace(prompt, messages=(*before, said)) if said.parts else prompt

    def add(self, event: Event) -> None:
        """LimitExceeded if the reply is too large to be stored whole; the event was published. Markers of messages that
        were taken in are not an agent's to write."""
        if not is_steered_marker(event):
            self._add(event)

    def _add(self, event: Event) -> None:
        for normalized in self._normalizer.add(event):
            for published in self._publish(normalized):
                self._size.add(published, self.fold)

    def take_in(self, message_id: str, turn_id: str) -> None:
        """Marks that a message of the user was taken in here. LimitExceeded as in `add`."""
        self._add(steered_marker(message_id, turn_id))

    def close(self) -> None:
        """Publishes what the normalizer still holds back. Does nothing the second time."""
        if not self._is_closed:
            self._is_closed = True
            for normalized in self._normalizer.flush():
                self._publish(normalized)

    def _publish(self, event: Event) -> tuple[Event, ...]:
        if isinstance(event, events.Failure):
            # Published by the runner, with the turn's end.
            self.failure = event.error
            return ()
        published = self.fold.add(event)
        for each in published:
            self.stream.publish(each)
        return published


def made_reply(turn: Turn, fold: Fold, status: TurnStatus) -> NewMessage | None:
    """The turn's reply; None if nothing was shown."""
    if fold.is_empty:
        return None
    metadata = fold.metadata if status == "executed" else {**fold.metadata, "status": status}
    return NewMessage("assistant", fold.parts(), id=reply_id(turn.id), metadata=metadata)


def made_ending(turn: Turn, output: TurnOutput, status: TurnStatus, error: str | None) -> Ending:
    """The messages that the reply took in are answered by it, unless it failed: then they are answered next."""
    charge = None if output.meter is None else output.meter.charge
    used = {} if charge is None else charge.stored_usage()
    reply = made_reply(turn, output.fold, status)
    taken = steered_turn_ids(output.fold.parts()) if status in ("executed", "stopped") else ()
    cut = {CUT_SHORT: output.fold.finish} if output.fold.finish in ("length", "content-filter") else {}
    seen = {**output.seen, **cut}
    end = TurnEnd(status=status, error=error, usage=used, seen=seen, charge=charge, taken=taken)
    tokens = 0 if charge is None else charge.usage.input_tokens + charge.usage.output_tokens
    return Ending(end, reply, output.stream.unstored(), tokens=tokens)


async def read_earlier_run(
    tx: Transaction, turn: Turn, continued: tuple[Part, ...] = (), metadata: dict[str, Any] | None = None
) -> EarlierRun:
    """`continued` is the reply of an earlier turn that this one continues, `metadata` what that reply had."""
    chunks = await stored_chunks(tx, turn.id)
    runs = await tx.tool_runs(turn.id)
    if not runs:
        return EarlierRun(chunks, None, ())
    shown = _latest_answer([events.from_json(chunk.json) for chunk in chunks])
    answered = {event.call_id for event in shown if isinstance(event, _RESULTS) and not _is_preliminary(event)}
    fold = Fold(continued, metadata)
    for event in shown:
        if _counts(event, answered):
            fold.add(event)
    known = answered | {part.call_id for part in continued if isinstance(part, ToolPart)}
    open_calls = [
        tool_part(call.name, call.call_id, call.input) for call in _calls(shown, runs) if call.call_id not in known
    ]
    return EarlierRun(chunks, fold, tuple(open_calls))


def add_unshown_runs(fold: Fold, runs: Sequence[ToolRun]) -> None:
    """Completes a reply that is not continued with what the journal knows: calls whose intent was stored before they
    could be shown, results that were not shown, and that the outcome of a run is not known. A later prompt must not
    hide that a tool ran."""
    shown = {part.call_id: part for part in fold.parts() if isinstance(part, ToolPart)}
    for run in runs:
        if run.call_id not in shown:
            fold.add(ToolCall(run.call_id, run.name, jsontext.parse(run.input_json, "tool input")))
        if run.call_id not in shown or not shown[run.call_id].is_answered:
            fold.add(recorded_result(run) or events.ToolError(run.call_id, describe_unknown_outcome(run)))


async def stored_chunks(tx: Transaction, turn_id: str) -> list[Chunk]:
    found: list[Chunk] = []
    while page := await tx.chunks(turn_id, after=found[-1].n if found else 0, limit=_PAGE):
        found += page
    return found


def _latest_answer(shown: list[Event]) -> list[Event]:
    restarts = [n for n, event in enumerate(shown) if isinstance(event, events.Restart)]
    return shown[restarts[-1] + 1 :] if restarts else shown


def _is_preliminary(event: Event) -> bool:
    return isinstance(event, events.ToolResult) and event.preliminary


def _counts(event: Event, answered: set[str]) -> bool:
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
