"""The seams: what the system needs from outside, each as a Protocol.

A `Store` hands out `Transaction`s. Every verb of a Transaction is bound to one scope and sees nothing outside it: what
belongs to another tenant or owner does not exist, and asking for it gives what asking for an unknown id gives. The
conformance suite in `threadline.testing` quotes these contracts; whoever passes it is a store.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from threadline.core.access import Act, ApiToken, NewToken
from threadline.core.arrivals import (
    Ambiguous,
    Delivery,
    HttpRequest,
    HttpResponse,
    Outcome,
    Permanent,
    Polled,
    Transient,
)
from threadline.core.channels import (
    Agent as AgentRow,
)
from threadline.core.channels import (
    Binding,
    ContextSnapshot,
    InboxRow,
    Link,
    LinkState,
    OutboxRow,
    OutboxStatus,
    Redeemed,
    SealedCredentials,
    User,
)
from threadline.core.events import Event, ToolCall
from threadline.core.messages import Message
from threadline.core.portable import Row, RowPage
from threadline.core.prompts import Prompt
from threadline.core.sealing import CleanJson, CleanText, Masker, Sealed
from threadline.core.threads import (
    Appended,
    Hit,
    NewThread,
    Page,
    SavedPoint,
    Scope,
    Thread,
    ThreadChanges,
    Timeline,
)
from threadline.core.turns import Chunk, NewTurn, Summary, Surface, ToolRun, Turn, TurnEnd

__all__ = [
    "Agent",
    "Approver",
    "Channel",
    "Cipher",
    "Clock",
    "Desk",
    "Finding",
    "Guard",
    "Http",
    "Identities",
    "Load",
    "Masker",
    "Platform",
    "PolledChannel",
    "Span",
    "SpanKind",
    "Store",
    "ToolJournal",
    "Tracer",
    "Transaction",
    "Verdict",
    "Watch",
    "Work",
]

T = TypeVar("T")


class Clock(Protocol):
    def now(self) -> dt.datetime:
        """The time, in UTC. Stores never ask the database for it."""
        ...


class ThreadVerbs(Protocol):
    async def create_thread(self, new: NewThread) -> Thread:
        """A new, empty thread on a new timeline. DuplicateId if the id is taken in this tenant, or the state key by a
        living thread of this owner."""
        ...

    async def thread(self, thread_id: str, *, deleted: bool = False) -> Thread | None:
        """The living thread (or, asked for, the deleted one as well); None if there is none."""
        ...

    async def thread_by_key(self, state_key: str) -> Thread | None:
        """The living thread under this state key; None if there is none."""
        ...

    async def threads(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        offset: int = 0,
        archived: bool | None = False,
        deleted: bool = False,
    ) -> Page[Thread]:
        """Latest activity first, ties by id, the greater first. `archived` None lists both kinds; `deleted` lists the
        deleted ones instead of the living. A cursor costs the same at any depth, and a page after it never repeats a
        thread. InvalidCursor for one that was not issued here."""
        ...

    async def update_thread(self, thread_id: str, changes: ThreadChanges) -> Thread:
        """Changes only what is given; never a message. Activity is not moved by it. NotFound."""
        ...

    async def delete_thread(self, thread_id: str) -> bool:
        """Hides it from every read; its state key is free again. False if there was none: not an error."""
        ...

    async def restore_thread(self, thread_id: str) -> Thread:
        """Brings a deleted thread back. NotFound; DuplicateId if its state key is in use by now."""
        ...

    async def prune_threads(self, *, idle_since: dt.datetime) -> int:
        """Deletes for good the owner's threads that never held a message and had no activity since. How many."""
        ...


class MessageVerbs(Protocol):
    async def append(
        self,
        thread_id: str,
        messages: Sequence[Sealed],
        *,
        key: str | None = None,
        expected_count: int | None = None,
        turn_id: str | None = None,
        tokens: int = 0,
        title: CleanText | None = None,
    ) -> Appended:
        """Writes the messages at the head, all or none, and touches the thread. A thread without a title takes `title`,
        which a person may change later. A message with a `created_us` of its own keeps it.

        The same call again is safe: with the same key, or with message ids that already stand in this history in this
        order with this role and content, nothing is written and the answer is the first one's, `replayed`.
        A key counts within its thread. KeyReused: the key came with other messages; ids may differ, since sealing may
        have made them up. DuplicateId: a message id stands in this history and this is no repeat (other content,
        another order, or only some of them). HeadMoved: `expected_count` is not the count. NotFound: no such living
        thread. LimitExceeded: the thread would hold more than the store's limit. Appending nothing is InvalidInput."""
        ...

    async def messages(
        self,
        thread_id: str,
        *,
        first: int = 0,
        last: int | None = None,
        limit: int | None = None,
        timeline_id: str | None = None,
    ) -> list[Message]:
        """Seqs `first` to `last` (inclusive) of the history, in order, at most `limit` of them. `timeline_id` reads
        one the thread stood on instead of the present one. NotFound for an unknown thread, or for a timeline it never
        stood on; an empty thread is []."""
        ...

    async def last_turns(self, thread_id: str, turns: int, *, before: int | None = None) -> list[Message]:
        """The newest messages that begin with the `turns`-th last user message, in order; all if there are fewer.
        `before` looks only at seqs below it. Costs the same at any length of the thread. NotFound for an unknown
        thread."""
        ...

    async def message(self, thread_id: str, message_id: str) -> Message | None:
        """One message of the present history by its id."""
        ...

    async def search(self, query: str, *, limit: int = 20, offset: int = 0) -> list[Hit]:
        """Messages in the present history of living threads that hold all the words, best first. A message that several
        threads show is found once, in the one it was written in if that still shows it. Every word is literal: no
        operator of any database works. Finds everything that was acknowledged before the call."""
        ...


class TimelineVerbs(Protocol):
    """Each of these writes one or two small rows and no message, whatever the length of the history. A thread that goes
    on elsewhere is active by that."""

    async def branch(self, thread_id: str, new: NewThread, *, at: int | None = None) -> Thread:
        """A new thread whose history is the source's up to and with seq `at` (default: all of it; -1: nothing).
        Independent from then on. What `new` leaves out is taken from the source (agent, model, system prompt, working
        directory). NotFound; InvalidInput if `at` is past the head; DuplicateId as in create_thread."""
        ...

    async def move(self, thread_id: str, seq: int, *, timeline_id: str | None = None) -> Thread:
        """The thread goes on from `seq` of its history, or of another timeline of its own, on a new timeline. The old
        one stays and can be switched to. NotFound; InvalidInput if there is no such seq."""
        ...

    async def undo(self, thread_id: str) -> Thread:
        """The thread goes on, on a new timeline, from before its last user message. InvalidInput if it has none."""
        ...

    async def switch(self, thread_id: str, timeline_id: str) -> Thread:
        """The thread stands on one of its own timelines again, at that timeline's end; if it stands there already,
        nothing changes. NotFound."""
        ...

    async def timelines(self, thread_id: str) -> list[Timeline]:
        """Every timeline the thread has stood on, oldest first. NotFound."""
        ...

    async def save(self, thread_id: str, name: str, *, at: int | None = None) -> SavedPoint:
        """Gives the point a name of the owner's; a name used before moves. NotFound; InvalidInput past the head."""
        ...

    async def load(self, thread_id: str, name: str) -> Thread:
        """The thread goes on from the saved point, whichever thread it was saved in, on a new timeline. NotFound."""
        ...

    async def saved_points(self) -> list[SavedPoint]:
        """The owner's, by name."""
        ...

    async def saved_point(self, name: str) -> SavedPoint | None: ...

    async def forget_saved_point(self, name: str) -> bool:
        """False if there was none."""
        ...


class PlaceVerbs(Protocol):
    async def bind(
        self,
        surface: Surface,
        place: str,
        thread_id: str,
        *,
        label: str | None = None,
        metadata: CleanJson | None = None,
    ) -> Binding:
        """Binds the place to the thread, instead of what it was bound to. Label and metadata left out stay as they
        were. NotFound for an unknown thread. A place has one binding in a tenant, so another owner's place is
        DuplicateId."""
        ...

    async def binding(self, surface: Surface, place: str) -> Binding | None: ...

    async def bindings(self, *, surface: Surface | None = None, thread_id: str | None = None) -> list[Binding]: ...

    async def unbind(self, surface: Surface, place: str) -> bool: ...

    async def set_context(self, agent_id: str, context: CleanText) -> ContextSnapshot:
        """Stores or overwrites the owner's snapshot for the agent; `created_at` stays, `updated_at` moves. The agent
        needs no row: those that come with the house have none."""
        ...

    async def context(self, agent_id: str) -> ContextSnapshot | None: ...

    async def clear_context(self, agent_id: str) -> bool: ...

    async def put_agent(self, agent: AgentRow) -> AgentRow:
        """Creates or replaces an agent of the tenant."""
        ...

    async def agent(self, agent_id: str) -> AgentRow | None: ...

    async def agents(self) -> list[AgentRow]:
        """By id."""
        ...

    async def delete_agent(self, agent_id: str) -> bool:
        """Removes it and every snapshot pinned for it; threads keep their history."""
        ...

    async def put_user(self, user: User) -> User:
        """Creates or replaces a user. Only system and admin scopes may name another than themselves (RoleRefused)."""
        ...

    async def user(self, user_id: str) -> User | None: ...

    async def users(self) -> list[User]:
        """Every user of the tenant, by id. System and admin scopes only; others see themselves."""
        ...

    async def put_link(self, platform: Surface, platform_user_id: str, owner_id: str, state: LinkState) -> Link:
        """Creates or changes the link of a platform's user. Only the system scope may name another owner (RoleRefused)
        or take over a link that another owner has (DuplicateId for everyone else)."""
        ...

    async def link(self, platform: Surface, platform_user_id: str) -> Link | None:
        """The system scope sees every link of its tenant; a user sees their own."""
        ...

    async def links(self) -> list[Link]: ...

    async def delete_link(self, platform: Surface, platform_user_id: str) -> bool: ...

    async def put_link_code(self, code_hash: bytes, platform: Surface | None, expires_at: dt.datetime) -> None:
        """A code of this user's, known only by its hash. DuplicateId if a code with this hash is there already."""
        ...

    async def redeem_link_code(self, code_hash: bytes, platform: Surface, now: dt.datetime) -> str | None:
        """Uses the code up and names its owner; None if unknown, expired, used, or for another platform.
        System scope."""
        ...


class QueueVerbs(Protocol):
    """Inbox and outbox. Claims are exclusive: of any number of workers, one gets a row. The system scope sees the
    tenant's rows, a user their own; only the system scope may name another owner (RoleRefused)."""

    async def claim_inbox(
        self,
        platform: Surface,
        key: str,
        *,
        fingerprint: str | None = None,
        correlation_id: str | None = None,
        reply_to: str | None = None,
        owner_id: str | None = None,
    ) -> InboxRow | None:
        """Claims what arrived under this key: the new row, status `claimed`; None if it was claimed before.
        `reply_to` is the place that the answer goes to."""
        ...

    async def settle_inbox(
        self, platform: Surface, key: str, *, status: str, decision: str | None = None, turn_id: str | None = None
    ) -> bool: ...

    async def inbox_row(self, platform: Surface, key: str) -> InboxRow | None: ...

    async def unanswered(self, *, limit: int = 100) -> list[InboxRow]:
        """Rows with the status `accepted` whose turn has ended, or is gone, oldest first. System scope."""
        ...

    async def drop_settled(self, *, before: dt.datetime) -> int:
        """Removes what arrived, and what was sent, before then; what is not answered or delivered stays. How many
        rows. Histories do not depend on them. System scope."""
        ...

    async def enqueue(
        self,
        platform: Surface,
        recipient: str,
        payload: CleanText,
        *,
        turn_id: str | None,
        owner_id: str,
        id: str | None = None,
    ) -> OutboxRow:
        """Waits for delivery from now on. With an id that exists already: that row, and nothing is written; DuplicateId
        if the row is another owner's."""
        ...

    async def claim_outbox(self, worker: str, *, until: dt.datetime, limit: int = 10) -> list[OutboxRow]:
        """Rows of the tenant that are due (waiting and past their time, or claimed and past their claim), oldest
        first, now claimed by this worker. What waits for one recipient is delivered in order: a row is due only when
        no earlier one for its recipient is waiting or claimed. A claim taken over counts as an attempt and says in
        `last_error` that nobody knows what came of it. System scope."""
        ...

    async def settle_outbox(
        self,
        outbox_id: str,
        worker: str,
        *,
        status: OutboxStatus,
        next_attempt_at: dt.datetime | None = None,
        error: str | None = None,
    ) -> bool:
        """What came of a claimed row; counts the attempt. False if the claim is no longer this worker's."""
        ...

    async def report_outbox(
        self, outbox_id: str, *, was: OutboxStatus, status: OutboxStatus, error: str | None = None
    ) -> bool:
        """What the platform said later of a row that was tried: it is `status` now if it still is `was`. False if it is
        not. System scope."""
        ...

    async def outbox(self, *, status: OutboxStatus | None = None, limit: int = 100) -> list[OutboxRow]:
        """Newest first."""
        ...

    async def requeue(self, outbox_id: str) -> OutboxRow:
        """A dead row waits again, its attempts reset. NotFound; Conflict if it is not dead."""
        ...


class CredentialVerbs(Protocol):
    """A platform's secrets for the tenant, sealed before they come here. System scope only (RoleRefused)."""

    async def put_credentials(self, platform: Surface, key_id: str, sealed: bytes) -> SealedCredentials:
        """Stores or replaces them."""
        ...

    async def credentials(self, platform: Surface) -> SealedCredentials | None: ...

    async def all_credentials(self) -> list[SealedCredentials]:
        """By platform."""
        ...

    async def delete_credentials(self, platform: Surface) -> bool:
        """False if there were none."""
        ...


class TurnVerbs(Protocol):
    async def create_turn(self, new: NewTurn) -> Turn:
        """DuplicateId if the id exists; KeyReused if this owner has a turn under the key (look it up first). NotFound
        for an unknown thread."""
        ...

    async def turn(self, turn_id: str) -> Turn | None: ...

    async def turn_by_key(self, key: str) -> Turn | None:
        """This owner's turn under an idempotency key."""
        ...

    async def active_turns(self, thread_id: str) -> list[Turn]:
        """Accepted and running ones of the thread, in order of acceptance."""
        ...

    async def turns(self, thread_id: str, *, limit: int = 50) -> list[Turn]:
        """Newest first."""
        ...

    async def surfaces(self, thread_ids: Sequence[str]) -> dict[str, tuple[Surface, ...]]:
        """From where each of these threads was talked in lately (its newest 50 turns), by thread id, the surfaces in
        the order of their names. Threads without a turn, and those that are not there, are left out."""
        ...

    async def lease_turn(self, turn_id: str, worker: str, *, until: dt.datetime) -> Turn | None:
        """Takes an accepted turn, or a running one whose lease has run out, if no earlier turn of its thread is
        still active: status `running`, the fence one higher. None if it cannot be taken now."""
        ...

    async def renew_lease(self, turn_id: str, fence: int, *, until: dt.datetime) -> bool:
        """False if the fence is old or the turn has ended: the holder must stop."""
        ...

    async def finish_turn(self, turn_id: str, fence: int, end: TurnEnd) -> Turn | None:
        """Ends a turn; None if the fence is old or it had ended: then nothing of this transaction may be kept.
        InvalidInput if such an end cannot follow its status (see TRANSITIONS)."""
        ...

    async def ask_to_stop(self, turn_id: str) -> bool:
        """Records the wish to stop, for whichever process runs the turn; an accepted one ends `stopped` at once.
        False if the turn is not active."""
        ...

    async def stop_asked(self, turn_id: str) -> bool: ...

    async def due_turns(self, *, limit: int = 100) -> list[Turn]:
        """Accepted turns, and running ones whose lease ran out, in order of acceptance. The system scope sees the
        tenant's, a user their own."""
        ...

    async def put_chunks(self, turn_id: str, fence: int, chunks: Sequence[Chunk]) -> bool:
        """Keeps what was shown. False if the fence is old. A number stored before is left as it is."""
        ...

    async def chunks(self, turn_id: str, *, after: int = 0, limit: int = 1000) -> list[Chunk]:
        """Those with a number above `after`, by number."""
        ...

    async def drop_chunks(self, *, finished_before: dt.datetime) -> int:
        """Removes the chunks of turns that ended before then; how many chunks. The system scope's are the tenant's, a
        user's their own."""
        ...

    async def start_tool_run(
        self, turn_id: str, fence: int, call_id: str, name: str, input_json: CleanJson, *, repeatable: bool
    ) -> ToolRun | None:
        """Writes the intent to run a tool (`is_new`). If this turn has a run under the call id, that one, unchanged and
        not `is_new`: whether it may run again is the caller's to judge. None if the fence is old."""
        ...

    async def finish_tool_run(self, turn_id: str, fence: int, call_id: str, output_json: CleanJson) -> bool:
        """Stores what came of a run. False if the fence is old or there is no such run."""
        ...

    async def tool_runs(self, turn_id: str) -> list[ToolRun]:
        """In the order in which they were started."""
        ...

    async def put_summary(self, thread_id: str, seq: int, text: CleanText) -> Summary:
        """A summary of the history up to and with `seq`; a later one for the same point replaces it. NotFound;
        InvalidInput if there is no such seq."""
        ...

    async def summary(self, thread_id: str) -> Summary | None:
        """The one that covers most of the present history; those of other branches do not count."""
        ...


class AccessVerbs(Protocol):
    async def create_token(self, new: NewToken) -> ApiToken:
        """Keeps a token by its hash; its owner is made known. DuplicateId if the id or the hash is there already. Admin
        and system scopes only (RoleRefused)."""
        ...

    async def tokens(self) -> list[ApiToken]:
        """Every token of the tenant, revoked and expired ones as well, newest first. Admin and system scopes only
        (RoleRefused)."""
        ...

    async def token_by_hash(self, token_hash: bytes) -> ApiToken | None:
        """Revoked and expired ones as well: the caller judges. System scope only (RoleRefused), because whoever
        presents a token is not known before."""
        ...

    async def revoke_token(self, token_id: str) -> bool:
        """From now on it is revoked. False if there is none, or it was already. Admin and system scopes only
        (RoleRefused)."""
        ...

    async def note_use(self, token_id: str, used_at: dt.datetime) -> None:
        """The token was used then; an earlier time changes nothing. System scope only (RoleRefused)."""
        ...

    async def take_permits(self, key: str, *, window: dt.datetime, wanted: int, limit: int) -> int:
        """How many of the wanted are given: together never more than `limit` under this key in the window that began
        then, whoever asks from whichever process. A window later than this one, which a faster clock has begun, counts
        instead. System scope only (RoleRefused)."""
        ...

    async def drop_permits(self, *, before: dt.datetime) -> int:
        """Forgets windows that began before then; how many. System scope only (RoleRefused)."""
        ...

    async def record_act(
        self, act: str, target: str, details: CleanJson | None = None, *, actor_id: str | None = None
    ) -> Act:
        """Writes down what the scope's user did: the act as `noun.verb`, as in `token.revoked`, and the id of what it
        was done to. In one transaction with the act itself, or one of them may be lost. Only the system scope may name
        another actor (RoleRefused). The record goes with its tenant, and not with a user."""
        ...

    async def acts(self, *, limit: int = 50, before: str | None = None) -> list[Act]:
        """Newest first, those before the act with this id. Admin and system scopes only (RoleRefused)."""
        ...


class PurgeVerbs(Protocol):
    """Removal for good: no row, index entry or free page keeps the text afterwards."""

    async def purge_thread(self, thread_id: str) -> bool:
        """Removes the thread, deleted or not, and the points that were saved in it. Timelines that no other thread or
        saved point can reach go with it; messages that a branch still shows stay, and so do those of a deleted branch,
        which may come back. False if there was none."""
        ...

    async def purge_user(self, user_id: str) -> int:
        """Everything of this user in the tenant, the user's row as well: how many rows. What they did as administrators
        stays on record. Own user, or system scope."""
        ...

    async def purge_tenant(self) -> int:
        """Everything of the tenant. System scope only (RoleRefused)."""
        ...

    async def row_counts(self) -> dict[str, int]:
        """Rows by table that this scope can see."""
        ...


class CopyVerbs(Protocol):
    """Whole tables in and out, tenant by tenant, in the form of `core.portable`. System scope only (RoleRefused)."""

    async def read_rows(self, table: str, *, place: Any | None = None, limit: int = 1000) -> RowPage:
        """The first rows of a table, or those at the `next_place` of the page before. Timelines come in an order in
        which parents stand before their branches."""
        ...

    async def write_rows(self, table: str, rows: Sequence[Row]) -> None:
        """Adds the rows that are not there yet. What they refer to must be there; timelines are written once before
        the threads and once after, which tells them their thread."""
        ...


class Transaction(
    ThreadVerbs,
    MessageVerbs,
    TimelineVerbs,
    PlaceVerbs,
    QueueVerbs,
    CredentialVerbs,
    TurnVerbs,
    AccessVerbs,
    PurgeVerbs,
    CopyVerbs,
    Protocol,
):
    """Every verb, in one scope. A verb that stores something makes the tenant and the owner of it known, if they are
    not yet."""

    @property
    def scope(self) -> Scope: ...


Work: TypeAlias = Callable[[Transaction], Awaitable[T]]


class Finding(NamedTuple):
    """Something `check` found: what is wrong and what to do about it."""

    level: Literal["error", "warning"]
    what: str
    remedy: str


class Watch(Protocol):
    async def wait(self, seconds: float) -> None:
        """Returns when something about the watched turn may have changed, or after so long. A hint: read again."""
        ...


class Load(NamedTuple):
    """What a store is busy with at this moment: connections that are open, those in use, and who waits for one."""

    open: int
    in_use: int
    waiting: int


class Store(Protocol):
    def scoped(self, scope: Scope) -> Transaction:
        """Verbs of which each call is a transaction of its own, done when it returns."""
        ...

    async def transact(self, scope: Scope, work: Work[T]) -> T:
        """Runs `work` in one write transaction: all of it is stored, or, if it raises, none. Works of one user run one
        after the other, so that what a work looked up still holds when it writes; those of the system scope need not.
        `work` awaits nothing but the verbs of the Transaction it gets, and may be run again from the start after a
        passing fault. The Transaction is over with its work: verbs called later raise RuntimeError."""
        ...

    def watch(self, scope: Scope, turn_id: str) -> AbstractAsyncContextManager[Watch]: ...

    async def tenants(self) -> list[str]:
        """Every tenant's id. For sweeps of the house; never reachable from a request."""
        ...

    async def statistics(self) -> dict[str, int]:
        """Rows by table, bytes on disk, schema version: for the operator."""
        ...

    def load(self) -> Load:
        """How busy it is now. Costs nothing."""
        ...

    async def index_pending(self) -> int:
        """Brings the search index up to date; how many messages it took. Searches do this for what they need."""
        ...

    async def check(self) -> list[Finding]:
        """What a doctor would look at: integrity, schema, row security. Empty means healthy."""
        ...

    async def close(self) -> None:
        """Waits for what was accepted. Safe to call twice."""
        ...


class ToolJournal(Protocol):
    """Where a tool's run is written down before it starts, so that no crash runs an unrepeatable one twice."""

    async def begin(self, call: ToolCall, *, repeatable: bool) -> ToolRun | None:
        """Stores the intent. An earlier run of this call in this turn, if there was one (with its output if it
        finished), else None: the tool may run."""
        ...

    async def end(self, call_id: str, output: Any) -> None:
        """Stores what came of it: plain JSON data."""
        ...


class Verdict(NamedTuple):
    """`defer` leaves the call open with a request for approval; the turn ends and a later one answers it."""

    answer: Literal["allow", "deny", "defer"]
    reason: str | None = None


class Approver(Protocol):
    async def decide(self, call: ToolCall) -> Verdict: ...


SpanKind: TypeAlias = Literal["internal", "server", "client"]


class Span(Protocol):
    """A piece of work that is traced. It begins when it is made, and ends once."""

    def set(self, name: str, value: str | float | bool | Sequence[str]) -> None: ...

    def rename(self, name: str) -> None: ...

    def end(self, error: str | None = None) -> None:
        """`error` is a word for what went wrong, never a text that someone wrote."""
        ...


class Tracer(Protocol):
    def span(
        self,
        name: str,
        attributes: Mapping[str, Any],
        *,
        parent: Span | None = None,
        kind: SpanKind = "internal",
        headers: Mapping[str, str] | None = None,
    ) -> Span:
        """A span under its parent; without one, under the caller that the headers of a request name."""
        ...

    async def close(self) -> None:
        """Sends what is still to be sent."""
        ...


class Desk(NamedTuple):
    """What the turn path lends an agent while it answers."""

    journal: ToolJournal
    approver: Approver


class Agent(Protocol):
    def answer(self, prompt: Prompt, desk: Desk) -> AsyncIterator[Event]:
        """The reply to the prompt, as events. Closing the iterator or cancelling the task that reads it stops the
        work. An agent that cannot go on raises AgentFailed, whose text may be shown to the user."""
        ...


class Guard(Protocol):
    async def check(self, text: str, scope: Scope) -> str | None:
        """None lets the text pass; a sentence for the user refuses it."""
        ...


class Channel(Protocol):
    """A messaging platform's own way of saying things, read and written without a socket and without a clock.

    `secrets` are the tenant's credentials for the platform, under the names in `secret_names`."""

    @property
    def platform(self) -> Surface: ...

    @property
    def secret_names(self) -> Mapping[str, str]:
        """The credentials it needs, each with a line that says where an administrator finds it."""
        ...

    def verify(
        self, secrets: Mapping[str, str], headers: Sequence[tuple[str, str]], body: bytes, now: dt.datetime
    ) -> None:
        """Returns if the platform signed this very body, for this tenant, and lately where it says when. Otherwise
        SignatureInvalid: a header missing, doubled, malformed, stale or wrong, or no secret to compare with. Secrets
        are compared in constant time. Header names may be in any case."""
        ...

    def greet(self, secrets: Mapping[str, str], query: Mapping[str, str]) -> str:
        """The plain text that answers a GET on the webhook's address. SignatureInvalid if the query does not know the
        secret; NotFound if the platform never asks this way."""
        ...

    def read(self, body: bytes) -> Delivery:
        """What a verified body holds. InvalidJson for what is not JSON, LimitExceeded for what is nested too deeply.
        Whatever else is odd about it is in `ignored`, because a platform would send a refused one again and again; one
        broken message of a batch does not cost the others."""
        ...

    def render(self, text: str) -> list[str]:
        """The agent's Markdown as payloads to be sent in this order, each within the platform's limits and split where
        a reader would. Empty if there is nothing to show. A payload is JSON and holds no secret."""
        ...

    def request(self, secrets: Mapping[str, str], recipient: str, payload: str, key: str) -> HttpRequest:
        """The request that sends one payload. `key` is the same for every attempt. SettingsInvalid if a secret is
        missing or cannot stand in a request."""
        ...

    def judge(self, response: HttpResponse) -> Outcome:
        """What the platform's answer says about the message. Never raises, whatever the body holds."""
        ...


class PolledChannel(Channel, Protocol):
    """A platform that can be asked for what arrived, by a machine that nobody can reach."""

    def poll(self, secrets: Mapping[str, str], after: int, wait_seconds: int) -> HttpRequest:
        """Asks for what follows `after`, the last number seen (0 at first), and confirms what went before: ask only
        when all of that is stored. The platform holds the answer for up to `wait_seconds`."""
        ...

    def polled(self, response: HttpResponse) -> Polled | Transient | Permanent:
        """What the answer holds, or why there is none."""
        ...


class Http(Protocol):
    """The one door through which anything is sent to a platform."""

    async def send(self, request: HttpRequest, *, seconds: float = 20.0) -> HttpResponse | Transient | Ambiguous:
        """The platform's answer, whatever its status. Transient if nothing was sent: no connection, or an address that
        may not be reached. Ambiguous if it was sent and no answer came in time. Never raises for what the network
        does, and says nothing of the request in its reasons."""
        ...


class Cipher(Protocol):
    """Seals small secrets under keys that only the operator has. What was sealed for one purpose opens for no other:
    `bound_to` says what it is for, and is not kept inside."""

    @property
    def key_id(self) -> str:
        """The key that new secrets are sealed under. SettingsInvalid if there is none."""
        ...

    def seal(self, plain: bytes, bound_to: Sequence[str]) -> bytes:
        """Sealed under `key_id`; never the same twice."""
        ...

    def unseal(self, key_id: str, sealed: bytes, bound_to: Sequence[str]) -> bytes:
        """SettingsInvalid if the key is not here, or does not open this for this purpose."""
        ...


class Answered(NamedTuple):
    """A turn once it has ended, and the reply that was stored, if anything was said."""

    turn: Turn
    message: Message | None


class Platform(Protocol):
    """What a chat surface asks of the house for one user: contexts for its rooms, and replies to what is said there.

    A chat context is a thread, named by its id. Every verb that creates takes the id of what it creates, and every
    verb that moves a history takes a key, so that whoever was cut off may ask again: nothing is done twice."""

    async def create_chat_context(self, *, chat_id: str | None = None, title: str | None = None) -> Thread:
        """A new, empty context; the one that is there if this user has a living one under the id."""
        ...

    async def branch_chat_context(
        self, chat_id: str, *, new_chat_id: str | None = None, title: str | None = None
    ) -> Thread:
        """A new context that begins as the other is now. No message is copied; neither sees what the other is told
        from then on. NotFound."""
        ...

    async def save_chat_context(self, chat_id: str, name: str) -> SavedPoint:
        """Gives the context as it is now a name; a name used before moves. NotFound, InvalidName."""
        ...

    async def load_chat_context(self, chat_id: str, name: str, *, key: str) -> Thread:
        """The context goes on from the saved point. NotFound."""
        ...

    async def undo(self, chat_id: str, *, key: str) -> Thread:
        """Takes back the last message and its answer. NotFound; InvalidInput if there is none."""
        ...

    async def chat_context(self, chat_id: str) -> Thread | None: ...

    async def chat_contexts(self, *, limit: int = 50) -> list[Thread]:
        """Latest activity first, without the archived ones."""
        ...

    async def change_chat_context(self, chat_id: str, changes: ThreadChanges) -> Thread:
        """Renames, archives … NotFound."""
        ...

    async def saved_points(self) -> list[SavedPoint]: ...

    async def send_message(self, chat_id: str, text: str, *, key: str, instead_of: str | None = None) -> Turn:
        """Stores the message and lets the agent answer. Returns as soon as the message is safe; asked again with the
        same key, it stores nothing and gives the same turn as it is now. `instead_of` is the key of an earlier message
        that this one stands in for: the context goes on from before that. NotFound, Refused, InvalidInput."""
        ...

    async def is_last(self, chat_id: str, message_key: str) -> bool:
        """Whether the message that was sent under this key is the last one of the user's in the context."""
        ...

    async def take_back(self, chat_id: str, message_key: str, *, key: str) -> bool:
        """Takes back the last message, and what was answered or is being answered to it. False if it is not the last:
        then nothing is changed."""
        ...

    def stream_message(self, turn_id: str) -> AsyncIterator[Event]:
        """The answer as it is written, from its beginning, until the turn has ended, wherever it runs."""
        ...

    async def answered(self, turn_id: str) -> Answered:
        """What has come of a turn."""
        ...


class Identities(Protocol):
    """Which user of the house someone on one platform is. A sender is their id there."""

    async def find(self, sender: str, *, adopt: bool = False) -> Scope | None:
        """Whom a verified link names; None without one, and for one that was revoked. With `adopt`, a sender without
        a link is a user of their own, under their id on the platform."""
        ...

    async def redeem(self, sender: str, code: str) -> Redeemed:
        """Uses the code up and links the sender with whoever made it. A few attempts in a while."""
        ...

    async def may_hint(self, sender: str) -> bool:
        """Whether a stranger is told how to link: once in a while, so that nobody can make a bot talk."""
        ...

    async def unlink(self, sender: str, scope: Scope) -> bool:
        """Ends this user's link with the sender. False if there was none."""
        ...
