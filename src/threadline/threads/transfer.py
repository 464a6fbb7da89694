"""Export and import: threads out as JSON Lines, JSON or Markdown, and in again from JSON Lines.

Both run in little memory. An import reads the file twice: first to check every line, then to store its threads, each in
a transaction of its own; a file with a bad line changes nothing. An import that was killed is simply repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import IO, NamedTuple, TypeAlias

import msgspec

from threadline.api_types import ThreadInfo
from threadline.core.errors import Conflict, InvalidImport, InvalidInput, NotFound
from threadline.core.history import History, HistoryItem, ImportedThread
from threadline.core.messages import to_ui
from threadline.core.sealing import Sealer
from threadline.core.threads import Scope
from threadline.core.transfer import ExportFormat, markdown_head, markdown_message
from threadline.core.transfer_reader import Place, Reader
from threadline.core.user_archive import PinnedText
from threadline.ports import Clock, Store, Transaction
from threadline.threads.history_export import export_history
from threadline.threads.history_import import CheckedRecord, HistoryImporter
from threadline.threads.user_threads import Threads

OpenLines: TypeAlias = Callable[[int], Iterable[bytes]]
"""The lines of a file from a byte on, each with its newline; a line that is too long may be cut just over the limit."""


async def export(threads: Threads, thread_id: str, form: ExportFormat) -> AsyncIterator[bytes]:
    """One thread: as `jsonl` with everything, otherwise its present history. NotFound."""
    if form == "jsonl":
        async for line in export_history(threads.session, thread_id):
            yield line
        return
    thread = await threads.get(thread_id)
    if thread is None:
        raise NotFound("thread", thread_id)
    if form == "markdown":
        yield markdown_head(thread).encode()
        async for message in threads.stream(thread_id):
            yield markdown_message(message).encode()
        return
    # The keys of the HTTP API; also for the terminal's `--json`.
    head = msgspec.json.encode(msgspec.convert(thread, ThreadInfo, from_attributes=True))[:-1]
    yield head + b',"messages":['
    separator = b""
    async for message in threads.stream(thread_id):
        yield separator + to_ui(message)
        separator = b","
    yield b"]}\n"


def lines_of(file: IO[bytes], longest_line: int) -> OpenLines:
    """The lines of a file that can be read again. One that is too long is cut just over the limit."""

    def open_lines(offset: int) -> Iterator[bytes]:
        file.seek(offset)
        return iter(lambda: file.readline(longest_line + 1), b"")

    return open_lines


class _Found(NamedTuple):
    place: Place
    checked: CheckedRecord


class _Items:
    """The items of the thread that begins at this place of the file, from the start each time they are iterated."""

    def __init__(self, open_lines: OpenLines, place: Place, longest_line: int, *, keep_system: bool) -> None:
        self._open_lines = open_lines
        self._place = place
        self._longest = longest_line
        self._keep_system = keep_system
        self.line = place.lines

    def __iter__(self) -> Iterator[HistoryItem]:
        reader = Reader(self._longest, self._place, keep_system=self._keep_system)
        block = next(reader.blocks(self._open_lines(self._place.offset)))
        for item in block.items:
            self.line = reader.line
            yield item


class Importer:
    """Imports exported threads under one scope. What is here already stays as it is; what is new is added."""

    def __init__(self, store: Store, sealer: Sealer, clock: Clock, scope: Scope) -> None:
        self._histories = (store, sealer, clock, scope)
        self._store = store
        self._sealer = sealer
        self._scope = scope
        self.pinned_added = 0
        """Pinned texts that the last run imported, with `keep_system`."""
        self.pinned_ignored = 0
        """Those that it did not, because the file is not vouched for."""
        limits = sealer.limits
        self.longest_line = 2 * limits.message_bytes + limits.metadata_bytes + 65_536

    async def run(
        self,
        open_lines: OpenLines,
        *,
        keep_system: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[ImportedThread]:
        """`keep_system` imports system texts as such and pinned texts, for an operator who vouches for the file: both
        instruct agents. `progress` gets the
        number of threads stored and found. InvalidImport names the first bad line, and nothing of that thread is
        stored; of a file with a line that cannot be right, nothing at all."""
        self._scope.require("member")
        importer = HistoryImporter(*self._histories, keep_system=keep_system)
        # In a thread: the largest files take minutes.
        found, pinned = await asyncio.to_thread(self._check, importer, open_lines, keep_system=keep_system)
        done: list[ImportedThread] = []
        for place, checked in found:
            items = _Items(open_lines, place, self.longest_line, keep_system=keep_system)
            try:
                done.append(await importer.store(History(checked.record, items), checked))
            except InvalidImport:
                raise
            except (InvalidInput, Conflict) as exc:
                raise InvalidImport(items.line, str(exc)) from exc
            if progress is not None:
                progress(len(done), len(found))
        self.pinned_added, self.pinned_ignored = 0, 0 if keep_system else len(pinned)
        for text in pinned if keep_system else ():
            self.pinned_added += await self._pin(text)
        return done

    async def _pin(self, text: PinnedText) -> bool:
        """False if something is pinned for this agent already: it stays."""
        clean = self._sealer.for_tenant(self._scope.tenant_id).text(text.context, "context")

        async def work(tx: Transaction) -> bool:
            if await tx.context(text.agent_id) is not None:
                return False
            await tx.set_context(text.agent_id, clean)
            return True

        return await self._store.transact(self._scope, work)

    def _check(
        self, importer: HistoryImporter, open_lines: OpenLines, *, keep_system: bool
    ) -> tuple[list[_Found], list[PinnedText]]:
        reader = Reader(self.longest_line, keep_system=keep_system)
        found: list[_Found] = []
        for block in reader.blocks(open_lines(0)):
            try:
                found.append(_Found(block.place, importer.check(block.thread, block.items)))
            except InvalidImport:
                raise
            except InvalidInput as exc:
                raise InvalidImport(reader.line, str(exc)) from exc
        return found, reader.pinned
