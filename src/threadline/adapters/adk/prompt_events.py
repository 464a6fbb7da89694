"""A prompt as events of an ADK session. Reasoning is left out: its signature is valid for one model only."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from google.adk.events import Event, EventActions
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.genai import types

from threadline.adapters.framework_agent import Handover
from threadline.core import jsontext
from threadline.core.files import embedded, is_web_url
from threadline.core.parts import FilePart, Part, TextPart, ToolPart
from threadline.core.prompts import file_note, outcome_text, split_rounds, text_with_file_notes, wrap_input

CONFIRMATION = "adk_request_confirmation"
_HISTORY = "history"


class SessionHistory(NamedTuple):
    """The events of a session, and the message that starts the run."""

    events: list[Event]
    message: Any


def to_session(handover: Handover, author: str, decided_by: str) -> SessionHistory:
    """`author` is the agent that the history is of, `decided_by` the one whose calls have been decided since."""
    messages = list(handover.messages)
    request = messages.pop().parts if messages and messages[-1].role == "user" else None
    events: list[Event] = []
    for message in messages:
        if message.role == "user":
            events.append(_event("user", user_parts(message.parts)))
        else:
            events += agent_events(message.parts, author, handover.decided_ids)
    if handover.decided:
        return SessionHistory([*events, *_open_questions(handover.decided, decided_by)], _decisions(handover.decided))
    if request is not None:
        return SessionHistory(events, types.Content(role="user", parts=user_parts(request)))
    # A reply that is continued: what the tools returned starts the run.
    last = events.pop() if events and events[-1].get_function_responses() else None
    return SessionHistory(events, last.content if last else types.Content(role="user", parts=[types.Part(text="…")]))


def agent_events(parts: Sequence[Part], author: str, left_out: Collection[str] = ()) -> Iterator[Event]:
    """An event for each round of the model, and one for the results of its calls."""
    for said, calls in split_rounds(parts):
        text = text_with_file_notes(said)
        told = [call for call in calls if call.call_id not in left_out]
        shown = [types.Part(text=text)] if text else []
        shown += [types.Part(function_call=_call(call)) for call in told]
        if shown:
            yield _event(author, shown)
        if told:
            yield _event(author, [_response(call.call_id, call.name, _result(call)) for call in told])


def _open_questions(calls: Sequence[ToolPart], author: str) -> Iterator[Event]:
    """What ADK stored when it asked for the approval of these calls."""
    confirmation = ToolConfirmation()
    yield _event(author, [types.Part(function_call=_call(call)) for call in calls])
    asked = _event(author, [_response(call.call_id, call.name, {"error": "waits for approval"}) for call in calls])
    asked.actions = EventActions(requested_tool_confirmations={call.call_id: confirmation for call in calls})
    yield asked
    shown = confirmation.model_dump(by_alias=True, exclude_none=True)
    questions = []
    for call in calls:
        original = _call(call).model_dump(by_alias=True, exclude_none=True)
        given = {"originalFunctionCall": original, "toolConfirmation": shown}
        question = types.FunctionCall(name=CONFIRMATION, id=_question_id(call), args=given)
        questions.append(types.Part(function_call=question))
    yield _event(author, questions)


def _decisions(calls: Sequence[ToolPart]) -> Any:
    decided = {_question_id(call): bool(call.approval and call.approval.approved) for call in calls}
    return decision_message(decided)


def decision_message(decided: dict[str, bool]) -> Any:
    """`decided` by the id of ADK's question."""
    parts = [_response(question, CONFIRMATION, {"confirmed": verdict}) for question, verdict in decided.items()]
    return types.Content(role="user", parts=parts)


def _question_id(call: ToolPart) -> str:
    return f"{call.call_id}-confirmation"


def _event(author: str, parts: list[Any]) -> Event:
    role = "user" if author == "user" or parts[0].function_response else "model"
    return Event(author=author, invocation_id=_HISTORY, content=types.Content(role=role, parts=parts))


def _call(call: ToolPart) -> Any:
    return types.FunctionCall(id=call.call_id, name=call.name, args=jsontext.parse(wrap_input(call)))


def _response(call_id: str, name: str, response: dict[str, Any]) -> Any:
    return types.Part(function_response=types.FunctionResponse(id=call_id, name=name, response=response))


def _result(call: ToolPart) -> dict[str, Any]:
    if call.state != "output-available":
        return {"error": outcome_text(call)}
    value = call.output_value()
    return value if isinstance(value, dict) else {"result": value}


def user_parts(parts: Sequence[Part]) -> list[Any]:
    return [_content_part(part) for part in parts if isinstance(part, TextPart | FilePart)]


def _content_part(part: TextPart | FilePart) -> Any:
    if isinstance(part, TextPart):
        return types.Part(text=part.text)
    found = embedded(part)
    if found is not None:
        return types.Part.from_bytes(data=found.content, mime_type=found.media_type)
    if is_web_url(part) and "*" not in part.media_type:
        return types.Part.from_uri(file_uri=part.url, mime_type=part.media_type)
    return types.Part(text=file_note(part))
