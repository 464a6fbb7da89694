"""Export and import: threads out as JSON Lines, JSON or Markdown, and in again from JSON Lines, all or nothing.

Both run in little memory. An import reads its lines twice: first to check every one of them, then, in a single
transaction, to store them; a file with a bad line changes nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator

import msgspec

from threadline.api_types import ThreadInfo
from threadline.core.errors import InvalidImport, NotFound, ThreadlineError
from threadline.core.ids import check_id, new_id, new_state_key
from threadline.core.messages import NewMessage, to_ui
from threadline.core.sealing import Sealed, Sealer
from threadline.core.threads import Scope, Thread
from threadline.core.transfer import (
    EndLine,
    ExportFormat,
    MessageLine,
    Reader,
    ThreadLine,
    Writer,
    markdown_head,
    markdown_message,
)
from threadline.ports import Store, Transaction
from threadline.threads.field_checks import admit_thread
from threadline.threads.user_threads import Threads, first_title

_BATCH = 500


async def export(threads: Threads, thread_id: str, form: ExportFormat) -> AsyncIterator[bytes]:
    """The present history of one thread. NotFound."""
    thread = await threads.get(thread_id)
    if thread is None:
        raise NotFound("thread", thread_id)
    match form:
        case "jsonl":
            writer = Writer()
            yield writer.thread(thread)
            async for message in threads.stream(thread_id):
                yield writer.message(message)
            yield writer.end()
        case "markdown":
            yield markdown_head(thread).encode()
            async for message in threads.stream(thread_id):
                yield markdown_message(message).encode()
        case "json":
            # The keys of the HTTP API; also for the terminal's `--json`.
            head = msgspec.json.encode(msgspec.convert(thread, ThreadInfo, from_attributes=True))[:-1]
            yield head + b',"messages":['
            separator = b""
            async for message in threads.stream(thread_id):
                yield separator + to_ui(message)
                separator = b","
            yield b"]}\n"


class Importer:
    """Brings exported threads in under one scope. A thread whose id or state key is taken gets new ones."""

    def __init__(self, store: Store, sealer: Sealer, scope: Scope) -> None:
        self._store = store
        self._sealer = sealer.for_tenant(scope.tenant_id)
        self._scope = scope
        self.longest_line = sealer.limits.message_bytes + sealer.limits.metadata_bytes + 4096

    async def run(
        self,
        open_lines: Callable[[], Iterable[bytes]],
        *,
        keep_system: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[Thread]:
        """`open_lines` gives the file's lines from the start each time it is called; each at most a little longer
        than a message may be. `keep_system` imports system texts as such, for an operator who vouches for the file.
        InvalidImport names the first bad line, and nothing is stored."""
        self._scope.require("member")
        count = 0

        def read() -> Iterator[ThreadLine | MessageLine | EndLine]:
            return Reader(self.longest_line, keep_system=keep_system).lines(open_lines())

        for number, line in enumerate(read(), start=1):
            if isinstance(line, MessageLine):
                self._seal(line.message, number)
            count = number
        return await self._store.transact(self._scope, lambda tx: self._write(tx, read(), progress, count))

    async def _write(
        self,
        tx: Transaction,
        lines: Iterable[ThreadLine | MessageLine | EndLine],
        progress: Callable[[int, int], None] | None,
        count: int,
    ) -> list[Thread]:
        made: list[Thread] = []
        waiting: list[Sealed] = []
        for number, line in enumerate(lines, start=1):
            match line:
                case ThreadLine():
                    made.append(await self._create(tx, line))
                case MessageLine():
                    waiting.append(self._seal(line.message, number))
                case EndLine():
                    await self._flush(tx, made[-1].id, waiting)
            if len(waiting) >= _BATCH:
                await self._flush(tx, made[-1].id, waiting)
                if progress is not None:
                    progress(number, count)
        return [thread for made_thread in made if (thread := await tx.thread(made_thread.id)) is not None]

    async def _create(self, tx: Transaction, line: ThreadLine) -> Thread:
        new = line.thread
        taken_id = new.id is None or await tx.thread(check_id("thread", new.id), deleted=True) is not None
        taken_key = new.state_key is None or await tx.thread_by_key(new.state_key) is not None
        checked = admit_thread(self._sealer, new)
        return await tx.create_thread(
            msgspec.structs.replace(
                checked,
                id=new_id() if taken_id else checked.id,
                state_key=new_state_key() if taken_key else checked.state_key,
            )
        )

    async def _flush(self, tx: Transaction, thread_id: str, waiting: list[Sealed]) -> None:
        if waiting:
            await tx.append(thread_id, waiting, title=first_title(waiting))
            waiting.clear()

    def _seal(self, message: NewMessage, number: int) -> Sealed:
        try:
            return self._sealer.message(message)
        except ThreadlineError as exc:
            raise InvalidImport(number, str(exc)) from exc
