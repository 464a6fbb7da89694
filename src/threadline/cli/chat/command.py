"""`threadline chat`: chooses the thread, then answers lines until the user quits, or one question with `-p`."""

from __future__ import annotations

import argparse
import logging
import os
import shlex
import sys

from threadline.cli.chat.approval import AllowAll, TerminalApprover
from threadline.cli.chat.backend import ChatBackend, open_backend
from threadline.cli.chat.keyboard import LineInput
from threadline.cli.chat.screen import Screen
from threadline.cli.chat.session import ChatOptions, ChatSession
from threadline.cli.chat.thread_choice import choose_thread
from threadline.cli.output import pluralize
from threadline.cli.printable import printable, without_password
from threadline.core.errors import InvalidInput, StoreFailed
from threadline.core.threads import ThreadUpdate
from threadline.ports import Approver

_NOT_SAVED = 7
# The prompt waits for it: a server on this machine lists its models in a few milliseconds.
_PROBE_SECONDS = 0.15
_RESUME_OPTIONS = ("database", "settings", "tenant", "user", "server")


async def chat(args: argparse.Namespace) -> int:
    _read_question(args)
    if args.fork and not (args.latest or args.resume is not None):
        raise InvalidInput("--fork needs --resume or --continue")
    for option in ("json", "stream_json"):
        if getattr(args, option) and args.prompt is None:
            raise InvalidInput(f"--{option.replace('_', '-')} needs -p")
    if args.json and args.stream_json:
        raise InvalidInput("--json cannot be used with --stream-json: its last line is what --json prints")
    if args.token and args.server is None:
        raise InvalidInput("--token needs --server")
    if args.server is not None and args.tools:
        raise InvalidInput("--tools cannot be used with --server: the service runs the tools of its agents")
    if args.server is not None and args.database:
        raise InvalidInput("--database cannot be used with --server: the service has its own")
    # Whatever the log says, the chat says in its own words; log records would be printed between its lines.
    logging.getLogger("threadline").addHandler(logging.NullHandler())
    if args.prompt is None:
        async with open_backend(args) as backend:
            return await _chat(args, backend)
    # Imported here: a chat with many questions does not need it.
    from threadline.cli.chat.one_question import ask_once  # noqa: PLC0415

    return await ask_once(args, open_session)


def _read_question(args: argparse.Namespace) -> None:
    """The words after the options are the question of -p, or the first one of a chat in a terminal."""
    if not args.question:
        return
    is_terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
    if args.prompt is not None or args.json or args.stream_json or not is_terminal:
        args.prompt, args.question = " ".join(filter(None, (args.prompt, *args.question))), []


async def open_session(
    args: argparse.Namespace, backend: ChatBackend, screen: Screen, approver: Approver, keyboard: LineInput
) -> ChatSession:
    session = ChatSession(
        backend.gateway,
        screen,
        approver,
        ChatOptions(agent=args.agent, model=args.model, system=args.system),
        default_agent=backend.default_agent,
        new_thread=backend.new_thread,
        memory=backend.memory,
        failure=backend.failure,
        list_agents=backend.list_agents,
        while_printing=keyboard.take_lines,
    )
    if backend.failure is not None and backend.is_in_memory:
        session.mark_in_memory(backend.failure)
        if args.latest or args.resume is not None:
            screen.warn("no thread can be read: starting a new one")
        return session
    try:
        session.thread = await choose_thread(args, session, keyboard)
        await session.remember()
    except StoreFailed as exc:
        if args.latest or args.resume is not None:
            screen.warn("no thread can be read: starting a new one")
        await session.continue_in_memory(exc)
    if session.thread is not None:
        await _adapt_thread(args, session)
    return session


async def _adapt_thread(args: argparse.Namespace, session: ChatSession) -> None:
    """Applies `--fork`, `--model` and `--agent` to a thread that continues."""
    try:
        await _apply(args, session)
    except StoreFailed as exc:
        await session.continue_in_memory(exc)
        await _apply(args, session)
    await session.remember()


async def _chat(args: argparse.Namespace, backend: ChatBackend) -> int:
    # Imported here: `-p` has no commands.
    from threadline.cli.chat.conversation import Conversation  # noqa: PLC0415

    conversation = Conversation(backend)
    keyboard, screen = conversation.keyboard, Screen()
    approver: Approver = TerminalApprover(keyboard, screen, backend.checks)
    if args.allow_tools:
        approver = AllowAll(screen, backend.checks)
    session = await open_session(args, backend, screen, approver, keyboard)
    if backend.failure is not None and not session.is_in_memory:
        screen.warn(f"this chat can be read, but it cannot be saved: {backend.failure}")
    await _welcome(session, backend)
    await conversation.run(session, " ".join(args.question))
    await session.try_to_save()
    return await _say_goodbye(args, session)


async def _say_goodbye(args: argparse.Namespace, session: ChatSession) -> int:
    unsaved = await session.count_unsaved()
    if (thread_id := session.stored_thread_id) is not None:
        what = "Saved, except for what follows" if unsaved else "Saved"
        session.screen.note(f"{what}. Resume with: {_resume_command(args, thread_id)}", is_wrapped=False)
    if unsaved:
        session.screen.warn(f"{pluralize(unsaved, 'message')} of this chat could not be saved")
    return _NOT_SAVED if unsaved else 0


async def _apply(args: argparse.Namespace, session: ChatSession) -> None:
    assert session.thread is not None
    if args.fork:
        session.thread = await session.thread.branch()
    changes: ThreadUpdate = {}
    if args.model is not None and args.model != session.thread.model:
        changes["model"] = args.model
    if args.agent is not None and args.agent != session.thread.agent_id:
        changes["agent_id"] = args.agent
    if changes:
        await session.thread.update(**changes)


async def _explain_rehearsal(session: ChatSession) -> None:
    """The first start: says what answers, and how to get a model."""
    session.screen.note("rehearsal is not a model: it needs no key and shows what an agent would be given.")
    # Imported here: only a chat without settings needs it.
    from threadline.cli.model_search import find_keys, find_servers  # noqa: PLC0415

    sources = [*find_keys(os.environ), *await find_servers(os.environ, _PROBE_SECONDS)]
    if not sources:
        session.screen.note(
            "For a real model set ANTHROPIC_API_KEY or OPENAI_API_KEY, or start Ollama; then threadline init."
        )
        return
    named = ", ".join(f"{s.title} (${s.key_variable})" if s.key_variable else f"{s.title} here" for s in sources)
    session.screen.note(f"Found: {named}. Use it with: threadline init")


async def _welcome(session: ChatSession, backend: ChatBackend) -> None:
    thread = session.thread
    if thread is None:
        session.screen.note(f"Threadline, agent {session.agent_id}. /help lists commands, Ctrl-D quits.")
        if session.agent_id == "rehearsal" and backend.is_unconfigured:
            await _explain_rehearsal(session)
        return
    title, count = printable(thread.title or "(untitled)"), pluralize(thread.message_count, "message")
    session.screen.note(f"Resuming {title} ({count}, {thread.id}).")
    try:
        await session.show_thread()
    except StoreFailed as exc:
        await session.continue_in_memory(exc)
    await session.warn_of_missing_agent()


def _resume_command(args: argparse.Namespace, thread_id: str) -> str:
    """The command that continues the thread, with the options that led to it; never with a password."""
    given = [(name, getattr(args, name)) for name in _RESUME_OPTIONS if getattr(args, name) is not None]
    options = [f"--{name} {shlex.quote(without_password(value))}" for name, value in given]
    return " ".join(["threadline chat", *options, f"--resume {thread_id}"])
