"""Exports hold everything, and give the same bytes in every database that they are imported into."""

from __future__ import annotations

import datetime as dt
import hashlib
import io
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest

from tests.conftest import open_database, postgres_database
from tests.service.processes import eventually
from threadline.bootstrap import Threadline
from threadline.core.errors import InvalidImport
from threadline.core.hidden_parts import HiddenPart
from threadline.core.history import ImportedThread
from threadline.core.messages import assistant
from threadline.core.sealing import Sealer
from threadline.core.threads import Scope
from threadline.library import ThreadHandle, UserView
from threadline.ports import Store
from threadline.testing.clock import ManualClock
from threadline.threads.transfer import Importer, export, lines_of
from threadline.threads.user_threads import Threads

pytestmark = pytest.mark.req("G-08")


@pytest.fixture
async def other_stores(clock: ManualClock, tmp_path: Path) -> AsyncIterator[list[Store]]:
    """A fresh database of each kind."""
    addresses = [str(tmp_path / "fresh.db"), await postgres_database()]
    stores = [await open_database(address, clock=clock) for address in addresses]
    yield stores
    for store in stores:
        await store.close()


async def everything(threads: Threads) -> bytes:
    found = []
    for deleted in (False, True):
        page = await threads.page(archived=None, deleted=deleted, limit=100)
        assert page.next_cursor is None
        found += [thread.id for thread in page.items]
    return b"".join([piece for id in found async for piece in export(threads, id, "jsonl")])


async def import_into(store: Store, scope: Scope, clock: ManualClock, exported: bytes) -> list[ImportedThread]:
    importer = Importer(store, Sealer(), clock, scope)
    return await importer.run(lines_of(io.BytesIO(exported), importer.longest_line))


async def fill(store: Store, me: UserView, clock: ManualClock) -> ThreadHandle:
    """Threads with turns, versions, branches, points, a summary and a tag; one archived, one deleted, one empty."""
    thread = await me.create_thread(title="Trip", metadata={"tags": ["travel"]}, model="m-1", system_prompt="Be kind.")
    for question in ("One?", "Two?", "Three?"):
        clock.advance(60)
        await thread.ask(question)
    await thread.save("three")
    await thread.save("start", at=1)
    clock.advance(60)
    await thread.undo()
    await thread.ask("Three again?")
    await thread.compact(budget=1)
    (first, *_) = await thread.messages()
    await thread.rewind(first.id, before=True)
    await thread.ask("From the start?")
    await thread.load("three")
    clock.advance(60)
    branch = await thread.branch(at=2, title="Branch")
    await branch.append("On the branch")
    await branch.append("Forget", "these", "two")
    places = [HiddenPart(branch.info.timeline_id, seq) for seq in (4, 5)]
    await store.scoped(me.scope).hide_parts(branch.id, places)
    await branch.load("start")
    clock.advance(60)
    archived = await me.create_thread()
    await archived.append("Old news", assistant("Indeed."))
    await archived.update(archived=True)
    await (await me.create_thread(title="Empty")).refresh()
    gone = await me.create_thread()
    await gone.append("Forget this")
    await gone.delete()
    return thread


async def test_an_export_is_the_same_in_every_database_it_was_imported_into(
    me: UserView, threadline: Threadline, clock: ManualClock, other_stores: list[Store]
) -> None:
    await fill(threadline.store, me, clock)
    scope = me.scope
    exported = await everything(threadline.threads(scope))
    for word in (
        b'"turn"',
        b'"saved_point"',
        b'"summary"',
        b'"archived_at"',
        b'"deleted_at"',
        b'"travel"',
        b'"usage"',
        b'"hidden"',
    ):
        assert word in exported
    order = [thread.id for thread in await me.threads(archived=None)]
    clock.advance(3600)
    # A prompt of a file is not applied, see test_imports: from here on it is metadata.
    carried = exported
    for round, store in enumerate([*other_stores, other_stores[0]]):
        where = Scope(f"{scope.tenant_id}-{round}", scope.user_id)
        done = await import_into(store, where, clock, carried)
        assert {each.outcome for each in done} == {"created"}
        threads = Threads(store, Sealer(), clock, where)
        assert [thread.id for thread in (await threads.page(archived=None)).items] == order
        again = await everything(threads)
        assert again == carried or round == 0
        carried = again
        assert {each.outcome for each in await import_into(store, where, clock, carried)} <= {"unchanged", "deleted"}
        assert await everything(threads) == carried
    assert len(carried.splitlines()) == len(exported.splitlines())


async def test_importing_an_export_where_it_was_made_changes_nothing(
    me: UserView, threadline: Threadline, clock: ManualClock
) -> None:
    await fill(threadline.store, me, clock)
    threads = threadline.threads(me.scope)
    exported, listed = await everything(threads), await me.threads(archived=None)
    clock.advance(60)
    done = await import_into(threadline.store, me.scope, clock, exported)
    assert {each.outcome for each in done} == {"unchanged", "deleted"}
    assert await everything(threads) == exported
    assert await me.threads(archived=None) == listed


async def test_a_thread_that_was_continued_in_both_places_keeps_both(
    me: UserView, threadline: Threadline, clock: ManualClock, other_stores: list[Store]
) -> None:
    thread = await me.create_thread(title="Shared")
    await thread.append("One")
    here, there = threadline.threads(me.scope), Threads(other_stores[0], Sealer(), clock, me.scope)
    await import_into(other_stores[0], me.scope, clock, await everything(here))
    clock.advance(60)
    await there.append(thread.id, [assistant("There")])
    clock.advance(60)
    await thread.append(assistant("Here"))
    (done,) = await import_into(threadline.store, me.scope, clock, await everything(there))
    assert (done.outcome, done.messages) == ("extended", 1)
    assert [message.text for message in await thread.messages()] == ["One", "Here"]
    (_, branch) = await thread.timelines()
    assert [message.text for message in await thread.messages(timeline=branch.id)] == ["One", "There"]


async def test_a_line_that_only_the_database_refuses_is_named_and_earlier_threads_stay(
    store: Store, clock: ManualClock, tenant_id: str
) -> None:
    # The suite's stores hold 500 messages a thread.
    lines = b"".join([*long_export(1, 3), *long_export(1, 501, first=1)])
    scope = Scope(tenant_id, "alice")
    with pytest.raises(InvalidImport, match="messages per thread must be at most 500"):
        await import_into(store, scope, clock, lines)
    page = await Threads(store, Sealer(), clock, scope).page()
    assert [(thread.id, thread.message_count) for thread in page.items] == [("t0", 3)]


def long_export(threads: int, messages: int, first: int = 0) -> Iterable[bytes]:
    """Lines of the first version, with an id for every thread."""
    for number in range(first, first + threads):
        lines = [b'{"threadline":1,"thread":{"id":"t%d","state_key":"k%d"}}\n' % (number, number)]
        for seq in range(messages):
            text = b'{"type":"text","text":"message %d"}' % seq
            at = (dt.datetime(2020, 1, 1, tzinfo=dt.UTC) + dt.timedelta(minutes=seq)).isoformat().encode()
            line = b'{"createdAt":"%b","message":{"id":"m%d","role":"user","parts":[%b]}}\n' % (at, seq, text)
            lines.append(line)
        digest = hashlib.sha256(b"".join(lines)).hexdigest().encode()
        yield from lines
        yield b'{"end":{"messages":%d,"sha256":"%b"}}\n' % (messages, digest)


def test_an_import_that_was_killed_is_repeated(tmp_path: Path) -> None:
    file = tmp_path / "long.jsonl"
    file.write_bytes(b"".join(long_export(400, 30)))
    environment = {**os.environ, "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "threadline", "threads"]

    def run(*words: str) -> str:
        return subprocess.run(
            [*command, *words], env=environment, cwd=tmp_path, capture_output=True, check=True, text=True
        ).stdout

    def stored(database: str) -> int:
        return run("list", "--database", database, "--json", "--limit", "100").count('"stateKey"')

    run("import", str(file), "--database", "whole.db")
    killed = subprocess.Popen([*command, "import", str(file), "--database", "killed.db"], env=environment, cwd=tmp_path)
    eventually(lambda: (tmp_path / "killed.db").exists() and stored("killed.db") > 0)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    # Whether it was killed in the middle or had just ended, the repeat gives the same database.
    run("import", str(file), "--database", "killed.db")
    exports = [run("export", "--all", "--database", database) for database in ("whole.db", "killed.db")]
    assert exports[0].count('"end"') == 400
    assert sorted(exports[0].splitlines()) == sorted(exports[1].splitlines())
