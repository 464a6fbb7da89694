"""SQLite and PostgreSQL, driven by the same random story, answer each step as the plain model does.

Two owners of one tenant create, append, repeat, branch, save, load, undo, move, switch, delete, restore, purge, rename,
list and search, on each other's threads now and then. After the story, every history on every timeline is compared.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from tests.conftest import open_database, postgres_database
from tests.stores.model import Facts, Model, Said, Written
from threadline.core import messages
from threadline.core.errors import ThreadlineError
from threadline.core.messages import Message, Role
from threadline.core.sealing import Sealed, Sealer
from threadline.core.threads import NewThread, Scope, Thread, ThreadChanges
from threadline.ports import Store, Transaction
from threadline.testing.clock import ManualClock

SEALER = Sealer()
OWNERS = ("alice", "bob")
NAMES = ("red", "green", "blue")
STATE_KEYS = tuple("abcdefgh")
KEYS = ("k1", "k2", "k3")

picks = st.integers(0, 63)
owners = st.sampled_from(OWNERS)
seqs = st.none() | st.integers(-2, 12)
roles = st.lists(st.sampled_from(("user", "assistant")), min_size=1, max_size=3)


class Stage(NamedTuple):
    """What every story is played on: the event loop, the clock, and a store of each kind."""

    loop: asyncio.Runner
    clock: ManualClock
    stores: dict[str, Store]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    clock = ManualClock()
    with asyncio.Runner() as loop:

        async def open_all() -> dict[str, Store]:
            addresses = {"sqlite": str(tmp_path / "model.db"), "postgres": await postgres_database()}
            return {name: await open_database(address, clock=clock) for name, address in addresses.items()}

        stores = loop.run(open_all())
        yield Stage(loop, clock, stores)
        for store in stores.values():
            loop.run(store.close())


def sealed(said: Sequence[Said]) -> list[Sealed]:
    return [SEALER.message(messages.new_message(message.role, message.text, id=message.id)) for message in said]


def told(found: list[Message]) -> list[Said]:
    return [Said(message.id, message.role, message.text) for message in found]


class Story(RuleBasedStateMachine):
    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self.stage = stage
        self.model = Model()
        self.tenant_id = f"story-{secrets.token_hex(8)}"
        self.began = stage.clock.now()
        self.made = 0
        self.said = 0
        self.appends: list[tuple[str, str, list[Said], str | None, int | None]] = []

    def facts(self, thread: Thread) -> Facts:
        touched = round((thread.updated_at - self.began).total_seconds())
        hidden = (thread.archived_at is not None, thread.deleted_at is not None)
        return Facts(thread.id, thread.state_key, thread.title, thread.message_count, *hidden, touched)

    def agree(self, owner: str, expected: Callable[[], Any], verb: Callable[[Transaction], Awaitable[Any]]) -> Any:
        """Both stores answer as the model does, in value or in kind of error."""
        try:
            answer: Any = expected()
        except ThreadlineError as error:
            answer = type(error).__name__
        for name, store in self.stage.stores.items():
            found = self.stage.loop.run(self._outcome(verb, store.scoped(Scope(self.tenant_id, owner))))
            assert found == answer, f"{name} answers {found!r}, and the model {answer!r}"
        return answer

    async def _outcome(self, verb: Callable[[Transaction], Awaitable[Any]], tx: Transaction) -> Any:
        try:
            found = await verb(tx)
        except ThreadlineError as error:
            return type(error).__name__
        return self.facts(found) if isinstance(found, Thread) else found

    def tick(self) -> None:
        self.stage.clock.advance()
        self.model.now = round((self.stage.clock.now() - self.began).total_seconds())

    def thread(self, pick: int) -> tuple[str, str]:
        """Some thread and who asks for it: nearly always its owner."""
        ids = sorted(self.model.threads)
        thread_id = ids[pick % len(ids)]
        owner = self.model.threads[thread_id].owner
        return (OWNERS[owner == "alice"] if pick >= 60 else owner), thread_id

    def has_threads(self) -> bool:
        return bool(self.model.threads)

    def speak(self, spoken: Sequence[str]) -> list[Said]:
        said = [Said(f"m{self.said + n}", _role(role), f"word{self.said + n} common") for n, role in enumerate(spoken)]
        self.said += len(said)
        return said

    def next_id(self) -> str:
        self.made += 1
        return f"n{self.made}"

    @initialize(spoken=roles)
    def begin(self, spoken: list[str]) -> None:
        self.create("alice", 0, False)
        self.append(0, spoken, None, None)

    @rule(owner=owners, pick=picks, again=st.booleans())
    def create(self, owner: str, pick: int, again: bool) -> None:
        self.tick()
        taken = sorted(self.model.threads)
        thread_id = taken[pick % len(taken)] if again and taken else self.next_id()
        key = STATE_KEYS[pick % len(STATE_KEYS)]
        self.agree(
            owner,
            lambda: self.model.create(owner, thread_id, key),
            lambda tx: tx.create_thread(NewThread(id=thread_id, state_key=key)),
        )

    @precondition(has_threads)
    @rule(pick=picks, spoken=roles, key=st.none() | st.sampled_from(KEYS), off=st.none() | st.integers(-1, 1))
    def append(self, pick: int, spoken: list[str], key: str | None, off: int | None) -> None:
        owner, thread_id = self.thread(pick)
        count = len(self.model.threads[thread_id].history)
        expected = None if off is None else max(count + off, 0)
        self._append(owner, thread_id, self.speak(spoken), key, expected)

    def _append(self, owner: str, thread_id: str, said: list[Said], key: str | None, expected: int | None) -> None:
        self.tick()
        self.appends.append((owner, thread_id, said, key, expected))

        async def verb(tx: Transaction) -> Written:
            done = await tx.append(thread_id, sealed(said), key=key, expected_count=expected)
            return Written(done.first_seq, done.message_ids, done.message_count, done.replayed)

        self.agree(owner, lambda: self.model.append(owner, thread_id, said, key, expected), verb)

    @precondition(lambda self: self.appends)
    @rule(pick=picks)
    def repeat(self, pick: int) -> None:
        self._append(*self.appends[-1 - pick % len(self.appends)])

    @precondition(has_threads)
    @rule(pick=picks, key_pick=picks, at=seqs)
    def branch(self, pick: int, key_pick: int, at: int | None) -> None:
        self.tick()
        owner, thread_id = self.thread(pick)
        new_id, key = self.next_id(), STATE_KEYS[key_pick % len(STATE_KEYS)]
        self.agree(
            owner,
            lambda: self.model.branch(owner, thread_id, new_id, key, at),
            lambda tx: tx.branch(thread_id, NewThread(id=new_id, state_key=key), at=at),
        )

    @precondition(has_threads)
    @rule(pick=picks, seq=st.integers(-2, 12))
    def move(self, pick: int, seq: int) -> None:
        self.tick()
        owner, thread_id = self.thread(pick)
        self.agree(owner, lambda: self.model.move(owner, thread_id, seq), lambda tx: tx.move(thread_id, seq))

    @precondition(has_threads)
    @rule(pick=picks, timeline_pick=picks, seq=st.none() | st.integers(-1, 9))
    def switch(self, pick: int, timeline_pick: int, seq: int | None) -> None:
        """To the end of another of its timelines, or to a point of it."""
        self.tick()
        owner, thread_id = self.thread(pick)
        timeline = timeline_pick % len(self.model.threads[thread_id].timelines)

        async def verb(tx: Transaction) -> Thread:
            timeline_id = (await tx.timelines(thread_id))[timeline].id
            if seq is None:
                return await tx.switch(thread_id, timeline_id)
            return await tx.move(thread_id, seq, timeline_id=timeline_id)

        def expected() -> Facts:
            if seq is None:
                return self.model.switch(owner, thread_id, timeline)
            return self.model.move(owner, thread_id, seq, timeline)

        self.agree(owner, expected, verb)

    @precondition(has_threads)
    @rule(pick=picks)
    def undo(self, pick: int) -> None:
        self.tick()
        owner, thread_id = self.thread(pick)
        self.agree(owner, lambda: self.model.undo(owner, thread_id), lambda tx: tx.undo(thread_id))

    @precondition(has_threads)
    @rule(pick=picks, name=st.sampled_from(NAMES), at=seqs)
    def save(self, pick: int, name: str, at: int | None) -> None:
        self.tick()
        owner, thread_id = self.thread(pick)

        async def verb(tx: Transaction) -> tuple[str, int]:
            saved = await tx.save(thread_id, name, at=at)
            return saved.thread_id, saved.point.seq

        self.agree(owner, lambda: self.model.save(owner, thread_id, name, at), verb)

    @precondition(has_threads)
    @rule(pick=picks, name=st.sampled_from(NAMES))
    def load(self, pick: int, name: str) -> None:
        self.tick()
        owner, thread_id = self.thread(pick)
        self.agree(owner, lambda: self.model.load(owner, thread_id, name), lambda tx: tx.load(thread_id, name))

    @rule(owner=owners, name=st.sampled_from(NAMES))
    def forget(self, owner: str, name: str) -> None:
        self.agree(owner, lambda: self.model.forget(owner, name), lambda tx: tx.forget_saved_point(name))

    @precondition(has_threads)
    @rule(pick=picks, archived=st.booleans())
    def rename(self, pick: int, archived: bool) -> None:
        owner, thread_id = self.thread(pick)
        title = f"title {pick}"
        changes = ThreadChanges(title=title, archived=archived)
        self.agree(
            owner,
            lambda: self.model.rename(owner, thread_id, title, archived=archived),
            lambda tx: tx.update_thread(thread_id, changes),
        )

    @precondition(has_threads)
    @rule(pick=picks)
    def delete(self, pick: int) -> None:
        self.tick()
        owner, thread_id = self.thread(pick)
        self.agree(owner, lambda: self.model.delete(owner, thread_id), lambda tx: tx.delete_thread(thread_id))

    @precondition(has_threads)
    @rule(pick=picks)
    def restore(self, pick: int) -> None:
        self.tick()
        owner, thread_id = self.thread(pick)
        self.agree(owner, lambda: self.model.restore(owner, thread_id), lambda tx: tx.restore_thread(thread_id))

    @precondition(has_threads)
    @rule(pick=picks)
    def purge(self, pick: int) -> None:
        owner, thread_id = self.thread(pick)
        self.agree(owner, lambda: self.model.purge(owner, thread_id), lambda tx: tx.purge_thread(thread_id))

    @precondition(has_threads)
    @rule(pick=picks, turns=st.integers(1, 4))
    def read(self, pick: int, turns: int) -> None:
        owner, thread_id = self.thread(pick)

        async def whole(tx: Transaction) -> list[Said]:
            return told(await tx.messages(thread_id))

        async def last(tx: Transaction) -> list[Said]:
            return told(await tx.last_turns(thread_id, turns))

        self.agree(owner, lambda: self.model.messages(owner, thread_id), whole)
        self.agree(owner, lambda: self.model.last_turns(owner, thread_id, turns), last)

    @rule(owner=owners, archived=st.sampled_from((None, False, True)), deleted=st.booleans(), limit=st.integers(1, 5))
    def list_threads(self, owner: str, archived: bool | None, deleted: bool, limit: int) -> None:
        async def pages(tx: Transaction) -> list[Facts]:
            found, cursor = [], None
            while True:
                page = await tx.threads(limit=limit, cursor=cursor, archived=archived, deleted=deleted)
                found += [self.facts(thread) for thread in page.items]
                cursor = page.next_cursor
                if cursor is None:
                    return found

        self.agree(owner, lambda: self.model.list(owner, archived=archived, deleted=deleted), pages)

    @precondition(lambda self: self.said)
    @rule(owner=owners, pick=picks)
    def search(self, owner: str, pick: int) -> None:
        word = f"word{pick % self.said}"
        holders = self.model.holders(owner, word)

        async def found(tx: Transaction) -> set[str]:
            hits = await tx.search(word, limit=100)
            assert {(hit.thread_id, hit.seq, hit.message_id) for hit in hits} <= holders
            return {hit.message_id for hit in hits}

        self.agree(owner, lambda: {message_id for _, _, message_id in holders}, found)

    def teardown(self) -> None:
        for owner in OWNERS:
            self.list_threads(owner, None, False, 100)
            self.agree(owner, partial(self.model.saved_points, owner), _saved_points)
        for thread in self.model.threads.values():
            if not thread.deleted:
                self.agree(thread.owner, partial(list, thread.timelines), partial(_timelines, thread.id))


def _role(spoken: str) -> Role:
    return "user" if spoken == "user" else "assistant"


async def _saved_points(tx: Transaction) -> list[tuple[str, str, int]]:
    return [(saved.name, saved.thread_id, saved.point.seq) for saved in await tx.saved_points()]


async def _timelines(thread_id: str, tx: Transaction) -> list[list[Said]]:
    timelines = await tx.timelines(thread_id)
    found = [told(await tx.messages(thread_id, timeline_id=timeline.id)) for timeline in timelines]
    assert [timeline.message_count for timeline in timelines] == [len(history) for history in found]
    return found


@pytest.mark.req("SX-05", "S1-09", "S4-11")
def test_both_stores_tell_the_story_the_model_tells(stage: Stage, slow: bool) -> None:
    class StoryOnStage(Story):
        def __init__(self) -> None:
            super().__init__(stage)

    examples, steps = (500, 80) if slow else (40, 40)
    run_state_machine_as_test(StoryOnStage, settings=settings(max_examples=examples, stateful_step_count=steps))
