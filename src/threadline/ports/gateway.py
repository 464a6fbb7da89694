"""The gateway to threads: what a program can do for one user, in process or over HTTP.

A `Gateway` is everything one user may reach, a `GatewayThread` is one thread of theirs, a `GatewayReply` is the answer
to one question. `threadline.library` implements them on a store, `threadline.client` over HTTP. Both give the same
values, the same errors and the same order of events, so code that takes a gateway does not need to know which one it
has. The conformance suite in `threadline.testing.gateway` runs on both and quotes these docstrings.

Every call may raise what its scope forbids (RoleRefused), StoreFailed in process, and ServiceUnavailable or
TokenRefused over HTTP. An argument of the wrong type is InvalidInput.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from typing import Any, Protocol, Unpack

from threadline.core.approvals import Answer, Pending
from threadline.core.channels import ContextSnapshot
from threadline.core.client_tools import ClientTool
from threadline.core.events import Event
from threadline.core.messages import Message, NewMessage
from threadline.core.thread_filters import ThreadFilterFields
from threadline.core.threads import (
    Appended,
    ExpectedHead,
    Hit,
    NamedThreadFields,
    Page,
    SavedPoint,
    Thread,
    ThreadFields,
    ThreadHits,
    ThreadUpdate,
    Timeline,
)
from threadline.core.transfer import ExportFormat
from threadline.core.turns import Policy, Summary, TurnInfo
from threadline.core.usage import UsageFilter, UsageRow
from threadline.core.values import ValueChange
from threadline.ports.agents import Approver
from threadline.ports.gateway_values import GatewayValues
from threadline.ports.thread_attributes import ThreadAttributes


class GatewayReply(Protocol):
    """The answer to one question. Nothing is sent before it is awaited, iterated or accepted.

    `await reply` gives the stored message; AgentFailed if the turn failed or nothing was said. `async for event in
    reply` gives every event from the first one, and each iteration begins again. The last event is Finish if the turn
    was executed, otherwise Failure with the reason. A reader that stops reading does not stop the turn: `stop` does."""

    def __await__(self) -> Generator[Any, None, Message]: ...

    def __aiter__(self) -> AsyncIterator[Event]: ...

    def text(self) -> AsyncIterator[str]:
        """The reply's text, piece by piece, while it is written."""
        ...

    async def accept(self) -> TurnInfo:
        """Stores the question and starts the turn, once. Returns as soon as the question is stored: the turn as it was
        then. InvalidInput, NotFound, GuardRefused, BudgetExceeded, KeyReused, TurnRunning: nothing was stored."""
        ...

    async def turn(self) -> TurnInfo:
        """The turn as it is now; accepts it first. Status `accepted` means that it waits for an earlier one."""
        ...

    async def ended(self) -> TurnInfo:
        """The turn once it has ended, however it ended."""
        ...

    async def stop(self) -> bool:
        """Ends the turn; what was shown is stored. False if it had ended."""
        ...


class GatewayThread(ThreadAttributes, Protocol):
    """One thread. `info` and the properties are the thread as the last call on this object left it. Several objects for
    one thread may be used at the same time.

    Every call except `refresh` and `delete` raises NotFound if the thread is deleted. `at` is a seq or a message's id;
    InvalidInput if it is past the last message, NotFound for an unknown id. A `key` makes a call safe to repeat: a
    repeat with the same key does nothing and gives the same answer, KeyReused if it is not the same call.
    `expected_count` and `expected_timeline` say where the caller saw the thread's end: HeadMoved, and nothing is
    changed, if it is elsewhere by now."""

    @property
    def values(self) -> GatewayValues:
        """State that belongs to this thread. A branch begins without any."""
        ...

    async def refresh(self) -> Thread:
        """Reads the thread again. NotFound once it is deleted."""
        ...

    async def append(
        self,
        *messages: NewMessage | str,
        key: str | None = None,
        expected_count: int | None = None,
        expected_timeline: str | None = None,
        after: int | str | None = None,
        values: Sequence[ValueChange] = (),
    ) -> Appended:
        """Adds messages at the end, all or none; a plain string is a user message. With the same `key`, or the same
        message ids, a repeat stores nothing and gives the first answer again. HeadMoved if the thread does not hold
        `expected_count` messages, or is not on `expected_timeline`; DuplicateId for an id that the thread holds with
        other content.

        `after` is a seq or a message id: the thread first continues from there on a new timeline, as by `rewind`; -1
        starts again. `values` are stored together with the messages, or nothing is (ValueChanged); a repeat stores no
        values."""
        ...

    def ask(
        self,
        question: str | NewMessage,
        *,
        agent: str | None = None,
        model: str | None = None,
        key: str | None = None,
        policy: Policy | None = None,
        approver: Approver | None = None,
        replaces: str | None = None,
        client_tools: Sequence[ClientTool] = (),
    ) -> GatewayReply:
        """Asks a question; the reply is awaited or iterated. `agent` answers (default: the thread's agent), with
        `model` (default: the thread's, else the agent's; InvalidInput for one that the agent does not offer). `policy`
        says what happens if another turn runs: reject (default), queue, interrupt, or steer: that turn takes the
        message in before its next model call, and its reply answers both; if it ends before, as with queue. `approver`
        decides about tools that need approval; without one the turn ends with the call open: see `pending` and
        `respond`. `replaces` is the id of an earlier user message: the thread continues from before it, on a new
        timeline. `client_tools` are offered to the model beside the agent's tools; the turn ends with a call of one
        open, for the caller to run."""
        ...

    async def pending(self) -> list[Pending]:
        """The tool calls of the last reply that wait for approval, or for the output of a client tool."""
        ...

    def respond(self, answers: Mapping[str, Answer | bool], *, approver: Approver | None = None) -> GatewayReply:
        """Answers every pending call, by `Pending.id`: an approval with a decision, a client tool with its ToolOutput.
        The same reply continues in a new turn. A repeat of the same answers gives the same reply; other answers are a
        Conflict. InvalidInput for what is not pending; LimitExceeded for an output that is too large."""
        ...

    async def messages(
        self,
        *,
        first: int = 0,
        last: int | None = None,
        newest: int | None = None,
        around: int | str | None = None,
        within: int = 25,
        timeline: str | None = None,
    ) -> list[Message]:
        """Messages in order: those with seq `first` to `last` (inclusive), the `newest` n, or those `around` a seq or
        a message of the present history, such as a hit of a search, up to `within` before and after it. `timeline`
        reads another timeline of this thread. InvalidInput for two of these together; NotFound for an unknown timeline
        or message."""
        ...

    async def message(self, message_id: str) -> Message:
        """One message of the present history. NotFound."""
        ...

    def stream(self) -> AsyncIterator[Message]:
        """The whole history as it was when reading began, read in pages: for threads too long for memory."""
        ...

    async def last_turns(self, turns: int = 12) -> list[Message]:
        """The newest messages, from the `turns`-th last user message on; all if there are fewer."""
        ...

    async def turns(self, *, limit: int = 100) -> list[TurnInfo]:
        """Newest first, whichever timeline they were on. `limit` is 1 to 500."""
        ...

    async def branch(self, *, at: int | str | None = None, **fields: Unpack[ThreadFields]) -> GatewayThread:
        """A new thread that begins as this one up to and with `at` (default: all of it). No message is copied. Agent,
        model, system prompt and working directory are this thread's unless given. DuplicateId."""
        ...

    async def save(self, name: str, *, at: int | str | None = None) -> SavedPoint:
        """Gives a point of the history a name (default: the end). A name used before moves. InvalidName."""
        ...

    async def load(self, name: str, *, key: str | None = None, **expected: Unpack[ExpectedHead]) -> None:
        """Continues from a saved point, whichever thread it was saved in, on a new timeline. NotFound, HeadMoved."""
        ...

    async def undo(self, *, key: str | None = None, **expected: Unpack[ExpectedHead]) -> None:
        """Continues from before the last user message, on a new timeline. InvalidInput if there is none; HeadMoved."""
        ...

    async def rewind(self, at: int | str, *, before: bool = False, **expected: Unpack[ExpectedHead]) -> None:
        """Continues from a message, or from just before it, on a new timeline. HeadMoved."""
        ...

    async def switch(self, timeline_id: str, **expected: Unpack[ExpectedHead]) -> None:
        """Goes back to one of the thread's own timelines, at its end. NotFound, HeadMoved."""
        ...

    async def timelines(self) -> list[Timeline]:
        """Every timeline the thread has had, oldest first."""
        ...

    async def update(self, **changes: Unpack[ThreadUpdate]) -> None:
        """Changes only what is given; never a message. InvalidName, InvalidText."""
        ...

    async def compact(self, *, budget: int | None = None) -> Summary | None:
        """Summarises all but the newest turns for the agent if those without a summary are more than `budget` tokens
        (default: a quarter of the window). None if they are not. The agent's model writes the summary; without one it
        is an extract, and `Summary.source` says so. Deletes nothing. Conflict while another process summarises it."""
        ...

    async def summary(self) -> Summary | None:
        """The summary that the agent is shown in the place of older messages; None if there is none. A summary of
        messages that are no longer in the present history is not shown."""
        ...

    async def set_summary(self, text: str) -> Summary:
        """Replaces the text of the present summary; from then on it counts as a person's. Conflict if there is none:
        `compact` makes one. InvalidText if blank, LimitExceeded if it is too long."""
        ...

    async def make_home(self) -> None:
        """Makes this the user's home thread: their private chats on platforms continue it from the next message on,
        unless they were moved to other threads. Conflict if others read a place that continues this thread."""
        ...

    async def stop(self, turn_id: str | None = None) -> bool:
        """Ends every turn that runs on the thread, or only this one; what was shown is stored. False if none ran."""
        ...

    def export(self, format: ExportFormat = "jsonl") -> AsyncIterator[bytes]:
        """The thread, piece by piece: as `jsonl` with everything, which `import_threads` reads, otherwise its present
        history."""
        ...

    async def delete(self) -> None:
        """Hides the thread and stops its turns; `Gateway.restore_thread` brings it back. A repeat does nothing."""
        ...

    async def purge(self) -> None:
        """Removes the thread for good, with every message that no branch or saved point still shows."""
        ...


class GatewayContexts(Protocol):
    """The texts that the user pinned for agents. Each goes first into every prompt for its agent."""

    async def set(self, agent_id: str, context: str) -> ContextSnapshot:
        """Overwrites what was pinned. InvalidText if blank; GuardRefused."""
        ...

    async def get(self, agent_id: str) -> ContextSnapshot:
        """NotFound if nothing is pinned."""
        ...

    async def clear(self, agent_id: str) -> bool:
        """False if nothing was pinned."""
        ...


class Gateway(Protocol):
    """Everything one user may reach."""

    @property
    def contexts(self) -> GatewayContexts: ...

    @property
    def values(self) -> GatewayValues:
        """State that belongs to the user."""
        ...

    @property
    def tenant_values(self) -> GatewayValues:
        """State that all users of the tenant share."""
        ...

    async def create_thread(self, **fields: Unpack[ThreadFields]) -> GatewayThread:
        """A new, empty thread. Without an id and a state key it gets new ones. DuplicateId if the id is taken in this
        tenant, or the state key by another thread of this user."""
        ...

    async def open_thread(self, key: str, **fields: Unpack[NamedThreadFields]) -> GatewayThread:
        """The thread under this state key; created with these fields if there is none. Of several callers at the same
        time one creates it and all get it."""
        ...

    async def thread(self, thread_id: str) -> GatewayThread:
        """By id or state key. NotFound."""
        ...

    async def home_thread(self) -> GatewayThread | None:
        """The thread that the user's private chats on platforms continue; None if there is none yet."""
        ...

    async def threads(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        offset: int = 0,
        archived: bool | None = False,
        deleted: bool = False,
        **matching: Unpack[ThreadFilterFields],
    ) -> Page[Thread]:
        """Latest activity first. `archived` None lists both kinds, `deleted` lists the deleted ones instead. `limit` is
        1 to 100; `next_cursor` of the page gets the page after it. The other keywords filter: see `ThreadFilterFields`.
        InvalidCursor for a cursor that was not issued here; InvalidInput for a filter that cannot be compared."""
        ...

    async def all_threads(
        self,
        *,
        user: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
        archived: bool | None = False,
        deleted: bool = False,
        **matching: Unpack[ThreadFilterFields],
    ) -> Page[Thread]:
        """For administrators (RoleRefused): the threads of one `user`, latest activity first, or of every user of the
        tenant, newest first. Messages stay with their owners. The audit log records the call."""
        ...

    async def restore_thread(self, thread_id: str) -> GatewayThread:
        """Brings a deleted thread back, by its id. NotFound; DuplicateId if its state key is in use."""
        ...

    async def prune(self, *, older_than: dt.timedelta = dt.timedelta(0)) -> int:
        """Removes the user's threads that never held a message and were not used for so long. Returns how many."""
        ...

    async def search(
        self, query: str, *, limit: int = 20, offset: int = 0, **matching: Unpack[ThreadFilterFields]
    ) -> list[Hit]:
        """Messages that contain all the words, best first, in threads that match the filter. `limit` is 1 to 100."""
        ...

    async def search_threads(
        self,
        query: str,
        *,
        limit: int = 20,
        cursor: str | None = None,
        passages: int = 3,
        **matching: Unpack[ThreadFilterFields],
    ) -> Page[ThreadHits]:
        """Threads whose title contains all the words, latest activity first, then threads with such messages, best
        first: each with how many of its messages match and its best `passages` (0 to 20). `limit` is 1 to 100."""
        ...

    async def saved_points(self) -> list[SavedPoint]:
        """By name."""
        ...

    async def forget_saved_point(self, name: str) -> bool:
        """False if there was none."""
        ...

    async def usage(self, **query: Unpack[UsageFilter]) -> list[UsageRow]:
        """What was used, one row for each group of `by` (day, user, agent, model), on the days from `since` to `until`
        (UTC, inclusive; default: this month). An administrator sees the tenant's usage, or that of one `user`; others
        see their own (RoleRefused for another's). InvalidInput for an unknown group."""
        ...

    async def import_threads(self, lines: bytes) -> list[Thread]:
        """Threads that were exported as `jsonl`, with everything. One that is here already gets what it lacks and keeps
        what it has, so a repeat changes nothing; one whose id another user has gets a new id, always the same.
        InvalidImport names the first bad line, and nothing is stored: a message of role `system` is one. A system
        prompt is put into the thread's metadata instead, as `importedSystemPrompt`."""
        ...

    async def turn(self, turn_id: str) -> TurnInfo:
        """A turn of any of the user's threads, as it is now. NotFound."""
        ...

    def reply(self, turn_id: str) -> GatewayReply:
        """The reply of a turn that was accepted earlier, by this program or another. NotFound when it is read."""
        ...
