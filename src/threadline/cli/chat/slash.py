"""Slash commands: each with its help in one place. `run` is the only way in; unknown ones get a hint."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from threadline.cli.chat.backends import ChatThread, Info
from threadline.cli.chat.session import Talk
from threadline.cli.output import format_time
from threadline.cli.printable import printable, shorten
from threadline.cli.transfer import output_file
from threadline.core.errors import InvalidInput, NotFound
from threadline.core.transfer import ExportFormat

_LISTED = 15


class Quit(Exception):
    """The person is done."""


class Command(NamedTuple):
    name: str
    argument: str
    help: str
    run: Callable[[Talk, str], Awaitable[None]]


async def run(chat: Talk, text: str) -> None:
    """Runs `/name argument`. InvalidInput for a command there is not, with the nearest one that there is."""
    name, _, argument = text[1:].partition(" ")
    command = COMMANDS.get(name.lower())
    if command is None:
        near = difflib.get_close_matches(name.lower(), COMMANDS, n=1)
        hint = f" Did you mean /{near[0]}?" if near else ""
        raise InvalidInput(f"there is no /{name}.{hint} /help lists what there is")
    await command.run(chat, argument.strip())


async def show_help(chat: Talk, argument: str) -> None:
    width = max(len(f"/{c.name} {c.argument}") for c in COMMANDS.values())
    for command in COMMANDS.values():
        chat.screen.line(f"{f'/{command.name} {command.argument}':{width}}  {command.help}")
    chat.screen.line("Alt-Enter begins a new line. Ctrl-C stops a reply, Ctrl-D leaves.")


async def new(chat: Talk, argument: str) -> None:
    chat.thread = await chat.host.begin(chat.options, chat.agent_id, argument) if argument else None
    chat.screen.note("A new thread begins with your next message.")


async def branch(chat: Talk, argument: str) -> None:
    source = _opened(chat)
    chat.thread = await chat.host.branch(source, argument or None)
    chat.screen.note(f"You are on a branch now: {chat.thread.id}. The other is unchanged: {source.id}")


async def save(chat: Talk, argument: str) -> None:
    thread = chat.thread
    if thread is None:
        raise InvalidInput("there is nothing to save yet")
    saved = await thread.save(argument or f"point-{_current(chat).message_count}")
    chat.screen.note(f"Saved {printable(saved.name)}. /load {printable(saved.name)} comes back here.")


async def load(chat: Talk, argument: str) -> None:
    if not argument:
        points = await chat.host.saved_points()
        for point in points:
            chat.screen.line(f"{printable(point.name)}  (message {point.point.seq}, {format_time(point.created_at)})")
        chat.screen.note("/load NAME goes on from one of these." if points else "Nothing is saved yet.")
        return
    await (await chat.begin_thread()).load(argument)
    chat.screen.note(f"Loaded {printable(argument)}: {_current(chat).message_count} messages.")


async def undo(chat: Talk, argument: str) -> None:
    if chat.thread is None:
        raise InvalidInput("there is nothing to undo")
    await chat.thread.undo()
    chat.screen.note(f"Undone: {_current(chat).message_count} messages now.")


async def context(chat: Talk, argument: str) -> None:
    contexts = chat.host.contexts
    if argument == "clear":
        await contexts.clear(chat.agent_id)
        chat.screen.note("Nothing is pinned any more.")
    elif argument:
        await contexts.set(chat.agent_id, argument)
        chat.screen.note(f"Pinned for {chat.agent_id}: it goes first into every prompt.")
    else:
        try:
            pinned = (await contexts.get(chat.agent_id)).context
            chat.screen.line(f"Pinned for {chat.agent_id}:\n{printable(pinned, multiline=True)}")
        except NotFound:
            chat.screen.note(f"Nothing is pinned for {chat.agent_id}. /context TEXT pins something.")
        if chat.thread is not None:
            info = await chat.thread.refresh()
            name = chat.host.name(info)
            chat.screen.note(f"Thread {name}: {info.message_count} messages, {info.token_count} tokens.")


async def list_threads(chat: Talk, argument: str) -> None:
    page = await chat.host.threads(_LISTED)
    for thread in page.items:
        name = chat.host.name(thread)
        mark = "*" if chat.thread is not None and name == chat.thread.id else " "
        chat.screen.line(
            f"{mark} {name}  {format_time(thread.updated_at)}  {shorten(printable(thread.title or ''), 50)}"
        )
    chat.screen.note("/open ID goes on with one of these." if page.items else "No threads yet.")


async def open_thread(chat: Talk, argument: str) -> None:
    if not argument:
        raise InvalidInput("say which: /open ID; /threads lists them")
    chat.thread = await chat.host.find(argument)
    chat.show_history(await chat.thread.last_turns(2))
    await chat.answer_pending()


async def rename(chat: Talk, argument: str) -> None:
    await chat.host.change(await chat.begin_thread(), title=argument)
    chat.screen.note(f"Renamed to {printable(argument)}.")


async def model(chat: Talk, argument: str) -> None:
    if not argument:
        held = _current(chat).model if chat.thread and chat.thread.info else None
        chat.screen.line(f"agent {chat.agent_id}, model {held or chat.options.model or 'the default one'}")
        return
    if chat.thread is not None:
        await chat.host.change(chat.thread, model=argument)
    chat.options = msgspec.structs.replace(chat.options, model=argument)
    chat.screen.note(f"From now on: {printable(argument)}.")


async def compact(chat: Talk, argument: str) -> None:
    if chat.thread is None:
        raise InvalidInput("there is nothing to compact yet")
    covered = await chat.host.compact(chat.thread)
    if covered is None:
        chat.screen.note("It is short enough as it is.")
    else:
        chat.screen.note(f"Messages up to {covered} are summed up for the agent. All of them are kept.")


async def export_thread(chat: Talk, argument: str) -> None:
    thread = _opened(chat)
    path = Path(argument or f"{thread.id}.md")
    form: ExportFormat = "jsonl" if path.suffix == ".jsonl" else "json" if path.suffix == ".json" else "markdown"
    with output_file(str(path)) as out:
        async for piece in chat.host.export(thread, form):
            out.write(piece)
    chat.screen.note(f"Written to {path}.")


async def leave(chat: Talk, argument: str) -> None:
    raise Quit


def _opened(chat: Talk) -> ChatThread:
    if chat.thread is None or chat.thread.info is None:
        raise InvalidInput("no thread is open yet: say something first, or /open one")
    return chat.thread


def _current(chat: Talk) -> Info:
    info = _opened(chat).info
    assert info is not None
    return info


COMMANDS = {
    command.name: command
    for command in (
        Command("help", "", "what there is", show_help),
        Command("new", "[name]", "begin another thread", new),
        Command("branch", "[name]", "go on in a copy; this thread stays as it is", branch),
        Command("save", "[name]", "give this point a name", save),
        Command("load", "[name]", "go on from a saved point", load),
        Command("undo", "", "take back the last question and its answer", undo),
        Command("context", "[text|clear]", "show or pin what the agent is always told", context),
        Command("threads", "", "your latest threads", list_threads),
        Command("open", "<id>", "go on with another thread", open_thread),
        Command("rename", "<name>", "give this thread a title", rename),
        Command("model", "[name]", "show or change the model", model),
        Command("compact", "", "sum up the older part for the agent", compact),
        Command("export", "[file]", "write this thread to a file (.md, .json, .jsonl)", export_thread),
        Command("quit", "", "leave", leave),
    )
}
