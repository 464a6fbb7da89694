"""`threadline chat`: opens a gateway, chooses the thread, then reads and answers until the user quits.

The gateway is the library on a local database, or the client of a service with `--server`. Only what is opened here
differs between the two: the rest of the chat takes a gateway.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import shlex
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from threadline.cli.chat.approval import AllowAll, TerminalApprover
from threadline.cli.chat.keyboard import Keyboard, LineInput, PipedInput
from threadline.cli.chat.screen import Screen
from threadline.cli.chat.session import AskUnsaved, ChatOptions, ChatSession
from threadline.cli.chat.slash_commands import WORDS, Quit, SlashCommands
from threadline.cli.output import format_time, pluralize
from threadline.cli.printable import printable, shorten, without_password
from threadline.core.errors import InvalidInput, NotFound, ThreadlineError
from threadline.core.threads import ThreadFields
from threadline.ports import Approver
from threadline.ports.gateway import Gateway, GatewayThread
from threadline.replies import DenyAll
from threadline.settings import default_database

_LISTED = 20
_FAILED = 1
_RESUME_OPTIONS = ("database", "settings", "tenant", "user", "server")


class ChatBackend(NamedTuple):
    """What a chat is opened on. `unsaved` gives the fallback for a database that fails; a service has none."""

    gateway: Gateway
    default_agent: str
    new_thread: ThreadFields
    history: Path | None
    unsaved: Callable[[Approver], AskUnsaved] | None = None


async def chat(args: argparse.Namespace) -> int:
    if args.fork and not (args.latest or args.resume is not None):
        raise InvalidInput("--fork needs --resume or --continue")
    if args.json and args.prompt is None:
        raise InvalidInput("--json needs -p")
    if args.token and args.server is None:
        raise InvalidInput("--token needs --server")
    if args.server is not None and (args.model or args.system or args.database):
        raise InvalidInput("--model, --system and --database cannot be used with --server: the service decides")
    async with _open_local(args) if args.server is None else _open_service(args) as backend:
        return await (_chat(args, backend) if args.prompt is None else _ask_once(args, backend))


@asynccontextmanager
async def _open_local(args: argparse.Namespace) -> AsyncIterator[ChatBackend]:
    # Imported here: a chat on a service needs no store.
    from threadline.cli.chat.unsaved import UnsavedChat  # noqa: PLC0415
    from threadline.cli.connection import open_threadline, user_scope  # noqa: PLC0415

    async with open_threadline(args) as tl:
        scope = user_scope(tl)
        if args.agent:
            await tl.directory.find(scope, args.agent)
        # No service sweeps a local database: end turns and drop stream chunks that a killed terminal left.
        await tl.recovery.recover(scope)
        await tl.recovery.drop_chunks(scope)
        yield ChatBackend(
            tl.as_user(surface="cli"),
            tl.settings.agent,
            ThreadFields(system_prompt=args.system, working_dir=_working_dir()),
            _history_file(tl.settings.database),
            lambda approver: UnsavedChat(tl, scope, approver).ask,
        )


@asynccontextmanager
async def _open_service(args: argparse.Namespace) -> AsyncIterator[ChatBackend]:
    from threadline.client import connect  # noqa: PLC0415 - an extra

    token = args.token or os.environ.get("THREADLINE_TOKEN")
    async with connect(args.server, token=token) as client:
        default_agent = args.agent or (await client.agents()).default
        yield ChatBackend(client, default_agent, ThreadFields(), _history_file(str(default_database(os.environ))))


def _open_session(args: argparse.Namespace, backend: ChatBackend, screen: Screen, approver: Approver) -> ChatSession:
    return ChatSession(
        backend.gateway,
        screen,
        approver,
        ChatOptions(agent=args.agent, model=args.model, system=args.system),
        default_agent=backend.default_agent,
        new_thread=backend.new_thread,
        ask_unsaved=None if backend.unsaved is None else backend.unsaved(approver),
    )


async def _chat(args: argparse.Namespace, backend: ChatBackend) -> int:
    keyboard: LineInput = Keyboard(backend.history, WORDS) if sys.stdin.isatty() else PipedInput()
    screen = Screen()
    approver = AllowAll() if args.allow_tools else TerminalApprover(keyboard, screen)
    session = _open_session(args, backend, screen, approver)
    session.thread = await _choose_thread(args, session, keyboard)
    await _welcome(session)
    await _loop(session, keyboard)
    if session.thread is not None:
        screen.note(f"Saved. Resume with: {_resume_command(args, session.thread.id)}")
    return 0


async def _ask_once(args: argparse.Namespace, backend: ChatBackend) -> int:
    text = await asyncio.to_thread(sys.stdin.read) if args.prompt == "-" else args.prompt
    if not text.strip():
        raise InvalidInput("no question: give one after -p or on standard input")
    # With --json nothing but the JSON is printed.
    screen = Screen(io.StringIO()) if args.json else Screen()
    session = _open_session(args, backend, screen, AllowAll() if args.allow_tools else DenyAll())
    session.thread = await _choose_thread(args, session, PipedInput())
    status = await session.ask(text.rstrip("\n"))
    if args.json and session.thread is not None:
        newest = await session.thread.last_turns(1)
        result = {"threadId": session.thread.id, "status": status, "text": newest[-1].text if newest else ""}
        print(msgspec.json.encode(result).decode())
    return 0 if status in ("executed", None) else _FAILED


async def _choose_thread(args: argparse.Namespace, session: ChatSession, keyboard: LineInput) -> GatewayThread | None:
    found = await _find_thread(args, session, keyboard)
    return await found.branch() if found is not None and args.fork else found


async def _find_thread(args: argparse.Namespace, session: ChatSession, keyboard: LineInput) -> GatewayThread | None:
    if args.latest:
        latest = (await session.gateway.threads(limit=1)).items
        if not latest:
            session.screen.warn("no thread to continue: starting a new one")
            return None
        return await session.gateway.thread(latest[0].id)
    if args.resume is None:
        return None
    chosen = args.resume or await _pick_thread(session, keyboard)
    if not chosen:
        return None
    try:
        return await session.gateway.thread(chosen)
    except NotFound:
        session.screen.warn(f"no thread {chosen}: starting a new one")
        return None


async def _pick_thread(session: ChatSession, keyboard: LineInput) -> str | None:
    """Prints a numbered list and returns the id of the chosen thread. None for an empty answer: a new thread."""
    threads = (await session.gateway.threads(limit=_LISTED)).items
    if not threads:
        session.screen.note("No threads yet: starting a new one.")
        return None
    for number, thread in enumerate(threads, start=1):
        title = shorten(printable(thread.title or "(untitled)"), 60)
        session.screen.line(f"{number:3}  {format_time(thread.updated_at)}  {thread.message_count:5}  {title}")
    while True:
        try:
            answer = (await keyboard.read_answer("Resume which thread? (number, or Enter for a new one) ")).strip()
        except EOFError as exc:
            raise InvalidInput("no thread chosen: give its id after --resume") from exc
        if not answer:
            return None
        if answer.isdigit() and 1 <= int(answer) <= len(threads):
            return threads[int(answer) - 1].id
        session.screen.note(f"Type a number from 1 to {len(threads)}.")


async def _welcome(session: ChatSession) -> None:
    thread = session.thread
    if thread is None:
        session.screen.note(f"Threadline, agent {session.agent_id}. /help lists commands, Ctrl-D quits.")
        return
    title, count = printable(thread.title or "(untitled)"), pluralize(thread.message_count, "message")
    session.screen.note(f"Resuming {title} ({count}, {thread.id}).")
    await session.show_thread()


async def _loop(session: ChatSession, keyboard: LineInput) -> None:
    commands = SlashCommands(session)
    while True:
        try:
            text = await keyboard.read_line("> ")
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if not text.strip():
            continue
        try:
            if not await commands.run(text):
                await session.ask(text)
        except Quit:
            return
        except ThreadlineError as exc:
            session.screen.error(str(exc))


def _resume_command(args: argparse.Namespace, thread_id: str) -> str:
    """The command that continues the thread, with the options that led to it; never with a password."""
    given = [(name, getattr(args, name)) for name in _RESUME_OPTIONS if getattr(args, name) is not None]
    options = [f"--{name} {shlex.quote(without_password(value))}" for name, value in given]
    return " ".join(["threadline chat", *options, f"--resume {thread_id}"])


def _working_dir() -> str | None:
    try:
        return str(Path.cwd())
    except FileNotFoundError:  # the folder was deleted
        return None


def _history_file(database: str) -> Path | None:
    """The file for lines that were typed, beside the database and readable only by its owner."""
    if "://" in database or database == ":memory:":
        return None
    path = Path(database).expanduser().parent / "chat-history"
    try:
        path.touch(mode=0o600)
    except OSError:
        return None
    return path
