"""Which thread a chat continues: the one that was named, the latest of this folder, or one chosen from a list."""

from __future__ import annotations

import argparse

from threadline.cli.chat.keyboard import LineInput
from threadline.cli.chat.session import ChatSession
from threadline.cli.output import format_time
from threadline.cli.printable import printable, short_folder, shorten
from threadline.cli.thread_ids import all_threads, find_by_part
from threadline.core.errors import InvalidInput, NotFound
from threadline.core.threads import Page, Thread
from threadline.ports.gateway import Gateway, GatewayThread

# A folder's latest thread is nearly always among these; each hundred is a read.
_SEARCHED = 1_000
_LISTED = 500
_NUMBERED = 20
_PAGE = 100


async def choose_thread(args: argparse.Namespace, session: ChatSession, keyboard: LineInput) -> GatewayThread | None:
    """None starts a new thread."""
    if args.latest:
        return await _latest(session)
    if args.resume is None:
        return None
    chosen = args.resume or await _pick(session, keyboard)
    if not chosen:
        return None
    try:
        return await open_thread(session.gateway, chosen)
    except NotFound:
        session.screen.warn(f"no thread {chosen}: starting a new one")
        return None


async def open_thread(gateway: Gateway, name: str) -> GatewayThread:
    """By id, state key, or a part of the id. NotFound, or InvalidInput if it fits several threads."""
    try:
        return await gateway.thread(name)
    except NotFound:
        found = await find_by_part(name, lambda cursor: _page(gateway, cursor, archived=None))
        if found is None:
            raise
        return await gateway.thread(found.id)


async def _page(gateway: Gateway, cursor: str | None, *, archived: bool | None = False) -> Page[Thread]:
    return await gateway.threads(limit=_PAGE, cursor=cursor, archived=archived)


async def _latest(session: ChatSession) -> GatewayThread | None:
    """The latest thread of this folder; else the latest one, and the chat says where it is from."""
    folder, latest = session.working_dir, None
    async for thread in all_threads(lambda cursor: _page(session.gateway, cursor), _SEARCHED):
        if folder is not None and thread.working_dir == folder:
            return await session.gateway.thread(thread.id)
        latest = latest or thread
    if latest is None:
        session.screen.warn("no thread to continue: starting a new one")
        return None
    if folder is not None and latest.working_dir is not None:
        place = short_folder(latest.working_dir)
        session.screen.warn(f"no thread of this folder: continuing the latest one, of {place}")
    return await session.gateway.thread(latest.id)


async def _pick(session: ChatSession, keyboard: LineInput) -> str | None:
    """The id of the thread that the user chooses. None for a new thread."""
    threads = [
        each async for each in all_threads(lambda cursor: _page(session.gateway, cursor), _LISTED) if each.message_count
    ]
    if not threads:
        session.screen.note("No threads yet: starting a new one.")
        return None
    if keyboard.is_terminal:
        # Imported here: only a list to choose from needs it.
        from threadline.cli.chat.thread_picker import pick_thread  # noqa: PLC0415

        return await pick_thread(threads, session.working_dir, colours=session.screen.colours)
    return await _ask_for_number(session, keyboard, threads[:_NUMBERED])


async def _ask_for_number(session: ChatSession, keyboard: LineInput, threads: list[Thread]) -> str | None:
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
