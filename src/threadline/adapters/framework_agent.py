"""An agent of a framework as an agent here: what is the same for every framework.

The framework gets the conversation and runs its own tools. Their calls are journalled as they are reported, so a turn
that is continued after a crash does not call them again: the model is told their result, or that it is not known. The
framework's own errors and HTTP errors of model services are shown to the user; others are logged.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, NamedTuple, TypeAlias

import msgspec

from threadline.agents.call_runner import ToolOutcome
from threadline.agents.limits import RunLimits
from threadline.agents.reply_builder import limit_events
from threadline.agents.tool_execution import describe_error, to_json_data
from threadline.core import jsontext
from threadline.core.errors import AgentFailed, InvalidInput, ThreadlineError
from threadline.core.events import Event, ToolCall, ToolDenied, ToolError, ToolResult
from threadline.core.parts import ToolPart, plain_text, tool_part
from threadline.core.prompts import Prompt, PromptMessage
from threadline.core.repair import INTERRUPTED, repair
from threadline.core.tool_records import describe_unknown_outcome, encode_result, recorded_result
from threadline.ports import AgentServices, ToolJournal

OUTPUT_BYTES = 50_000
"""Of a tool's result; a longer one is cut where it is shown. The framework's model gets the whole."""


class Handover(NamedTuple):
    """The prompt for a framework. `system` is all that the model is told beside the agent's own instructions: pinned
    context, system prompt, summary. In `messages` every call has a result; for `decided` calls, whose approval has
    been decided since, that result is only a placeholder: the framework is to run or to refuse them now."""

    system: str
    messages: tuple[PromptMessage, ...]
    decided: tuple[ToolPart, ...] = ()

    @property
    def decided_ids(self) -> frozenset[str]:
        return frozenset(part.call_id for part in self.decided)


Reply: TypeAlias = Callable[[Handover, Prompt, AgentServices], AsyncGenerator[Event, None]]


class Framework(NamedTuple):
    """`errors` are those that the framework raises for its users to read."""

    name: str
    errors: tuple[type[Exception], ...]


def run_framework(
    framework: Framework, reply: Reply, prompt: Prompt, services: AgentServices, limits: RunLimits | None
) -> AsyncGenerator[Event, None]:
    """The events of a run, within the limits. Closing them closes `reply`, which must stop the framework's run."""
    return limit_events(_events(framework, reply, prompt, services), prompt, limits)


async def _events(
    framework: Framework, reply: Reply, prompt: Prompt, services: AgentServices
) -> AsyncGenerator[Event, None]:
    calls = _Calls(services.journal)
    handover, replayed = await _hand_over(prompt, calls)
    for event in replayed:
        yield event
    try:
        async with aclosing(reply(handover, prompt, services)) as events:
            async for event in events:
                if await calls.record(event):
                    yield event
    except ThreadlineError:
        raise
    except Exception as exc:
        raise _translate(framework, exc) from exc


def _translate(framework: Framework, exc: Exception) -> Exception:
    status = getattr(exc, "status_code", None) or getattr(exc, "code", None)
    if type(status) is int and 400 <= status < 600:
        return AgentFailed(f"the model's service refused the request with HTTP {status}")
    if isinstance(exc, framework.errors):
        return AgentFailed(f"the {framework.name} agent failed: {describe_error(exc)}")
    return exc


class _Calls:
    """Journals calls as the framework reports them."""

    def __init__(self, journal: ToolJournal) -> None:
        self._journal = journal
        self._open: set[str] = set()
        self._denied: set[str] = set()

    async def record(self, event: Event) -> bool:
        """False if the event is not to be shown: what a framework makes of a refusal, for its model."""
        match event:
            case ToolCall() if event.call_id not in self._open:
                await self.begin(event)
            case ToolDenied() | ToolResult() | ToolError() if event.call_id in self._denied:
                return False
            case ToolDenied():
                self._denied.add(event.call_id)
            case ToolResult(preliminary=False) | ToolError() if event.call_id in self._open:
                self._open.discard(event.call_id)
                await self._journal.end(event.call_id, encode_result(event))
        return True

    async def begin(self, call: ToolCall) -> ToolOutcome | None:
        """What an earlier run of this turn knows of the call, if it began there."""
        self._open.add(call.call_id)
        # The framework does not say which of its tools are safe to repeat.
        earlier = await self._journal.begin(call, repeatable=False)
        if earlier is None:
            return None
        self._open.discard(call.call_id)
        return recorded_result(earlier) or ToolError(call.call_id, describe_unknown_outcome(earlier))


async def _hand_over(prompt: Prompt, calls: _Calls) -> tuple[Handover, list[Event]]:
    """Also the events that make the events of this turn complete: open calls of the reply that it continues."""
    system = [plain_text(message.parts) for message in prompt.messages if message.role == "system"]
    messages = [message for message in prompt.messages if message.role != "system"]
    events: list[Event] = []
    decided: list[ToolPart] = []
    if messages and messages[-1].role == "assistant":
        parts = list(messages[-1].parts)
        for place, part in enumerate(parts):
            if isinstance(part, ToolPart) and not part.is_answered:
                call = ToolCall(part.call_id, part.name, part.input_value())
                outcome = await _known_outcome(call, part, calls)
                events += [call, outcome] if outcome is not None else [call]
                if isinstance(outcome, ToolResult | ToolError):
                    parts[place] = _answered(call, outcome)
                else:
                    decided.append(part)
        messages[-1] = PromptMessage("assistant", tuple(parts))
    return Handover("\n\n".join(filter(None, system)), repair(messages), tuple(decided)), events


async def _known_outcome(call: ToolCall, part: ToolPart, calls: _Calls) -> ToolOutcome | ToolDenied | None:
    """None for a call that was approved and is to run now."""
    approval = part.approval
    if approval is not None and approval.approved is False:
        denied = ToolDenied(call.call_id, approval.reason)
        await calls.record(denied)
        return denied
    outcome = await calls.begin(call)
    if outcome is None and (approval is None or approval.approved is None):
        return ToolError(call.call_id, INTERRUPTED)
    return outcome


def _answered(call: ToolCall, outcome: ToolOutcome) -> ToolPart:
    if isinstance(outcome, ToolError):
        return tool_part(call.name, call.call_id, call.input, error=outcome.error)
    return tool_part(call.name, call.call_id, call.input, output=outcome.output)


def read_input(arguments: Any) -> Any:
    """A call's arguments as plain JSON data; a text that is not JSON stays what it is."""
    if isinstance(arguments, str):
        try:
            return jsontext.parse(arguments.encode(), "tool input") if arguments else {}
        except (InvalidInput, UnicodeEncodeError):
            return arguments
    return {} if arguments is None else to_json_data(arguments, OUTPUT_BYTES)


def read_output(value: Any) -> Any:
    """What a tool returned, as plain JSON data; what JSON cannot express is shown as text."""
    dumped = value.model_dump(mode="json") if hasattr(value, "model_dump") else value
    try:
        return to_json_data(msgspec.to_builtins(dumped, str_keys=True), OUTPUT_BYTES)
    except Exception:  # noqa: BLE001 - a tool may return anything, and its result must not end the reply
        return to_json_data(str(value), OUTPUT_BYTES)
