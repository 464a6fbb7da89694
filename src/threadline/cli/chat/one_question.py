"""`threadline chat -p`: asks one question, with the text on standard input, and prints the answer, as text or as JSON.

With `--json` one object is printed, with `--stream-json` a line for each event and that object as the last line.
Nothing else goes to standard output; warnings go to standard error. A refused question prints such an object too.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Awaitable
from typing import IO, Any, Protocol

import msgspec

from threadline.cli.chat.approval import AllowAll, Unattended
from threadline.cli.chat.backend import ChatBackend, open_backend
from threadline.cli.chat.keyboard import LineInput, PipedInput
from threadline.cli.chat.piped_text import is_piped, join_question, read_piped_text
from threadline.cli.chat.screen import Screen
from threadline.cli.chat.session import Answer, ChatSession
from threadline.cli.output import camel, to_json
from threadline.core.errors import InvalidInput, ThreadlineError
from threadline.core.events import Event
from threadline.core.parts import ToolPart, plain_text
from threadline.core.turns import TurnInfo
from threadline.ports import Approver

_FAILED = 1
_NOT_SAVED = 7


class OpenSession(Protocol):
    def __call__(
        self, args: argparse.Namespace, backend: ChatBackend, screen: Screen, approver: Approver, keyboard: LineInput
    ) -> Awaitable[ChatSession]: ...


async def ask_once(args: argparse.Namespace, open_session: OpenSession) -> int:
    """The exit code: 0 answered and saved, 1 failed, 7 answered but not saved."""
    try:
        return await _ask_once(args, open_session)
    except ThreadlineError as exc:
        if args.json or args.stream_json:
            refusal = {"status": "refused", "text": "", "saved": False, "error": str(exc), "code": exc.code}
            print_line({"type": "result", **refusal} if args.stream_json else refusal, sys.stdout)
        raise


async def _ask_once(args: argparse.Namespace, open_session: OpenSession) -> int:
    screen = _open_screen(args)
    text = await _read_question(args, screen)
    async with open_backend(args) as backend:
        approver = AllowAll(screen, backend.checks) if args.allow_tools else Unattended(screen, backend.checks)
        session = await open_session(args, backend, screen, approver, PipedInput())
        answer = await session.ask(text)
        if args.json:
            print_line(_result(session, answer), sys.stdout)
        elif args.stream_json:
            print_line({"type": "result", **_result(session, answer)}, sys.stdout)
    if answer.status != "executed":
        return _FAILED
    return 0 if answer.is_saved else _NOT_SAVED


def _open_screen(args: argparse.Namespace) -> Screen:
    if args.stream_json:
        return EventLines(sys.stdout)
    return Screen(io.StringIO() if args.json else None, diagnostics=sys.stderr)


async def _read_question(args: argparse.Namespace, screen: Screen) -> str:
    question = "" if args.prompt == "-" else args.prompt
    # A person at a terminal types the question only where none was given.
    piped = await read_piped_text(screen.warn) if is_piped() or not question else ""
    text = join_question(question, piped)
    if not text.strip():
        raise InvalidInput("no question: give one after -p or on standard input")
    return text


class EventLines(Screen):
    """Prints the events of a reply as lines of JSON in the place of text."""

    def __init__(self, lines: IO[str]) -> None:
        super().__init__(io.StringIO(), diagnostics=sys.stderr, colours=False)
        self._lines = lines

    def begin_reply(self, turn: TurnInfo) -> None:
        started = {"type": "start", "threadId": turn.thread_id, "turnId": turn.id, "agentId": turn.agent_id}
        print_line(started, self._lines)

    def print_event(self, event: Event) -> None:
        print_line({"type": event.__struct_config__.tag, **to_json(event)}, self._lines)


def print_line(value: dict[str, Any], out: IO[str]) -> None:
    print(msgspec.json.encode(value).decode(), file=out, flush=True)


def _result(session: ChatSession, answer: Answer) -> dict[str, Any]:
    turn = answer.turn
    result: dict[str, Any] = {
        "threadId": session.stored_thread_id,
        "turnId": None if turn is None else turn.id,
        "agentId": session.agent_id if turn is None else turn.agent_id,
        "model": None if turn is None else turn.model,
        "status": answer.status,
        "text": plain_text(answer.parts),
        "saved": answer.is_saved,
        "usage": {} if turn is None else _camel_keys(turn.usage),
        "tools": [_describe_call(part) for part in answer.parts if isinstance(part, ToolPart)],
        "error": answer.error,
    }
    # `threadId` is always there: null is a chat that is in memory only.
    return {key: value for key, value in result.items() if value is not None or key == "threadId"}


def _camel_keys(usage: dict[str, Any]) -> dict[str, Any]:
    return {camel(name): value for name, value in usage.items()}


def _describe_call(part: ToolPart) -> dict[str, Any]:
    call = {"callId": part.call_id, "name": part.name, "state": part.state, "input": part.input_value()}
    if part.error is not None:
        return {**call, "error": part.error}
    return {**call, "output": part.output_value()} if part.state == "output-available" else call
