"""Arguments of public calls, checked by type before anything else looks at them.

Python lets a caller pass anything. A value of the wrong type becomes InvalidInput that names the argument, what was
expected and what was given, instead of an AttributeError from somewhere inside. The library and the HTTP client use
the same checks, so both give the same error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from threadline.core.approvals import Answer, ApprovalDecision, ToolOutput
from threadline.core.client_tools import ClientTool, check_client_tools
from threadline.core.errors import InvalidInput
from threadline.core.messages import NewMessage, user
from threadline.core.threads import NewThread, ThreadChanges

_TEXT_FIELDS = frozenset(("id", "state_key", "title", "agent_id", "model", "system_prompt", "working_dir"))


def type_error(name: str, expected: str, value: object) -> InvalidInput:
    return InvalidInput(f"`{name}` must be {expected}, got {type(value).__name__}")


def check_str(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise type_error(name, "a string", value)
    return value


MOST_PASSAGES = 20
"""Of one thread, in a search."""


def check_query(query: object) -> str:
    """The words of a search."""
    if not check_str("query", query).strip():
        raise InvalidInput("`query` must contain at least one word")
    return str(query)


def check_int(name: str, value: object, lowest: int, highest: int | None = None) -> int:
    """InvalidInput unless it is an integer from `lowest` to `highest`."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise type_error(name, "an integer", value)
    if value < lowest or (highest is not None and value > highest):
        allowed = f"{lowest} or more" if highest is None else f"{lowest}–{highest}"
        raise InvalidInput(f"`{name}` must be {allowed}, got {value}")
    return value


def check_point(value: object, name: str = "at") -> int | str | None:
    """A seq, a message id or None."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | str)):
        raise type_error(name, "a seq or a message id", value)
    return value


def new_messages(given: Iterable[object]) -> list[NewMessage]:
    """The messages of an append; a string is a user message."""
    return [user(message) if isinstance(message, str) else _new_message(message) for message in given]


def as_question(given: object) -> NewMessage:
    return user(given) if isinstance(given, str) else _new_message(given)


def _new_message(given: object) -> NewMessage:
    if not isinstance(given, NewMessage):
        expected = "a string or a message made with threadline.user(…) or threadline.assistant(…)"
        raise type_error("message", expected, given)
    return given


def new_thread(fields: Mapping[str, Any]) -> NewThread:
    """TypeError for a field that threads do not have."""
    _check_fields(fields)
    return NewThread(**fields)


def thread_changes(changes: Mapping[str, Any]) -> ThreadChanges:
    """TypeError for a field that cannot be changed."""
    _check_fields(changes)
    if not isinstance(changes.get("archived", False), bool):
        raise type_error("archived", "True or False", changes["archived"])
    return ThreadChanges(**changes)


def _check_fields(fields: Mapping[str, Any]) -> None:
    for name in _TEXT_FIELDS.intersection(fields):
        if fields[name] is not None:
            check_str(name, fields[name])
    if not isinstance(fields.get("metadata", {}), dict):
        raise type_error("metadata", "a dict", fields["metadata"])


def as_client_tools(tools: object) -> tuple[ClientTool, ...]:
    """InvalidInput or LimitExceeded for tools that a model cannot be offered."""
    if not isinstance(tools, Sequence) or not all(isinstance(each, ClientTool) for each in tools):
        raise type_error("client_tools", "a list of ClientTool", tools)
    return check_client_tools(tuple(tools))


def as_answers(answers: object) -> dict[str, Answer]:
    """The answers to what a reply waits for; True and False are decisions without a reason."""
    if not isinstance(answers, Mapping):
        raise type_error("answers", "a dict of approval id to True or False, or of call id to ToolOutput", answers)
    return {check_str("id of an answer", name): _answer(answer) for name, answer in answers.items()}


def _answer(answer: object) -> Answer:
    if isinstance(answer, bool):
        return ApprovalDecision(answer)
    if not isinstance(answer, ApprovalDecision | ToolOutput):
        raise type_error("answer", "True, False, an ApprovalDecision or a ToolOutput", answer)
    return answer
