"""The runner: a turn between its lease and its end, in a task of its own that no connection can cancel.

The runner leases the turn, assembles the prompt, and reads the agent's events into the turn's output, which streams
them and folds them into the reply. Beside that it keeps the lease and stores the stream in small batches. However the
agent ends, by finishing, failing, being stopped or losing its process, what was shown is stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, Literal, Protocol, TypeAlias

from threadline.core import events
from threadline.core.channels import Agent as AgentRow
from threadline.core.client_tools import offered_to
from threadline.core.errors import AgentFailed, LimitExceeded, StoreFailed, ThreadlineError
from threadline.core.event_normalizer import EventNormalizer
from threadline.core.prompts import Prompt
from threadline.core.threads import Scope, Thread
from threadline.core.turn_commits import Accepted
from threadline.core.turns import CHANNELS, Lease, Turn, TurnStatus
from threadline.ports import Agent, AgentServices, Approver, Store
from threadline.turns.acceptance import STOPPED, WENT_AWAY, Turns, asker_scope, cut_reason, find_present_request
from threadline.turns.journal import StoredJournal
from threadline.turns.leases import Holder, Leases, ThreadQueue, TurnTask
from threadline.turns.meters import Meters
from threadline.turns.output import TurnOutput, made_ending, read_earlier_run
from threadline.turns.steered_messages import SteeredMessages
from threadline.turns.streams import LiveStream, Streams

log = logging.getLogger("threadline.turns")

# Encoding more at a time would hold up the event loop for tens of milliseconds.
_CHUNKS_PER_WRITE = 1000

RecoveryReason: TypeAlias = Literal["sweep", "wait", "make_way", "interrupt"]
"""Why a turn is recovered: a sweep found it, a reader or a repeated request waits for it, another turn or a request to
stop needs its end, or a new question interrupts it."""


class AgentFinder(Protocol):
    async def find(self, scope: Scope, agent_id: str) -> Agent:
        """NotFound if there is none under this id."""
        ...

    async def look_up(self, scope: Scope, agent_id: str) -> tuple[Agent, AgentRow | None]:
        """The agent and its row. NotFound if there is none under this id."""
        ...


class Prompter(Protocol):
    async def prompt(
        self, scope: Scope, turn: Turn, thread: Thread, row: AgentRow | None
    ) -> tuple[Prompt, dict[str, Any]]:
        """The prompt, and what is stored about it."""
        ...


class TurnStarter(Protocol):
    """What recovery needs of a runner."""

    def start(self, scope: Scope, turn: Turn, approver: Approver) -> TurnTask: ...

    def runs(self, turn_id: str) -> bool: ...


class TurnRecovery(Protocol):
    async def recover_turn(
        self, scope: Scope, turn: Turn, runner: TurnStarter, reason: RecoveryReason, approver: Approver | None = None
    ) -> bool:
        """Runs an abandoned turn in this process, or ends it. False if there is nothing to do about it."""
        ...


class Runner:
    """Owns the turns that run in this process."""

    def __init__(
        self,
        store: Store,
        turns: Turns,
        streams: Streams,
        prompter: Prompter,
        agents: AgentFinder,
        default_agent: str,
        leases: Leases,
        recovery: TurnRecovery,
        meters: Meters,
        on_end: Callable[[Scope, Turn], None] | None = None,
    ) -> None:
        """`on_end` is called after a turn's end is stored. It must not wait."""
        self._store = store
        self._turns = turns
        self._streams = streams
        self._prompter = prompter
        self._agents = agents
        self._default_agent = default_agent
        self._recovery = recovery
        self._meters = meters
        self._on_end = on_end
        self._timing = leases.timing
        self._leases = leases
        self._queue = ThreadQueue()
        self._tasks: dict[str, TurnTask] = {}
        self._waiting: set[str] = set()
        """Turns whose task has no lease. A caller that holds it replaces the task, which would leave the turn to it."""
        self._stopping: set[str] = set()
        self._elsewhere: set[str] = set()
        """Turns for which this process waited, and that another one ran."""
        self._ending: set[str] = set()
        """Turns whose agent is done and whose end is being stored: they must not be cancelled."""
        self._hands_over = False
        self._is_closing = False
        """A process that ends takes no turn over: its readers would wait for it in vain."""

    def new_lease(self) -> Lease:
        return self._leases.new_lease()

    def holder(self) -> Holder:
        """This process, for accepting a turn that it is going to run."""
        return Holder(self.new_lease(), self.make_way)

    async def begin(self, scope: Scope, accepted: Accepted, approver: Approver) -> TurnTask | None:
        """Runs what was just accepted; None if it has ended, or runs elsewhere. A repeated request may find its turn
        leased for the caller that sent it first, and about to begin; or abandoned, and continues it."""
        turn = accepted.turn
        if turn.is_active and (accepted.leased or turn.status == "accepted" or turn.id in self._tasks):
            return self.start(scope, turn, approver, accepted.thread if accepted.leased else None)
        await self.continue_turn(scope, turn, approver)
        return self._tasks.get(turn.id)

    def start(
        self, scope: Scope, turn: Turn, approver: Approver, thread: Thread | None = None, *, is_leased: bool = False
    ) -> TurnTask:
        """Runs the turn, once in this process however often it is started. The task's result is the ended turn, or None
        if another process has to end it. With its thread given, or with `is_leased`, the turn is leased already."""
        is_leased = is_leased or thread is not None
        running = self._tasks.get(turn.id)
        if running is not None and (not is_leased or turn.id not in self._waiting):
            return running
        self._streams.open(scope.tenant_id, turn)
        if is_leased:
            coroutine = self._run_agent(scope, turn, approver, thread, must_answer=turn.surface in CHANNELS)
            self._waiting.discard(turn.id)
        else:
            self._waiting.add(turn.id)
            coroutine = self._run_in_order(scope, turn, approver, self._queue.find_previous(scope.tenant_id, turn))
        task = asyncio.create_task(coroutine, name=f"turn {turn.id}")
        self._tasks[turn.id] = task
        self._queue.join(scope.tenant_id, turn, task)
        task.add_done_callback(lambda done: self._forget(scope.tenant_id, turn.id, done))
        return task

    def _forget(self, tenant_id: str, turn_id: str, task: TurnTask) -> None:
        """A callback of the task and not its last step: a task that is cancelled before its first step runs no step."""
        failure = None if task.cancelled() else task.exception()
        if self._tasks.get(turn_id) is task:
            del self._tasks[turn_id]
            for noted in (self._waiting, self._stopping, self._ending):
                noted.discard(turn_id)
            has_ended = failure is None and not task.cancelled() and task.result() is not None
            # The stream here has no events of a turn that ran elsewhere: its readers must continue in the store.
            has_ended = has_ended and turn_id not in self._elsewhere
            self._elsewhere.discard(turn_id)
            self._streams.close(tenant_id, turn_id, has_ended=has_ended, failure=failure)
        if failure is not None:
            log.error("turn not finished: %s", type(failure).__name__, extra={"turn_id": turn_id})

    @property
    def channel_wait_seconds(self) -> float:
        return self._leases.channel_wait_seconds

    @property
    def running(self) -> int:
        """How many turns run here, those that wait for their thread included."""
        return len(self._tasks)

    def runs(self, turn_id: str) -> bool:
        """Whether the turn runs here, or waits here for its thread."""
        return turn_id in self._tasks

    async def stop(self, scope: Scope, turn_id: str) -> bool:
        """Ends a turn wherever it runs; what was shown is stored. False if it is not active."""
        is_active = await self._store.scoped(scope).request_stop(turn_id)
        if is_active and turn_id in self._tasks:
            self._cancel(turn_id)
        elif is_active:
            await self.make_way(scope, turn_id)
        return is_active

    async def force_stop(self, scope: Scope, turn_id: str) -> None:
        """Ends a turn that was asked to stop and did not, because its process has ended or hangs. If it does run, it
        can write no more."""
        session = self._store.scoped(scope)
        turn = await session.turn(turn_id)
        if turn is not None and turn.is_active and turn.lease_owner is not None and turn_id not in self._tasks:
            await session.expire_leases(turn.lease_owner, turn_id=turn_id)
            await self.make_way(scope, turn_id)

    async def continue_turn(self, scope: Scope, turn: Turn, approver: Approver | None = None) -> None:
        """Runs a turn that the caller waits for, if no process runs it."""
        await self._recover(scope, turn, "wait", approver)

    async def make_way(self, scope: Scope, turn_id: str, *, interrupts: bool = False) -> None:
        turn = await self._store.scoped(scope).turn(turn_id)
        if turn is not None:
            await self._recover(scope, turn, "interrupt" if interrupts else "make_way", None)

    async def _recover(self, scope: Scope, turn: Turn, reason: RecoveryReason, approver: Approver | None) -> None:
        """Without waiting for the next sweep: perhaps no process sweeps. The turn runs as its owner's, whatever the
        role of the caller that found it."""
        if turn.is_active and not self._is_closing:
            owner = Scope(scope.tenant_id, turn.owner_id)
            await self._recovery.recover_turn(owner, turn, self, reason, approver)

    def _cancel(self, turn_id: str) -> None:
        """Once: a second cancellation would interrupt the storing of what the first one left."""
        if turn_id not in self._stopping and turn_id not in self._ending:
            self._stopping.add(turn_id)
            self._tasks[turn_id].cancel()

    async def close(self, grace_seconds: float = 0.0, *, hands_over: bool = False) -> None:
        """Gives running turns a grace period, then interrupts them, or hands them over; what was shown is stored. Turns
        of a terminal always end with it. Turns of a channel, and those that were handed over, never end here."""
        self._hands_over = self._hands_over or hands_over
        self._is_closing = True
        if self._tasks and grace_seconds > 0:
            await asyncio.wait(list(self._tasks.values()), timeout=grace_seconds)
        # A task that was created just now gets to its first step: cancelled before that, it could hand nothing over.
        await asyncio.sleep(0)
        for turn_id, task in list(self._tasks.items()):
            if turn_id not in self._ending:
                task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    async def _run_in_order(
        self, scope: Scope, turn: Turn, approver: Approver, previous: TurnTask | None
    ) -> Turn | None:
        leased = await self._acquire(scope, turn, previous)
        if leased is None:
            self._elsewhere.add(turn.id)
            stored = await self._store.scoped(scope).turn(turn.id)
            return None if stored is None or stored.is_active else stored
        self._waiting.discard(turn.id)
        must_answer = turn.surface in CHANNELS or turn.is_handed_over
        return await self._run_agent(scope, leased, approver, None, must_answer=must_answer)

    async def _acquire(self, scope: Scope, turn: Turn, previous: TurnTask | None) -> Turn | None:
        try:
            return await self._leases.acquire(scope, turn, previous, self.make_way)
        except asyncio.CancelledError:
            is_handed_over = turn.surface in CHANNELS or (self._hands_over and turn.surface != "cli")
            if is_handed_over and turn.id not in self._stopping:
                self._ending.add(turn.id)
                await self._leases.hand_over_waiting(scope, turn)
            raise

    async def _run_agent(
        self, scope: Scope, turn: Turn, approver: Approver, thread: Thread | None, *, must_answer: bool
    ) -> Turn | None:
        """`must_answer`: the turn is answered even if this process ends, by another one."""
        stream = self._streams.open(scope.tenant_id, turn)
        sealer = self._turns.sealer_of(scope)
        output = TurnOutput(stream, EventNormalizer(sealer.masker), sealer.limits)
        status: TurnStatus = "executed"
        error: str | None = None
        keeping = asyncio.create_task(
            self._leases.keep(scope, turn, stop=lambda: self._cancel(turn.id), lose=lambda: self._lose(turn.id))
        )
        storing = asyncio.create_task(self._store_chunks(scope, turn, stream))
        try:
            await self._read_agent(scope, turn, approver, output, thread)
        except asyncio.CancelledError:
            current = asyncio.current_task()
            assert current is not None
            # The cancellation is handled here: without this, the next await would raise it again and cut off the end.
            current.uncancel()
            status = "stopped" if turn.id in self._stopping else "interrupted"
            error = STOPPED if status == "stopped" else WENT_AWAY
        except LimitExceeded as exc:
            status, error = "dispatch_failed", cut_reason(exc)
        except ThreadlineError as exc:
            status, error = "dispatch_failed", str(exc)
        except Exception:
            log.exception("agent failed", extra={"turn_id": turn.id, "agent_id": turn.agent_id})
            status, error = "dispatch_failed", "the agent failed"
        finally:
            self._ending.add(turn.id)
            await _end_task(storing)
        try:
            if status == "interrupted" and (must_answer or (self._hands_over and turn.surface != "cli")):
                # A renewal after the release would give the turn a lease without a holder.
                await _end_task(keeping)
                if await self._leases.hand_over(scope, turn, stream):
                    return None
                status, error = "stopped", STOPPED
            ended = await self._finish(scope, turn, output, status, error)
            if self._on_end is not None and ended is not None:
                self._on_end(scope, ended)
            return ended
        finally:
            # Renewed until the end is stored, which may take many attempts.
            await _end_task(keeping)

    def _lose(self, turn_id: str) -> None:
        # While its end is being stored, the store finds the old fence itself.
        if turn_id not in self._ending:
            self._tasks[turn_id].cancel()

    async def _read_agent(
        self, scope: Scope, turn: Turn, approver: Approver, output: TurnOutput, thread: Thread | None
    ) -> None:
        async with self._leases.throttle(turn):
            thread = thread or await self._store.scoped(scope).thread(turn.thread_id)
            if thread is None:
                raise AgentFailed("the thread was deleted")
            agent_id = turn.agent_id or self._default_agent
            agent, row = await self._agents.look_up(scope, agent_id)
            prompt, seen = await self._prompter.prompt(scope, turn, thread, row)
            output.seen = {**turn.seen, **seen}
            meter = await self._meters.open_meter(
                asker_scope(scope, turn), agent_id, row, prompt.model, turn.surface, turn.id
            )
            output.meter = meter
        last = prompt.messages[-1]
        continued = last.parts if last.role == "assistant" else ()
        if continued:
            asked = await find_present_request(self._store.scoped(scope), turn)
            output.continue_reply(continued, {} if asked is None else asked.metadata)
        # A fence above 1: another run of this turn came before, and may have left something.
        if turn.fence > 1:
            earlier = await read_earlier_run(self._store.scoped(scope), turn, continued, output.fold.metadata)
            prompt = output.continue_run(earlier, prompt, continued)
            if earlier.fold is None and earlier.chunks:
                await self._restart(scope, turn, output.stream)
        steered = SteeredMessages(self._store, scope, turn, output)
        prompt = await steered.with_taken(prompt)
        journal = StoredJournal(self._store, scope, turn, self._turns.sealer_of(scope).masker)
        services = AgentServices(journal, approver, offered_to(turn.surface, turn.seen), steered=steered)
        async with contextlib.aclosing(agent.run(prompt, services)) as answer:  # type: ignore[type-var]
            async for event in answer:
                await meter.add(event)
                output.add(event)
                await self._streams.loop_share.give_way()
        output.close()

    async def _restart(self, scope: Scope, turn: Turn, stream: LiveStream) -> None:
        """Stored before the agent is asked: if this process dies as well, the next one must know which calls were
        abandoned, or it would run their tools."""
        stream.publish(events.Restart())
        chunks = stream.unstored()
        if not await self._store.scoped(scope).put_chunks(turn.id, turn.fence, chunks):
            raise AgentFailed("another process has taken this turn over")
        stream.mark_stored(chunks)

    async def _finish(
        self, scope: Scope, turn: Turn, output: TurnOutput, status: TurnStatus, error: str | None
    ) -> Turn | None:
        output.close()
        if output.failure is not None and status == "executed":
            status, error = "dispatch_failed", output.failure
        # An interrupted turn may be continued: its stream has no end.
        if status not in ("executed", "interrupted"):
            output.stream.publish(events.Failure(error or status))
        for anomaly, times in output.fold.anomalies.items():
            log.warning("agent anomaly: %s", anomaly.kind, extra={"turn_id": turn.id, "times": times})
        ending = made_ending(turn, output, status, error)
        # A person at a terminal gets the error at once. Other surfaces can wait for the database to return.
        for pause in () if turn.surface == "cli" else self._timing.retry_seconds:
            try:
                async with self._leases.throttle(turn):
                    return await self._turns.finish(scope, turn, ending)
            except StoreFailed:
                log.warning("turn not finished yet", extra={"turn_id": turn.id})
                # The reply exists only here: losing it to a database that restarts would lose an answer that was shown.
                await asyncio.sleep(pause)
        return await self._turns.finish(scope, turn, ending)

    async def _store_chunks(self, scope: Scope, turn: Turn, stream: LiveStream) -> None:
        session = self._store.scoped(scope)
        while True:
            # An event and not a timer: while agents think, thousands of these tasks must not wake ten times a second.
            await stream.wait_unstored()
            await asyncio.sleep(self._timing.flush_seconds)
            chunks = stream.unstored(_CHUNKS_PER_WRITE)
            try:
                if chunks and await session.put_chunks(turn.id, turn.fence, chunks):
                    stream.mark_stored(chunks)
            except StoreFailed:
                # Readers here have the events; the finish stores what is still missing, or says that it could not.
                log.warning("chunks not stored", extra={"turn_id": turn.id})


async def _end_task(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
