"""Accept and finish: the two transactions around every turn, whatever surface it came from.

`accept` checks, seals and stores a request and its turn together; only then is the caller told. `finish` stores the
reply and the turn's end together. Between them a turn belongs to whoever holds its lease; the fence keeps an owner
that lost it from writing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from threadline.core.errors import GuardRefused, InvalidInput, KeyReused, NotFound, TurnRunning
from threadline.core.ids import check_id, check_state_key, check_text, new_id
from threadline.core.messages import Message, NewMessage
from threadline.core.parts import FilePart, TextPart, decode
from threadline.core.sealing import Sealed, Sealer
from threadline.core.threads import NewThread, Scope, Thread
from threadline.core.turns import Chunk, Lease, NewTurn, Policy, Surface, Turn, TurnEnd, TurnStatus, root_turn_id
from threadline.observability.metrics import Metrics
from threadline.ports import Guard, Store, Transaction
from threadline.threads.field_checks import admit_thread
from threadline.threads.user_threads import first_title

_REPLY = "-reply"

STOPPED = "stopped by the user"
WENT_AWAY = "the process that ran it went away"
"""What a turn's row says of such an end."""

POLICIES: Mapping[Surface, Policy] = {
    "web": "reject",
    "api": "reject",
    "cli": "queue",
    "slack": "queue",
    "telegram": "queue",
    "whatsapp": "queue",
    "matrix": "queue",
}

Delivery: TypeAlias = Callable[[Transaction, Turn, str], Awaitable[None]]
"""Called inside the finishing transaction with the turn as it ended and the reply's text: where a surface has
something to deliver, this is where its outbox row is written."""


class TurnRequest(msgspec.Struct, frozen=True):
    """A request as a surface read it. Without a thread id, the state key finds or makes the thread. `replaces` is the
    id of the user message that this one stands in for: the thread goes on from before that, on a new timeline."""

    message: NewMessage
    surface: Surface
    thread_id: str | None = None
    replaces: str | None = None
    state_key: str | None = None
    agent_id: str | None = None
    key: str | None = None
    policy: Policy | None = None
    new_thread: NewThread = NewThread()


class Accepted(msgspec.Struct, frozen=True):
    """A stored request. `replayed` means that it had been accepted before under the same key."""

    turn: Turn
    thread: Thread
    replayed: bool = False
    leased: bool = False
    """Whether this call has leased the turn as well, so that it can be run without asking the store again."""


class SealedRequest(msgspec.Struct, frozen=True):
    """A request that is checked and ready to be stored, however often its transaction has to be begun."""

    request: TurnRequest
    message: Sealed
    turn_id: str
    digest: bytes


class Ending(msgspec.Struct, frozen=True):
    """What a run leaves behind: how it ended, the reply if anything was shown, the last chunks of its stream."""

    end: TurnEnd
    reply: NewMessage | None
    chunks: list[Chunk]
    tokens: int = 0


class Turns:
    """Accepts and finishes turns in any scope."""

    def __init__(
        self,
        store: Store,
        sealer: Sealer,
        guard: Guard | None = None,
        deliveries: Mapping[Surface, Delivery] | None = None,
        *,
        metrics: Metrics | None = None,
    ) -> None:
        self._store = store
        self._sealer = sealer
        self._guard = guard
        self._deliveries = deliveries or {}
        metrics = metrics or Metrics()
        self._ended = metrics.counter("threadline_turns_total", "Turns that ended.", ("status", "surface"))
        self._lasted = metrics.histogram(
            "threadline_turn_duration_seconds", "From a request's acceptance to its turn's end.", ("surface",)
        )
        self._tokens = metrics.counter("threadline_tokens_total", "Tokens that agents say they used.", ("direction",))

    async def accept(self, scope: Scope, request: TurnRequest, lease: Lease | None = None) -> Accepted:
        """Stores the request and its turn, once. RoleRefused, GuardRefused, InvalidInput, NotFound: nothing is
        stored. KeyReused: the key came with another request. TurnRunning: the thread is busy and the policy is to
        reject. With a lease the turn is leased at once where nothing stands in its way; see `Accepted.leased`."""
        scope.require("member")
        sealed = self.seal(request)
        await self.check(scope, request)
        if lease is not None and (accepted := await self._accept_at_once(scope, sealed, lease)) is not None:
            return accepted
        return await self._store.transact(scope, lambda tx: self.accept_in(tx, sealed))

    async def _accept_at_once(self, scope: Scope, sealed: SealedRequest, lease: Lease) -> Accepted | None:
        """Most requests: nothing was asked under this key, nothing runs on the thread, nothing is replaced."""
        request, message = sealed.request, sealed.message
        if request.replaces is not None:
            return None
        otherwise = None if request.thread_id is not None else self._wanted(request)
        new = NewTurn(
            id=sealed.turn_id,
            thread_id=request.thread_id or (otherwise and otherwise.id) or new_id(),
            surface=request.surface,
            agent_id=request.agent_id or None,
            idempotency_key=request.key,
            request_hash=sealed.digest,
        )
        stored = await self._store.scoped(scope).accept_at_once(
            new, message, lease, otherwise=otherwise, title=first_title([message])
        )
        return None if stored is None else Accepted(*stored, leased=True)

    async def check(self, scope: Scope, request: TurnRequest) -> None:
        """RoleRefused or GuardRefused if this user may not ask this."""
        scope.require("member")
        if self._guard is not None and (reason := await self._guard.check(request.message.text, scope)):
            raise GuardRefused(reason)

    def seal(self, request: TurnRequest) -> SealedRequest:
        """InvalidInput for a request that cannot be stored."""
        sealed = self._sealed(request)
        return SealedRequest(request, sealed, new_id(), _digest(request, sealed))

    def _sealed(self, request: TurnRequest) -> Sealed:
        if request.message.role != "user":
            raise InvalidInput("a request is a user message")
        if request.key is not None:
            check_id("key", request.key)
        if request.thread_id is not None:
            check_id("thread", request.thread_id)
        if request.state_key is not None:
            check_state_key(request.state_key)
        if request.replaces is not None:
            check_id("message", request.replaces)
        sealed = self._sealer.message(request.message)
        if not any(isinstance(part, FilePart) for part in decode(sealed.parts_json)):
            check_text("message", sealed.text)
        return sealed

    async def accept_in(self, tx: Transaction, sealed: SealedRequest, thread: Thread | None = None) -> Accepted:
        """Stores a request inside somebody's transaction, together with what else it does. `thread` is where it goes
        if the request does not say. Whether the user may ask has been checked."""
        request = sealed.request
        if request.key is not None and (earlier := await tx.turn_by_key(request.key)) is not None:
            if earlier.request_hash != sealed.digest:
                used_on = await tx.thread(earlier.thread_id)
                raise KeyReused(request.key, None if used_on is None else used_on.state_key)
            return Accepted(earlier, await self._thread_of(tx, earlier), replayed=True)
        thread = thread or await self._thread(tx, request)
        await self._make_way(tx, thread, request)
        if request.replaces is not None:
            await _go_back(tx, thread, request.replaces)
        turn = await self._ask(tx, sealed, thread, "accepted")
        return Accepted(turn, await self._thread_of(tx, turn))

    async def deny_in(
        self, tx: Transaction, sealed: SealedRequest, thread: Thread, status: TurnStatus, said: str
    ) -> Accepted:
        """Stores a request that is refused, and what is said about it, as a turn that has ended so."""
        reply = NewMessage("assistant", (TextPart(said),), id=reply_id(sealed.turn_id), metadata={"status": status})
        turn = await self._ask(tx, sealed, thread, status)
        await tx.append(thread.id, [self._sealer.message(reply)], turn_id=turn.id)
        if (deliver := self._deliveries.get(turn.surface)) is not None:
            await deliver(tx, turn, said)
        return Accepted(turn, await self._thread_of(tx, turn))

    async def _ask(self, tx: Transaction, sealed: SealedRequest, thread: Thread, status: TurnStatus) -> Turn:
        request, message = sealed.request, sealed.message
        appended = await tx.append(thread.id, [message], turn_id=sealed.turn_id, title=first_title([message]))
        if appended.replayed:
            raise InvalidInput(f"message {message.id!r} is in this thread already: send a new id, or a key to retry")
        return await tx.create_turn(
            NewTurn(
                id=sealed.turn_id,
                thread_id=thread.id,
                surface=request.surface,
                agent_id=request.agent_id or thread.agent_id,
                status=status,
                idempotency_key=request.key,
                request_hash=sealed.digest,
                request_seq=appended.first_seq,
            )
        )

    async def _thread(self, tx: Transaction, request: TurnRequest) -> Thread:
        if request.thread_id is not None:
            found = await tx.thread(request.thread_id)
            if found is None:
                raise NotFound("thread", request.thread_id)
            return found
        if request.state_key is not None and (found := await tx.thread_by_key(request.state_key)) is not None:
            return found
        return await tx.create_thread(self._wanted(request))

    def _wanted(self, request: TurnRequest) -> NewThread:
        """The thread that a request makes, if there is none yet."""
        wanted = msgspec.structs.replace(
            request.new_thread,
            state_key=request.state_key or request.new_thread.state_key,
            agent_id=request.new_thread.agent_id or request.agent_id,
        )
        return admit_thread(self._sealer, wanted)

    async def _make_way(self, tx: Transaction, thread: Thread, request: TurnRequest) -> None:
        match request.policy or POLICIES[request.surface]:
            case "queue":
                return
            case "reject":
                for active in await tx.active_turns(thread.id):
                    raise TurnRunning(active.id, thread.message_count)
            case "interrupt":
                for active in await tx.active_turns(thread.id):
                    await tx.request_stop(active.id)

    async def _thread_of(self, tx: Transaction, turn: Turn) -> Thread:
        thread = await tx.thread(turn.thread_id, deleted=True)
        if thread is None:
            raise NotFound("thread", turn.thread_id)
        return thread

    async def find(self, scope: Scope, turn_id: str) -> Turn:
        """The turn as it stands. NotFound."""
        turn = await self._store.scoped(scope).turn(check_id("turn", turn_id))
        if turn is None:
            raise NotFound("turn", turn_id)
        return turn

    async def finish(self, scope: Scope, turn: Turn, ending: Ending) -> Turn | None:
        """Stores the reply and the end in one transaction. None if another owner has the turn by now, or it had
        ended: then nothing of this was kept."""
        reply = None if ending.reply is None else self._sealer.message(ending.reply)
        if turn.surface not in self._deliveries:
            ended = await self._store.scoped(scope).finish_at_once(
                turn, ending.end, reply, ending.chunks, tokens=ending.tokens
            )
            if ended is not None:
                self._count(ended)
                return ended

        async def work(tx: Transaction) -> Turn:
            end = ending.end
            standing = await tx.turn(turn.id)
            if standing is None or not standing.is_active or standing.fence != turn.fence:
                raise _Fenced
            await tx.put_chunks(turn.id, turn.fence, ending.chunks)
            asked = await standing_request(tx, turn)
            if reply is not None and asked is not None:
                seq = await self._put_reply(tx, turn, asked, reply, ending.tokens)
                end = msgspec.structs.replace(end, reply_seq=seq)
            ended = await tx.finish_turn(turn.id, turn.fence, end)
            if ended is None:
                raise _Fenced
            if (deliver := self._deliveries.get(turn.surface)) is not None:
                await deliver(tx, ended, reply.text if reply is not None else ended.error or "")
            return ended

        try:
            ended = await self._store.transact(scope, work)
        except _Fenced:
            return None
        self._count(ended)
        return ended

    def _count(self, turn: Turn) -> None:
        self._ended.add(turn.status, turn.surface)
        if turn.finished_at is not None:
            self._lasted.observe((turn.finished_at - turn.created_at).total_seconds(), turn.surface)
        for direction in ("input", "output"):
            self._tokens.add(direction, by=turn.usage.get(f"{direction}_tokens", 0))

    async def _put_reply(self, tx: Transaction, turn: Turn, asked: Message, reply: Sealed, tokens: int) -> int:
        """At the end; or, where it goes on with a reply that had asked for approval, in that one's place on a new
        timeline. What was said since, and waits for its own turn, comes along under its own seq."""
        since: list[Message] = []
        if asked.role == "assistant":
            since = await tx.messages(turn.thread_id, first=asked.seq + 1)
            await tx.move(turn.thread_id, asked.seq - 1)
        appended = await tx.append(turn.thread_id, [reply], turn_id=turn.id, tokens=tokens)
        for message in since:
            again = NewMessage(message.role, message.parts_json, message.id, message.metadata, message.created_at)
            await tx.append(turn.thread_id, [self._sealer.message(again)], turn_id=message.turn_id)
        return appended.first_seq


async def _go_back(tx: Transaction, thread: Thread, message_id: str) -> None:
    """To before a user message, in the transaction that stores what replaces it: if that fails, nothing has moved."""
    message = await tx.message(thread.id, message_id)
    if message is None:
        raise NotFound("message", message_id)
    if message.role != "user":
        raise InvalidInput("only a message of the user's can be replaced by another")
    await tx.move(thread.id, message.seq - 1)


async def standing_request(tx: Transaction, turn: Turn) -> Message | None:
    """What the turn answers, if that still stands in the thread's present history: a user's message, or a reply with
    its approvals answered. A reply to what was undone or deleted while it was written has no place to stand."""
    if turn.request_seq is None or await tx.thread(turn.thread_id) is None:
        return None
    asked = await tx.messages(turn.thread_id, first=turn.request_seq, last=turn.request_seq)
    return asked[0] if asked and asked[0].turn_id == turn.id else None


class _Fenced(Exception):
    """Aborts a finishing transaction whose lease is lost."""


def reply_id(turn_id: str) -> str:
    """The id of a turn's reply: the same for every run of the turn, so that a repeat cannot store a second one, and for
    every turn that goes on with it."""
    return f"{root_turn_id(turn_id)}{_REPLY}"


def asked_turn_id(message_id: str) -> str | None:
    """The turn that began the reply of this id, if it is the id of a reply."""
    return message_id.removesuffix(_REPLY) if message_id.endswith(_REPLY) else None


def _digest(request: TurnRequest, sealed: Sealed) -> bytes:
    """What makes two requests the same: where it goes, who answers, what it says."""
    said: list[Any] = [request.thread_id, request.state_key, request.agent_id, request.surface]
    if request.replaces is not None:
        said.append(request.replaces)
    return hashlib.sha256(msgspec.json.encode(said) + sealed.parts_json).digest()
