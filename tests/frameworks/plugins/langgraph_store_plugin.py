"""A pytest plugin for LangGraph's own tests of stores: its store in memory and its store on SQLite become one of
Threadline.

Each store is that of a user of its own, in the database that FRAMEWORK_TEST_DATABASE names.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import langgraph.store.memory
import langgraph.store.sqlite

import threadline
from threadline.adapters.langgraph import ThreadlineStore

_opened = threadline.open_sync(os.environ["FRAMEWORK_TEST_DATABASE"])


class InMemoryStore(ThreadlineStore):
    def __init__(self, **options: Any) -> None:
        super().__init__(_opened.as_user(uuid.uuid4().hex), **options)


class SqliteStore(InMemoryStore):
    @classmethod
    @contextmanager
    def from_conn_string(cls, path: str, *, index: Any = None, **options: Any) -> Iterator[Any]:
        if index is not None and index.get("text_fields"):
            index = {**index, "fields": index["text_fields"]}
        yield cls(index=index, **options)

    def setup(self) -> None:
        """There is nothing to do."""


langgraph.store.memory.InMemoryStore = InMemoryStore
langgraph.store.sqlite.SqliteStore = SqliteStore


def pytest_unconfigure() -> None:
    _opened.close()
