"""The store's operations on turns: accept, lease with a fence, finish; stream chunks, tool runs and summaries.

A call with an old fence writes nothing: a process that lost its lease learns it from the result.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Protocol

import msgspec

from threadline.core.sealing import CleanJson, CleanText, Sealed
from threadline.core.turn_commits import Accepted, AcceptRefusal, FinishRefusal, ReplyDelivery, TurnAcceptance
from threadline.core.turns import Chunk, Summary, SummarySource, Surface, ToolRun, Turn, TurnEnd


class TurnOperations(Protocol):
    async def accept_turn(self, new: TurnAcceptance) -> Accepted | AcceptRefusal:
        """Stores a request whole, in one commit: the inbox claim of an arrival, the thread if it has to be created, the
        binding of its place, the rewind before what it replaces, the message, the turn and its lease. On `interrupt`
        every active turn of the thread is asked to stop. On `steer` the turn records the first active turn as the one
        it may be taken into (`Turn.steers`), unless it replaces a message. If a lease is given, the turn is leased when
        no other turn of the thread is active, and otherwise reserved for that process; a lease without a worker hands
        it over (see `Turn.is_handed_over`). Requests of one user are
        serialised, see `Store.transact`.

        The same key with the same hash finds the turn that was stored first, and stores nothing but the claim. If that
        turn was interrupted and a lease is given, it is leased to run again (`replayed` and `leased`); its partial
        reply, if the thread ends with it, is left behind on the old timeline. It stays interrupted if the request was
        undone or later messages follow, other than replies to earlier turns.

        A refusal means that nothing is stored. Inside `transact` it must end the work: raise."""
        ...

    async def finish_turn(
        self,
        turn_id: str,
        fence: int,
        end: TurnEnd,
        *,
        reply: Sealed | None = None,
        chunks: Sequence[Chunk] = (),
        tokens: int = 0,
        delivery: ReplyDelivery | None = None,
    ) -> Turn | FinishRefusal:
        """Ends a turn in one commit: the rest of its stream, the reply, the end, what it used, the outbox rows and the
        settled inbox row. The reply is appended; if the turn continues a reply that waited for approval, it takes that
        one's place on a new timeline, and later messages follow it under their own seq. A reply whose request is no
        longer in the thread's present history, or whose thread was deleted, is left out, and the turn ends without one.
        The turns that `end.taken` names and that steer this one end with it, if they wait or were interrupted without
        a reply: with its status and the seq of its reply, `seen` naming it, their arrivals settled.

        A refusal means that nothing is stored: `lease_lost` if the fence is old, `already_ended`, `turn_missing`,
        `reply_known` if the history has a message with the reply's id, `thread_full`. InvalidInput if such an end
        cannot follow the turn's status (see TRANSITIONS)."""
        ...

    async def turn(self, turn_id: str) -> Turn | None: ...

    async def turn_by_key(self, key: str) -> Turn | None:
        """This owner's turn under an idempotency key."""
        ...

    async def active_turns(self, thread_id: str) -> list[Turn]:
        """The accepted and running turns of the thread, in order of acceptance. [] if the thread does not exist."""
        ...

    async def turns(self, thread_id: str, *, limit: int = 50) -> list[Turn]:
        """Newest first."""
        ...

    async def surfaces(self, thread_ids: Sequence[str]) -> dict[str, tuple[Surface, ...]]:
        """The surfaces of the newest 50 turns of each of these threads, sorted by name, by thread id. Threads that have
        no turn or do not exist are left out."""
        ...

    async def lease_time(self) -> dt.datetime:
        """The time by which leases expire. On PostgreSQL it is the server's: the clocks of processes on several
        machines differ."""
        ...

    async def lease_turn(self, turn_id: str, worker: str, *, seconds: float) -> Turn | None:
        """Leases an accepted turn, or a running one whose lease has expired, if no earlier turn of its thread is
        active: status `running`, the fence one higher. None if it cannot be leased now."""
        ...

    async def claim_turns(self, worker: str, *, seconds: float, within_seconds: float, limit: int = 32) -> list[Turn]:
        """Leases up to `limit` turns that were handed over, in order of acceptance, each for one caller only. A turn
        behind an active turn of its thread is reserved and stays `accepted`. Turns that have waited longer than
        `within_seconds` are left alone, unless they are of a messaging surface. The system scope claims the tenant's, a
        user their own."""
        ...

    async def renew_lease(self, turn_id: str, fence: int, worker: str, *, seconds: float) -> bool:
        """Renews the lease of a running turn, or reserves an accepted one for the process that waits to run it. False
        if the fence is old or the turn has ended: the holder must stop."""
        ...

    async def release_lease(self, turn_id: str, fence: int) -> bool:
        """Releases an active turn for another process: its lease ends now and has no owner (see `Turn.is_handed_over`).
        False if the fence is old or the turn has ended."""
        ...

    async def expire_leases(self, worker: str, *, turn_id: str | None = None) -> int:
        """Ends the leases and reservations of a process that has ended, or of one turn of it; its name stays. Returns
        how many."""
        ...

    async def lease_workers(self) -> list[str]:
        """The processes that hold leases or reservations of active turns, sorted. The system scope sees the tenant's, a
        user those of their own turns."""
        ...

    async def request_stop(self, turn_id: str) -> bool:
        """Records a request to stop, for the process that runs the turn; an accepted turn ends `stopped` at once.
        False if the turn is not active."""
        ...

    async def is_stop_requested(self, turn_id: str) -> bool: ...

    async def due_turns(self, *, lease_seconds: float, limit: int = 100) -> list[Turn]:
        """Active turns whose lease or reservation has expired, that have none, or whose lease ends more than twice
        `lease_seconds` from now, which no clock in order can have written; in order of acceptance. The system scope
        sees the tenant's, a user their own."""
        ...

    async def put_chunks(self, turn_id: str, fence: int, chunks: Sequence[Chunk]) -> bool:
        """Stores chunks of the stream. False if the fence is old. A number that is stored already is not changed."""
        ...

    async def chunks(self, turn_id: str, *, after: int = 0, limit: int = 1000) -> list[Chunk]:
        """Chunks with a number above `after`, by number."""
        ...

    async def drop_chunks(self, *, older_than: dt.timedelta) -> int:
        """Removes the chunks of turns that ended so long ago; returns how many chunks. The system scope's are the
        tenant's, a user's their own."""
        ...

    async def start_tool_run(
        self, turn_id: str, fence: int, call_id: str, name: str, input_json: CleanJson, *, repeatable: bool
    ) -> ToolRun | None:
        """Stores the intent to run a tool (`is_new`). If this turn has a run under the call id, returns that one,
        unchanged and not `is_new`: the caller decides whether it may run again. None if the fence is old."""
        ...

    async def finish_tool_run(self, turn_id: str, fence: int, call_id: str, output_json: CleanJson) -> bool:
        """Stores the output of a run. False if the fence is old or there is no such run."""
        ...

    async def tool_runs(self, turn_id: str) -> list[ToolRun]:
        """In the order in which they were started."""
        ...

    async def put_summary(
        self,
        thread_id: str,
        seq: int,
        text: CleanText,
        *,
        source: SummarySource = "extract",
        model: str | None = None,
        timeline_id: str | None = None,
        earlier: Summary | msgspec.UnsetType | None = msgspec.UNSET,
    ) -> Summary:
        """Stores a summary of the history up to and including `seq`; a later one for the same point replaces it.
        NotFound; InvalidInput if there is no such seq. Conflict, and nothing is stored, if the present history has its
        message `seq` from another timeline than `timeline_id`, or if its present summary is not `earlier` (None: it
        has none)."""
        ...

    async def summary(self, thread_id: str) -> Summary | None:
        """The summary that covers most of the present history; those of other branches do not count."""
        ...

    async def claim_compaction(self, thread_id: str, *, seconds: float) -> bool:
        """Lets the caller alone summarise the thread for so long. False if another caller may. NotFound."""
        ...

    async def release_compaction(self, thread_id: str) -> None:
        """Ends the present claim. NotFound."""
        ...
