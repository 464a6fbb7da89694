"""`threadline threads …`: list, show, search, branch, save, load, undo, switch, rename, delete, restore, prune.

A thread is named by its id, the first or last characters of its id, or its state key.
"""

from __future__ import annotations

import argparse

from threadline.cli.connection import open_threadline, user_scope
from threadline.cli.output import format_time, output_file, pluralize, print_json, print_table, report, to_json
from threadline.cli.printable import printable, short_folder, shorten
from threadline.cli.thread_filters import filter_fields
from threadline.cli.thread_ids import find_part, find_thread
from threadline.core.arguments import check_int
from threadline.core.durations import parse_duration
from threadline.core.messages import Message
from threadline.core.parts import FilePart, ReasoningPart, TextPart, ToolPart
from threadline.core.threads import NewThread, Page, Thread, ThreadChanges, ThreadHits
from threadline.threads.search_calls import LIST_LIMIT
from threadline.threads.transfer import export
from threadline.threads.user_threads import Threads

_TITLE_LENGTH = 48
_FOLDER_LENGTH = 30
MOST_LISTED = 100_000
_UNTITLED = "(untitled)"


async def list_threads(args: argparse.Namespace) -> None:
    async with open_threadline(args, must_write=False) as tl:
        threads = tl.threads(user_scope(tl))
        page = await _read_pages(threads, args)
        # Deleted threads have no readable messages.
        marks = [None if args.deleted else await _mark(threads, thread) for thread in page.items]
    if args.json:
        items = [{**to_json(t), "incomplete": mark} for t, mark in zip(page.items, marks, strict=True)]
        print_json({"threads": items, "nextCursor": page.next_cursor})
        return
    rows = [
        (
            thread.id,
            format_time(thread.updated_at),
            str(thread.message_count),
            shorten(short_folder(thread.working_dir), _FOLDER_LENGTH),
            shorten(thread.title or _UNTITLED, _TITLE_LENGTH) + ("" if mark is None else f" ({mark})"),
        )
        for thread, mark in zip(page.items, marks, strict=True)
    ]
    headings = ("id", "last activity", "messages", "folder", "title")
    print_table(headings, rows, empty="No threads yet. Start one: threadline chat")
    if page.next_cursor:
        print(f"\nMore: threadline threads list --cursor {page.next_cursor}")


async def _read_pages(threads: Threads, args: argparse.Namespace) -> Page[Thread]:
    """As many pages as the limit needs."""
    check_int("limit", args.limit, 1, MOST_LISTED)
    matching = filter_fields(args)
    items: list[Thread] = []
    cursor: str | None = args.cursor
    while True:
        least = min(args.limit - len(items), LIST_LIMIT)
        page = await threads.page(limit=least, cursor=cursor, archived=args.archived, deleted=args.deleted, **matching)
        items += page.items
        cursor = page.next_cursor
        if cursor is None or len(items) >= args.limit:
            return Page(tuple(items), cursor)


async def _mark(threads: Threads, thread: Thread) -> str | None:
    """Why the last reply of the thread is not complete."""
    last = await threads.messages(thread.id, newest=1) if thread.message_count else []
    return last[0].incomplete if last else None


async def show_thread(args: argparse.Namespace) -> None:
    async with open_threadline(args, must_write=False) as tl:
        threads = tl.threads(user_scope(tl))
        thread = await find_thread(threads, args.thread)
        if args.json:
            with output_file(None) as out:
                async for piece in export(threads, thread.id, "json"):
                    out.write(piece)
            return
        latest = None if args.last is None else await threads.last_turns(thread.id, args.last)
        print(f"{printable(thread.title or _UNTITLED)}  [{thread.id}]  {pluralize(thread.message_count, 'message')}\n")
        for message in latest or ():
            _print_message(message)
        if latest is None:
            async for message in threads.stream(thread.id):
                _print_message(message)


def _print_message(message: Message) -> None:
    mark = "" if message.incomplete is None else f" · {message.incomplete}"
    print(f"── {message.seq} · {message.role} · {format_time(message.created_at)}{mark}")
    for part in message.parts:
        match part:
            case TextPart():
                print(printable(part.text, multiline=True))
            case ReasoningPart():
                print(f"(reasoning) {printable(shorten(part.text, 200))}")
            case ToolPart():
                given = (part.input or b"").decode()
                outcome = part.error or (part.output or b"(no result)").decode()
                print(f"[{printable(part.name)}] {printable(shorten(given, 200))} → {printable(shorten(outcome, 400))}")
            case FilePart():
                print(f"[file] {printable(part.filename or part.media_type)}")
            case _:
                pass
    print()


async def search_threads(args: argparse.Namespace) -> None:
    async with open_threadline(args, must_write=False) as tl:
        page = await tl.threads(user_scope(tl)).search_threads(
            " ".join(args.words),
            limit=args.limit,
            cursor=args.cursor,
            passages=args.passages,
            **filter_fields(args),
        )
    if args.json:
        print_json({"threads": list(page), "nextCursor": page.next_cursor})
        return
    rows = [row for found in page for row in _search_rows(found)]
    print_table(("thread", "hits", "title", "message", "passage"), rows, empty="Nothing found.")
    if page.next_cursor:
        print(f"\nMore: repeat the command with --cursor {page.next_cursor}")


def _search_rows(found: ThreadHits) -> list[tuple[str, ...]]:
    passages = [(str(hit.seq), hit.snippet) for hit in found.hits] or [("", "")]
    head = (found.thread_id, str(found.hit_count), shorten(found.title or _UNTITLED, 24))
    return [(*(("", "", "") if number else head), *passage) for number, passage in enumerate(passages)]


async def branch_thread(args: argparse.Namespace) -> None:
    async with open_threadline(args) as tl:
        threads = tl.threads(user_scope(tl))
        source = await find_thread(threads, args.thread)
        branch = await threads.branch(source.id, NewThread(title=args.title), at=_parse_point(args.at))
    copied = pluralize(branch.message_count, "message")
    report(args, branch, f"Created branch {branch.id} with {copied} of {source.id}")


async def save_point(args: argparse.Namespace) -> None:
    async with open_threadline(args) as tl:
        threads = tl.threads(user_scope(tl))
        saved = await threads.save((await find_thread(threads, args.thread)).id, args.name, at=_parse_point(args.at))
    report(args, saved, f"Saved {printable(saved.name)!r} at message {saved.point.seq}")


async def load_point(args: argparse.Namespace) -> None:
    async with open_threadline(args) as tl:
        threads = tl.threads(user_scope(tl))
        thread = await threads.load((await find_thread(threads, args.thread)).id, args.name)
    count = pluralize(thread.message_count, "message")
    report(args, thread, f"Loaded {printable(args.name)!r} into {thread.id}: {count}")


async def list_saves(args: argparse.Namespace) -> None:
    async with open_threadline(args, must_write=False) as tl:
        saved = await tl.threads(user_scope(tl)).saved_points()
    if args.json:
        print_json({"saves": saved})
        return
    rows = [(point.name, point.thread_id, str(point.point.seq), format_time(point.created_at)) for point in saved]
    empty = "No saved points yet. Create one: threadline threads save THREAD NAME"
    print_table(("name", "thread", "message", "saved"), rows, empty=empty)


async def undo_turn(args: argparse.Namespace) -> None:
    async with open_threadline(args) as tl:
        threads = tl.threads(user_scope(tl))
        before = await find_thread(threads, args.thread)
        thread = await threads.undo(before.id)
    left = pluralize(thread.message_count, "message")
    redo = f"threadline threads switch {thread.id} {before.timeline_id}"
    report(args, thread, f"Undone: {left} left. Redo with: {redo}")


async def list_timelines(args: argparse.Namespace) -> None:
    async with open_threadline(args, must_write=False) as tl:
        threads = tl.threads(user_scope(tl))
        thread = await find_thread(threads, args.thread)
        lines = await threads.timelines(thread.id)
    if args.json:
        print_json({"timelines": lines, "current": thread.timeline_id})
        return
    rows = [
        (
            ("* " if line.id == thread.timeline_id else "  ") + line.id,
            str(line.message_count),
            f"{line.parent.timeline_id} at {line.parent.seq}" if line.parent else "",
            format_time(line.created_at),
        )
        for line in lines
    ]
    print_table(("  timeline", "messages", "branched from", "created"), rows, empty="No timelines.")


async def switch_timeline(args: argparse.Namespace) -> None:
    async with open_threadline(args) as tl:
        threads = tl.threads(user_scope(tl))
        found = await find_thread(threads, args.thread)
        timeline = find_part(args.timeline, [line.id for line in await threads.timelines(found.id)], "timeline")
        thread = await threads.switch(found.id, timeline)
    report(args, thread, f"Switched {thread.id} to {thread.timeline_id}: {pluralize(thread.message_count, 'message')}")


async def rename_thread(args: argparse.Namespace) -> None:
    async with open_threadline(args) as tl:
        threads = tl.threads(user_scope(tl))
        thread = await threads.update((await find_thread(threads, args.thread)).id, ThreadChanges(title=args.title))
    report(args, thread, f"Renamed to {printable(thread.title or '')!r}")


async def delete_thread(args: argparse.Namespace) -> None:
    async with open_threadline(args) as tl:
        threads = tl.threads(user_scope(tl))
        thread = await find_thread(threads, args.thread, deleted=True)
        if args.purge:
            await threads.purge(thread.id)
            sentence = f"Deleted {thread.id} permanently"
        else:
            await threads.delete(thread.id)
            sentence = f"Deleted {thread.id}. Restore with: threadline threads restore {thread.id}"
    report(args, {"ok": True}, sentence)


async def restore_thread(args: argparse.Namespace) -> None:
    async with open_threadline(args) as tl:
        threads = tl.threads(user_scope(tl))
        thread = await threads.restore((await find_thread(threads, args.thread, deleted=True)).id)
    report(args, thread, f"Restored {thread.id}")


async def prune_threads(args: argparse.Namespace) -> None:
    async with open_threadline(args) as tl:
        count = await tl.threads(user_scope(tl)).prune(older_than=parse_duration(args.older_than))
    report(args, {"removed": count}, f"Removed {pluralize(count, 'empty thread')}")


def _parse_point(given: str | None) -> int | str | None:
    """A number is a message's position in the thread; anything else is a message id."""
    return int(given) if given is not None and given.lstrip("-").isdigit() else given
