"""The simplest store there could be: threads are lists of messages, and a branch copies the list.

It keeps the contract of the port for one tenant, in a few dozen plain lines, and is what the real stores are compared
with. Answers are told as `Facts` and lists; errors are the real ones. Ids that a store makes up do not appear:
timelines go by their number.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from threadline.core.errors import DuplicateId, HeadMoved, InvalidInput, KeyReused, NotFound
from threadline.core.messages import Role


class Said(NamedTuple):
    id: str
    role: Role
    text: str


class Facts(NamedTuple):
    """What can be known of a thread without ids that were made up."""

    id: str
    state_key: str
    title: str | None
    message_count: int
    archived: bool
    deleted: bool
    touched: int


class Written(NamedTuple):
    """What an append answers."""

    first_seq: int
    ids: tuple[str, ...]
    message_count: int
    replayed: bool


@dataclasses.dataclass
class ModelThread:
    id: str
    owner: str
    state_key: str
    touched: int
    timelines: list[list[Said]]
    title: str | None = None
    at: int = 0
    archived: bool = False
    deleted: bool = False
    keys: dict[str, tuple[list[tuple[Role, str]], Written]] = dataclasses.field(default_factory=dict)

    @property
    def history(self) -> list[Said]:
        return self.timelines[self.at]

    @property
    def facts(self) -> Facts:
        return Facts(self.id, self.state_key, self.title, len(self.history), self.archived, self.deleted, self.touched)


class Model:
    def __init__(self) -> None:
        self.now = 0
        self.threads: dict[str, ModelThread] = {}
        self.saved: dict[tuple[str, str], tuple[str, list[Said]]] = {}

    def living(self, owner: str, thread_id: str) -> ModelThread:
        thread = self.threads.get(thread_id)
        if thread is None or thread.owner != owner or thread.deleted:
            raise NotFound("thread", thread_id)
        return thread

    def create(self, owner: str, thread_id: str, state_key: str, history: list[Said] | None = None) -> Facts:
        if thread_id in self.threads:
            raise DuplicateId("thread", thread_id)
        self._check_key_is_free(owner, state_key)
        made = ModelThread(thread_id, owner, state_key, self.now, [list(history or [])])
        self.threads[thread_id] = made
        return made.facts

    def _check_key_is_free(self, owner: str, state_key: str) -> None:
        for thread in self.threads.values():
            if (thread.owner, thread.state_key, thread.deleted) == (owner, state_key, False):
                raise DuplicateId("state key", state_key)

    def append(
        self, owner: str, thread_id: str, said: list[Said], key: str | None, expected_count: int | None
    ) -> Written:
        thread = self.living(owner, thread_id)
        content = [(message.role, message.text) for message in said]
        if key is not None and key in thread.keys:
            if thread.keys[key][0] != content:
                raise KeyReused(key)
            return thread.keys[key][1]._replace(replayed=True)
        standing = [index for index, message in enumerate(thread.history) if message.id in {new.id for new in said}]
        if standing:
            first = standing[0]
            if thread.history[first : first + len(said)] != said:
                raise DuplicateId("message", thread.history[first].id)
            return Written(first, tuple(message.id for message in said), first + len(said), replayed=True)
        if expected_count not in (None, len(thread.history)):
            raise HeadMoved(len(thread.history), expected_count or 0)
        first = len(thread.history)
        thread.history.extend(said)
        thread.touched = self.now
        written = Written(first, tuple(message.id for message in said), len(thread.history), replayed=False)
        if key is not None:
            thread.keys[key] = (content, written)
        return written

    def messages(self, owner: str, thread_id: str, timeline: int | None = None) -> list[Said]:
        thread = self.living(owner, thread_id)
        return list(thread.history if timeline is None else thread.timelines[timeline])

    def last_turns(self, owner: str, thread_id: str, turns: int) -> list[Said]:
        history = self.living(owner, thread_id).history
        starts = [index for index, message in enumerate(history) if message.role == "user"]
        return history[starts[-turns] if turns <= len(starts) else 0 :]

    def branch(self, owner: str, thread_id: str, new_id: str, state_key: str, at: int | None) -> Facts:
        self._check_seq(at)
        source = self.living(owner, thread_id)
        return self.create(owner, new_id, state_key, self._up_to(source.history, at))

    @staticmethod
    def _check_seq(at: int | None) -> None:
        """A wrong argument is rejected before the thread is looked up."""
        if at is not None and at < -1:
            raise InvalidInput("seq below -1")

    @staticmethod
    def _up_to(history: list[Said], at: int | None) -> list[Said]:
        if at is None:
            return list(history)
        if not -1 <= at < len(history):
            raise InvalidInput("no such seq")
        return history[: at + 1]

    def move(self, owner: str, thread_id: str, seq: int, timeline: int | None = None) -> Facts:
        self._check_seq(seq)
        thread = self.living(owner, thread_id)
        origin = thread.history if timeline is None else thread.timelines[timeline]
        return self._continue(thread, self._up_to(origin, seq))

    def undo(self, owner: str, thread_id: str) -> Facts:
        thread = self.living(owner, thread_id)
        starts = [index for index, message in enumerate(thread.history) if message.role == "user"]
        if not starts:
            raise InvalidInput("nothing to undo")
        return self._continue(thread, thread.history[: starts[-1]])

    def _continue(self, thread: ModelThread, history: list[Said]) -> Facts:
        thread.timelines.append(list(history))
        thread.at, thread.touched = len(thread.timelines) - 1, self.now
        return thread.facts

    def switch(self, owner: str, thread_id: str, timeline: int) -> Facts:
        thread = self.living(owner, thread_id)
        if thread.at != timeline:
            thread.at, thread.touched = timeline, self.now
        return thread.facts

    def save(self, owner: str, thread_id: str, name: str, at: int | None) -> tuple[str, int]:
        self._check_seq(at)
        history = self._up_to(self.living(owner, thread_id).history, at)
        self.saved[owner, name] = (thread_id, history)
        return thread_id, len(history) - 1

    def load(self, owner: str, thread_id: str, name: str) -> Facts:
        thread = self.living(owner, thread_id)
        if (owner, name) not in self.saved:
            raise NotFound("saved point", name)
        return self._continue(thread, self.saved[owner, name][1])

    def forget(self, owner: str, name: str) -> bool:
        return self.saved.pop((owner, name), None) is not None

    def saved_points(self, owner: str) -> list[tuple[str, str, int]]:
        found = [(name, *point) for (whose, name), point in self.saved.items() if whose == owner]
        return sorted((name, thread_id, len(history) - 1) for name, thread_id, history in found)

    def rename(self, owner: str, thread_id: str, title: str, *, archived: bool) -> Facts:
        thread = self.living(owner, thread_id)
        thread.title, thread.archived = title, archived
        return thread.facts

    def delete(self, owner: str, thread_id: str) -> bool:
        try:
            self.living(owner, thread_id).deleted = True
        except NotFound:
            return False
        return True

    def restore(self, owner: str, thread_id: str) -> Facts:
        thread = self.threads.get(thread_id)
        if thread is None or thread.owner != owner or not thread.deleted:
            raise NotFound("thread", thread_id)
        self._check_key_is_free(owner, thread.state_key)
        thread.deleted = False
        return thread.facts

    def purge(self, owner: str, thread_id: str) -> bool:
        thread = self.threads.get(thread_id)
        if thread is None or thread.owner != owner:
            return False
        del self.threads[thread_id]
        self.saved = {name: point for name, point in self.saved.items() if point[0] != thread_id}
        return True

    def list(self, owner: str, *, archived: bool | None, deleted: bool) -> list[Facts]:
        found = [
            thread
            for thread in self.threads.values()
            if thread.owner == owner and thread.deleted == deleted and archived in (None, thread.archived)
        ]
        return [thread.facts for thread in sorted(found, key=lambda thread: (thread.touched, thread.id), reverse=True)]

    def holders(self, owner: str, word: str) -> set[tuple[str, int, str]]:
        """The places of a word in the current histories of the owner's threads: thread, seq, message."""
        return {
            (thread.id, seq, message.id)
            for thread in self.threads.values()
            if thread.owner == owner and not thread.deleted
            for seq, message in enumerate(thread.history)
            if word in message.text.split()
        }
