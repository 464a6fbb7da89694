"""`threadline threads …`: list, read, search, branch, save, load, switch, rename, delete.

Every verb takes a thread by its id or its state key, and prints JSON with `--json`.
"""

from __future__ import annotations

import argparse
import contextlib
import sys

from threadline.cli.connection import opened, scope_of
from threadline.cli.output import counted, print_json, print_table, say, when
from threadline.cli.printable import cut, shown
from threadline.core.durations import parse_duration
from threadline.core.errors import NotFound
from threadline.core.messages import Message
from threadline.core.parts import FilePart, ReasoningPart, TextPart, ToolPart
from threadline.core.threads import NewThread, Thread, ThreadChanges
from threadline.threads.transfer import export
from threadline.threads.user_threads import Threads

_TITLE = 48


async def list_threads(args: argparse.Namespace) -> None:
    async with opened(args) as tl:
        page = await tl.threads(scope_of(tl)).page(
            limit=args.limit, cursor=args.cursor, archived=args.archived, deleted=args.deleted
        )
    if args.json:
        print_json({"threads": page.items, "nextCursor": page.next_cursor})
        return
    rows = [(t.id, when(t.updated_at), str(t.message_count), cut(t.title or "(untitled)", _TITLE)) for t in page.items]
    print_table(("id", "last activity", "messages", "title"), rows, empty="No threads yet. Start one: threadline chat")
    if page.next_cursor:
        print(f"\nMore: threadline threads list --cursor {page.next_cursor}")


async def show_thread(args: argparse.Namespace) -> None:
    async with opened(args) as tl:
        threads = tl.threads(scope_of(tl))
        thread = await threads.find(args.thread)
        if args.json:
            async for piece in export(threads, thread.id, "json"):
                sys.stdout.buffer.write(piece)
            return
        latest = None if args.last is None else await threads.last_turns(thread.id, args.last)
        print(f"{shown(thread.title or '(untitled)')}  [{thread.id}]  {counted(thread.message_count, 'message')}\n")
        for message in latest or ():
            _print_message(message)
        if latest is None:
            async for message in threads.stream(thread.id):
                _print_message(message)


def _print_message(message: Message) -> None:
    print(f"── {message.seq} · {message.role} · {when(message.created_at)}")
    for part in message.parts:
        match part:
            case TextPart():
                print(shown(part.text, multiline=True))
            case ReasoningPart():
                print(f"(thinking) {shown(cut(part.text, 200))}")
            case ToolPart():
                called = (part.input or b"").decode()
                outcome = part.error or (part.output or b"(no result)").decode()
                print(f"[{shown(part.name)}] {shown(cut(called, 200))} → {shown(cut(outcome, 400))}")
            case FilePart():
                print(f"[file] {shown(part.filename or part.media_type)}")
            case _:
                pass
    print()


async def search_threads(args: argparse.Namespace) -> None:
    async with opened(args) as tl:
        hits = await tl.threads(scope_of(tl)).search(" ".join(args.words), limit=args.limit)
    if args.json:
        print_json({"hits": hits})
        return
    rows = [(hit.thread_id, str(hit.seq), cut(hit.title or "(untitled)", 24), hit.snippet) for hit in hits]
    print_table(("thread", "message", "title", "passage"), rows, empty="Nothing found.")


async def branch_thread(args: argparse.Namespace) -> None:
    async with opened(args) as tl:
        threads = tl.threads(scope_of(tl))
        source = await threads.find(args.thread)
        made = await threads.branch(source.id, NewThread(title=args.title), at=_at(args.at))
    say(args, made, f"Branched: {made.id} begins with {made.message_count} messages of {source.id}")


async def save_point(args: argparse.Namespace) -> None:
    async with opened(args) as tl:
        threads = tl.threads(scope_of(tl))
        saved = await threads.save((await threads.find(args.thread)).id, args.name, at=_at(args.at))
    say(args, saved, f"Saved {shown(saved.name)!r} at message {saved.point.seq}")


async def load_point(args: argparse.Namespace) -> None:
    async with opened(args) as tl:
        threads = tl.threads(scope_of(tl))
        thread = await threads.load((await threads.find(args.thread)).id, args.name)
    say(args, thread, f"{thread.id} goes on from {shown(args.name)!r} with {thread.message_count} messages")


async def list_saves(args: argparse.Namespace) -> None:
    async with opened(args) as tl:
        saved = await tl.threads(scope_of(tl)).saved_points()
    if args.json:
        print_json({"saves": saved})
        return
    rows = [(point.name, point.thread_id, str(point.point.seq), when(point.created_at)) for point in saved]
    empty = "No saved points yet. Make one: threadline threads save THREAD NAME"
    print_table(("name", "thread", "message", "saved"), rows, empty=empty)


async def undo_turn(args: argparse.Namespace) -> None:
    async with opened(args) as tl:
        threads = tl.threads(scope_of(tl))
        before = await threads.find(args.thread)
        thread = await threads.undo(before.id)
    say(
        args,
        thread,
        f"{thread.message_count} messages now. To take it back: "
        f"threadline threads switch {thread.id} {before.timeline_id}",
    )


async def list_timelines(args: argparse.Namespace) -> None:
    async with opened(args) as tl:
        threads = tl.threads(scope_of(tl))
        thread = await threads.find(args.thread)
        lines = await threads.timelines(thread.id)
    if args.json:
        print_json({"timelines": lines, "current": thread.timeline_id})
        return
    rows = [
        (
            ("* " if line.id == thread.timeline_id else "  ") + line.id,
            str(line.message_count),
            f"{line.parent.timeline_id} at {line.parent.seq}" if line.parent else "",
            when(line.created_at),
        )
        for line in lines
    ]
    print_table(("  timeline", "messages", "from", "begun"), rows, empty="None.")


async def switch_timeline(args: argparse.Namespace) -> None:
    async with opened(args) as tl:
        threads = tl.threads(scope_of(tl))
        thread = await threads.switch((await threads.find(args.thread)).id, args.timeline)
    say(args, thread, f"{thread.id} stands on {thread.timeline_id} with {thread.message_count} messages")


async def rename_thread(args: argparse.Namespace) -> None:
    async with opened(args) as tl:
        threads = tl.threads(scope_of(tl))
        thread = await threads.update((await threads.find(args.thread)).id, ThreadChanges(title=args.title))
    say(args, thread, f"Renamed to {shown(thread.title or '')!r}")


async def delete_thread(args: argparse.Namespace) -> None:
    async with opened(args) as tl:
        threads = tl.threads(scope_of(tl))
        thread = await _even_deleted(threads, args.thread)
        if args.purge:
            await threads.purge(thread.id)
            said = f"Removed {thread.id} for good"
        else:
            await threads.delete(thread.id)
            said = f"Deleted {thread.id}. To bring it back: threadline threads restore {thread.id}"
    say(args, {"ok": True}, said)


async def _even_deleted(threads: Threads, name: str) -> Thread:
    with contextlib.suppress(NotFound):
        return await threads.find(name)
    found = await threads.get(name, deleted=True)
    if found is None:
        raise NotFound("thread", name)
    return found


async def restore_thread(args: argparse.Namespace) -> None:
    async with opened(args) as tl:
        thread = await tl.threads(scope_of(tl)).restore(args.thread)
    say(args, thread, f"Restored {thread.id}")


async def prune_threads(args: argparse.Namespace) -> None:
    async with opened(args) as tl:
        count = await tl.threads(scope_of(tl)).prune(older_than=parse_duration(args.older_than))
    say(args, {"removed": count}, f"Removed {counted(count, 'empty thread')}")


def _at(given: str | None) -> int | str | None:
    return int(given) if given is not None and given.lstrip("-").isdigit() else given
