"""The command itself: which thread to go on with, and the loop that reads and answers."""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from threadline.cli.chat import slash
from threadline.cli.chat.approval import AllowAll, TerminalApprover
from threadline.cli.chat.backends import ChatThread, Host, LocalHost
from threadline.cli.chat.keyboard import Keyboard, LineInput, PipedInput
from threadline.cli.chat.screen import Screen
from threadline.cli.chat.session import Options, Talk
from threadline.cli.connection import open_threadline, user_scope
from threadline.cli.output import format_time, pluralize
from threadline.cli.printable import printable, shorten
from threadline.core.errors import InvalidInput, NotFound, ThreadlineError
from threadline.ports import Approver
from threadline.replies import DenyAll
from threadline.settings import default_database

_PICKED = 20
_FAILED = 1


async def chat(args: argparse.Namespace) -> int:
    if args.fork and not (args.latest or args.resume is not None):
        raise InvalidInput("--fork needs --resume or --continue")
    if args.json and args.prompt is None:
        raise InvalidInput("--json needs -p")
    if args.token and args.server is None:
        raise InvalidInput("--token needs --server")
    if args.server is None:
        async with open_threadline(args) as tl:
            if args.agent:
                await tl.directory.find(user_scope(tl), args.agent)
            await tl.recovery.recover(user_scope(tl))
            await tl.recovery.drop_chunks(user_scope(tl))
            return await _chat(
                args, lambda approver: LocalHost(tl, user_scope(tl), approver), _history_file(tl.settings.database)
            )
    return await _chat_elsewhere(args)


async def _chat_elsewhere(args: argparse.Namespace) -> int:
    from threadline.cli.chat.remote_backend import RemoteHost  # noqa: PLC0415 - an extra
    from threadline.client import connect  # noqa: PLC0415

    if args.model or args.system or args.database:
        raise InvalidInput("--model, --system and --database cannot be used with --server: the service decides")
    token = args.token or os.environ.get("THREADLINE_TOKEN")
    async with connect(args.server, token=token) as client:
        host = RemoteHost(client, args.server)
        return await _chat(args, lambda approver: host, _history_file(str(default_database(os.environ))))


async def _chat(args: argparse.Namespace, host_for: Callable[[Approver], Host], history: Path | None) -> int:
    options = Options(agent=args.agent, model=args.model, system=args.system)
    if args.prompt is not None:
        asked_once: Approver = AllowAll() if args.allow_tools else DenyAll()
        return await _ask_once(args, Talk(host_for(asked_once), _screen(args), asked_once, options))
    words = [f"/{name}" for name in slash.COMMANDS]
    keyboard: LineInput = Keyboard(history, words) if sys.stdin.isatty() else PipedInput()
    screen = Screen()
    approver = AllowAll() if args.allow_tools else TerminalApprover(keyboard, screen)
    talk = Talk(host_for(approver), screen, approver, options)
    talk.thread = await _chosen(args, talk, keyboard)
    await _welcome(talk)
    await _loop(talk, keyboard)
    return 0


def _screen(args: argparse.Namespace) -> Screen:
    # With --json nothing but the JSON is printed.
    return Screen(io.StringIO()) if args.json else Screen()


async def _ask_once(args: argparse.Namespace, talk: Talk) -> int:
    text = await asyncio.to_thread(sys.stdin.read) if args.prompt == "-" else args.prompt
    if not text.strip():
        raise InvalidInput("no question: give one after -p or on standard input")
    talk.thread = await _chosen(args, talk, PipedInput())
    status = await talk.say(text.rstrip("\n"))
    if args.json and talk.thread is not None:
        newest = await talk.thread.last_turns(1)
        said = {"threadId": talk.thread.id, "status": status, "text": newest[-1].text if newest else ""}
        print(msgspec.json.encode(said).decode())
    return 0 if status in ("executed", None) else _FAILED


async def _chosen(args: argparse.Namespace, talk: Talk, keyboard: LineInput) -> ChatThread | None:
    found = await _found(args, talk, keyboard)
    return await talk.host.branch(found, None) if found is not None and args.fork else found


async def _found(args: argparse.Namespace, talk: Talk, keyboard: LineInput) -> ChatThread | None:
    if args.latest:
        latest = (await talk.host.threads(1)).items
        if not latest:
            talk.screen.warn("no thread to continue: starting a new one")
            return None
        return await talk.host.find(talk.host.name(latest[0]))
    if args.resume is None:
        return None
    wanted = args.resume or await _pick(talk, keyboard)
    if not wanted:
        return None
    try:
        return await talk.host.find(wanted)
    except NotFound:
        talk.screen.warn(f"no thread {wanted}: starting a new one")
        return None


async def _pick(talk: Talk, keyboard: LineInput) -> str | None:
    """A numbered list to choose from; an empty answer begins a new thread."""
    threads = (await talk.host.threads(_PICKED)).items
    if not threads:
        talk.screen.note("No threads yet: starting a new one.")
        return None
    for number, thread in enumerate(threads, start=1):
        title = shorten(printable(thread.title or "(untitled)"), 60)
        talk.screen.line(f"{number:3}  {format_time(thread.updated_at)}  {thread.message_count:5}  {title}")
    while True:
        try:
            answer = (await keyboard.read_answer("Which one? (number, or Enter for a new one) ")).strip()
        except EOFError as exc:
            raise InvalidInput("no thread chosen: give its id after --resume") from exc
        if not answer:
            return None
        if answer.isdigit() and 1 <= int(answer) <= len(threads):
            return talk.host.name(threads[int(answer) - 1])
        talk.screen.note(f"a number from 1 to {len(threads)}")


async def _welcome(talk: Talk) -> None:
    screen = talk.screen
    info = None if talk.thread is None else talk.thread.info
    if talk.thread is None or info is None:
        screen.note(f"Threadline, agent {talk.agent_id}. /help lists commands, Ctrl-D leaves.")
        return
    name = talk.host.name(info)
    screen.note(
        f"Going on with {printable(info.title or 'a thread')} ({pluralize(info.message_count, 'message')}, {name})."
    )
    talk.show_history(await talk.thread.last_turns(2))
    await talk.answer_pending()


async def _loop(talk: Talk, keyboard: LineInput) -> None:
    while True:
        try:
            text = await keyboard.read_line("> ")
        except KeyboardInterrupt:
            continue
        except EOFError:
            break
        if not text.strip():
            continue
        try:
            if text.startswith("/"):
                await slash.run(talk, text.strip())
            else:
                await talk.say(text)
        except slash.Quit:
            break
        except ThreadlineError as exc:
            talk.screen.error(str(exc))
    if talk.thread is not None:
        talk.screen.note(f"Kept. To go on: {talk.host.way_back(talk.thread)}")


def _history_file(database: str) -> Path | None:
    """What was typed is kept beside the database, readable by its owner only."""
    if "://" in database or database == ":memory:":
        return None
    path = Path(database).expanduser().parent / "chat-history"
    try:
        path.touch(mode=0o600)
    except OSError:
        return None
    return path
