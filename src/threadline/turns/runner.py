"""Running: a turn between its lease and its end, in a task of its own that no connection can take down.

The runner leases the turn, assembles the prompt, reads the agent's events, shows them (masked) on the turn's stream and
folds them into the reply. Beside that it renews the lease, listens for a wish to stop, and stores the stream in small
batches. However the agent ends, by finishing, failing, being stopped or losing its process, what was shown is kept; and
a process that ends in order hands its turns over.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias

import msgspec

from threadline.core import events
from threadline.core.channels import Agent as AgentRow
from threadline.core.errors import AgentFailed, StoreFailed, ThreadlineError
from threadline.core.event_normalizer import EventNormalizer, StreamingMasker
from threadline.core.ids import new_id
from threadline.core.messages import NewMessage
from threadline.core.prompts import Prompt, PromptMessage
from threadline.core.threads import Scope, Thread
from threadline.core.turns import CHANNELS, Lease, Turn, TurnEnd, TurnStatus
from threadline.ports import Agent, AgentServices, Approver, Clock, Store
from threadline.turns.acceptance import STOPPED, WENT_AWAY, Accepted, Ending, Turns, reply_id
from threadline.turns.handover import hand_over, hand_over_waiting
from threadline.turns.journal import StoredJournal
from threadline.turns.output import Run
from threadline.turns.streams import LiveStream, Streams
from threadline.turns.takeover import begun
from threadline.turns.thread_queue import Queues

log = logging.getLogger("threadline.turns")

_CHANNEL_PATIENCE = 5
_CHANNEL_STEPS = 4

TakeUp: TypeAlias = Callable[[Scope, Turn], Awaitable[bool]]
"""Looks after a turn that nobody runs: runs it here, or ends it. False if there is nothing to do about it."""


class AgentFinder(Protocol):
    async def look_up(self, scope: Scope, agent_id: str) -> tuple[Agent, AgentRow | None]:
        """The agent and what is said about it. NotFound if there is none under this id."""
        ...


class Prompter(Protocol):
    async def prompt(
        self, scope: Scope, turn: Turn, thread: Thread, row: AgentRow | None
    ) -> tuple[Prompt, dict[str, Any]]:
        """The prompt, and what is kept about it."""
        ...


class Timing(msgspec.Struct, frozen=True):
    lease_seconds: float = 30.0
    flush_seconds: float = 0.1
    wait_seconds: float = 1.0
    retry_seconds: tuple[float, ...] = (0.2, 1.0, 3.0, 6.0)


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
        clock: Clock,
        *,
        masker: StreamingMasker | None = None,
        timing: Timing | None = None,
    ) -> None:
        self.worker = new_id()
        self._store = store
        self._turns = turns
        self._streams = streams
        self._prompter = prompter
        self._agents = agents
        self._default_agent = default_agent
        self._clock = clock
        self._masker = masker
        self._timing = timing or Timing()
        self._lane = asyncio.Semaphore(_CHANNEL_STEPS)
        """How many turns from platforms begin or end at once. A burst of them waits here, where it keeps neither the
        database nor the processor from acknowledging what arrives meanwhile; agents answer beside it, all at once."""
        self._queues = Queues()
        self._tasks: dict[str, asyncio.Task[Turn | None]] = {}
        self._leasing: set[str] = set()
        """Turns whose task waits for a lease. Who comes with one, having accepted the turn, runs it instead."""
        self._stopping: set[str] = set()
        self._ending: set[str] = set()
        """Turns whose agent is done with and whose end is being stored: nothing may cancel that."""
        self._hands_over = False
        self.take_up: TakeUp | None = None
        """What is done about a turn that nobody runs and that stands in the way, or is to stop."""

    def lease(self) -> Lease:
        """What this process asks for when it accepts a turn or takes one up."""
        return Lease(self.worker, self._clock.now() + dt.timedelta(seconds=self._timing.lease_seconds))

    def begin(self, scope: Scope, accepted: Accepted, approver: Approver) -> asyncio.Task[Turn | None] | None:
        """Runs what was accepted just now; None if it has ended, or runs elsewhere. A request that came again may find
        its turn leased for the one who sent it first, and about to begin."""
        turn = accepted.turn
        if turn.is_active and (accepted.leased or turn.status == "accepted" or turn.id in self._tasks):
            return self.start(scope, turn, approver, accepted.thread if accepted.leased else None)
        return self.start(scope, turn, approver) if self._is_left(turn) else None

    def _is_left(self, turn: Turn) -> bool:
        """Whether whoever had it handed it over, or died while it ran."""
        is_over = turn.lease_until is not None and turn.lease_until <= self._clock.now()
        return turn.is_handed_over or (turn.status == "running" and is_over)

    def start(
        self, scope: Scope, turn: Turn, approver: Approver, thread: Thread | None = None
    ) -> asyncio.Task[Turn | None]:
        """Runs the turn, once in this process however often it is started; the task's result is the ended turn, or
        None if it was another process's to end. With its thread given, it is leased already."""
        running = self._tasks.get(turn.id)
        if running is not None and (thread is None or turn.id not in self._leasing):
            return running
        self._streams.open(scope.tenant_id, turn)
        before = None if thread is not None else self._queues.before(scope.tenant_id, turn)
        task = asyncio.create_task(self._run(scope, turn, approver, thread, before), name=f"turn {turn.id}")
        self._tasks[turn.id] = task
        self._queues.join(scope.tenant_id, turn, task)
        task.add_done_callback(lambda done: self._ended(scope.tenant_id, turn.id, done))
        return task

    def _ended(self, tenant_id: str, turn_id: str, task: asyncio.Task[Turn | None]) -> None:
        """Whatever the task has done: one that was cancelled before its first step has not even begun."""
        failure = None if task.cancelled() else task.exception()
        if self._tasks.get(turn_id) is task:
            del self._tasks[turn_id]
            self._stopping.discard(turn_id)
            self._ending.discard(turn_id)
            ended = failure is None and not task.cancelled() and task.result() is not None
            self._streams.forget(tenant_id, turn_id, ended=ended, failure=failure)
        if failure is not None:
            log.error("turn not finished: %s", type(failure).__name__, extra={"turn_id": turn_id})

    @property
    def running(self) -> int:
        """How many turns run here, those that wait for their thread included."""
        return len(self._tasks)

    def runs(self, turn_id: str) -> bool:
        """Whether it runs here, or waits here for its thread."""
        return turn_id in self._tasks

    async def stop(self, scope: Scope, turn_id: str) -> bool:
        """Ends a turn wherever it runs, keeping what was shown. False if it is not active."""
        tx = self._store.scoped(scope)
        asked = await tx.request_stop(turn_id)
        if asked and turn_id in self._tasks:
            self._cancel(turn_id)
        elif asked and (turn := await tx.turn(turn_id)) is not None:
            await self.recover_if_abandoned(scope, turn)
        return asked

    async def recover_if_abandoned(self, scope: Scope, turn: Turn) -> None:
        """Sees to it that a turn which nobody runs goes on or ends. A sweep would, in a while, but perhaps nobody is
        there who sweeps. It runs as its owner's, whatever the one who came across it may do."""
        waits = turn.status == "accepted" and turn.surface not in CHANNELS
        if self.take_up is not None and (waits or self._is_left(turn)):
            await self.take_up(Scope(scope.tenant_id, turn.owner_id), turn)

    def _cancel(self, turn_id: str) -> None:
        """Once: a second cancellation would cut off the storing of what the first one left."""
        if turn_id not in self._stopping and turn_id not in self._ending:
            self._stopping.add(turn_id)
            self._tasks[turn_id].cancel()

    async def close(self, grace_seconds: float = 0.0, *, hands_over: bool = False) -> None:
        """Gives running turns so long to end by themselves, then interrupts them, or hands them over; what was shown is
        kept. Those of a terminal end with it, and those that others handed over, or a channel sent, never end here."""
        self._hands_over = self._hands_over or hands_over
        if self._tasks and grace_seconds > 0:
            await asyncio.wait(list(self._tasks.values()), timeout=grace_seconds)
        # One that began just now gets to its first step: cancelled before that, it could hand nothing over.
        await asyncio.sleep(0)
        for turn_id, task in list(self._tasks.items()):
            if turn_id not in self._ending:
                task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    async def _run(
        self,
        scope: Scope,
        turn: Turn,
        approver: Approver,
        thread: Thread | None,
        before: asyncio.Task[Turn | None] | None,
    ) -> Turn | None:
        leased = turn if thread is not None else await self._leased(scope, turn, before)
        if leased is None:
            standing = await self._store.scoped(scope).turn(turn.id)
            return None if standing is None or standing.is_active else standing
        is_owed = turn.surface in CHANNELS or turn.is_handed_over
        return await self._answer(scope, leased, approver, thread, is_owed=is_owed)

    async def _leased(self, scope: Scope, turn: Turn, before: asyncio.Task[Turn | None] | None) -> Turn | None:
        self._leasing.add(turn.id)
        try:
            if before is not None:
                # Not for ever: who comes first is for the database to say.
                await asyncio.wait((before,), timeout=self._timing.lease_seconds)
            return await self._lease(scope, turn)
        except asyncio.CancelledError:
            if self._hands_over and turn.surface != "cli" and turn.id not in self._stopping:
                self._ending.add(turn.id)
                await hand_over_waiting(self._store.scoped(scope), turn, self.worker)
            raise
        finally:
            self._leasing.discard(turn.id)

    async def _lease(self, scope: Scope, turn: Turn) -> Turn | None:
        """Waits until no earlier turn of the thread is active. None if this one ended or is another process's."""
        tx = self._store.scoped(scope)
        while True:
            worker, until = self.lease()
            async with self._step(turn):
                leased = await tx.lease_turn(turn.id, worker, until=until)
            if leased is not None:
                return leased
            active = await tx.active_turns(turn.thread_id)
            mine = next((each for each in active if each.id == turn.id), None)
            if mine is None or mine.status == "running":
                return None
            await self.recover_if_abandoned(scope, active[0])
            async with self._store.watch(scope, active[0].id) as watch:
                await watch.wait(self._timing.wait_seconds)

    async def _answer(
        self, scope: Scope, turn: Turn, approver: Approver, thread: Thread | None, *, is_owed: bool
    ) -> Turn | None:
        """`is_owed` says that an answer is waited for whatever becomes of this process."""
        stream = self._streams.open(scope.tenant_id, turn)
        run = Run(stream, EventNormalizer(self._masker))
        status: TurnStatus = "executed"
        error: str | None = None
        beside = [
            asyncio.create_task(work) for work in (self._keep(scope, turn), self._store_chunks(scope, turn, stream))
        ]
        try:
            await self._read_agent(scope, turn, approver, run, thread)
        except asyncio.CancelledError:
            current = asyncio.current_task()
            assert current is not None
            # The cancellation has done its work; what follows must not be cut off by it.
            current.uncancel()
            status = "stopped" if turn.id in self._stopping else "interrupted"
            error = STOPPED if status == "stopped" else WENT_AWAY
        except ThreadlineError as exc:
            status, error = "dispatch_failed", str(exc)
        except Exception:
            log.exception("agent failed", extra={"turn_id": turn.id, "agent_id": turn.agent_id})
            status, error = "dispatch_failed", "the agent failed"
        finally:
            self._ending.add(turn.id)
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
        if status == "interrupted" and (is_owed or (self._hands_over and turn.surface != "cli")):
            if await hand_over(self._store.scoped(scope), turn, stream):
                return None
            status, error = "stopped", STOPPED
        return await self._finish(scope, turn, run, status, error)

    async def _read_agent(self, scope: Scope, turn: Turn, approver: Approver, run: Run, thread: Thread | None) -> None:
        async with self._step(turn):
            thread = thread or await self._store.scoped(scope).thread(turn.thread_id)
            if thread is None:
                raise AgentFailed("the thread was deleted")
            agent, row = await self._agents.look_up(scope, turn.agent_id or self._default_agent)
            prompt, run.seen = await self._prompter.prompt(scope, turn, thread, row)
        *before, last = prompt.messages
        said = last.parts if last.role == "assistant" else ()
        if said:
            run.go_on_with(said)
        if turn.fence > 1:
            earlier = await begun(self._store.scoped(scope), turn, said)
            run.take_up(earlier)
            if earlier.parts:
                going_on = PromptMessage("assistant", earlier.parts)
                shown = (*before, going_on) if said else (*prompt.messages, going_on)
                prompt = msgspec.structs.replace(prompt, messages=shown)
            elif earlier.chunks:
                await self._begin_again(scope, turn, run.stream)
        services = AgentServices(StoredJournal(self._store, scope, turn, self._masker), approver)
        async with contextlib.aclosing(agent.run(prompt, services)) as answer:  # type: ignore[type-var]
            async for event in answer:
                run.show(event)
        run.close()

    async def _begin_again(self, scope: Scope, turn: Turn, stream: LiveStream) -> None:
        """Stored before the agent is asked: should this process die as well, the next one must know which calls were
        given up, or it would run their tools."""
        stream.publish(events.to_json(events.Restart()))
        chunks = stream.unstored()
        if not await self._store.scoped(scope).put_chunks(turn.id, turn.fence, chunks):
            raise AgentFailed("another process has taken this turn over")
        stream.mark_stored(chunks)

    async def _finish(self, scope: Scope, turn: Turn, run: Run, status: TurnStatus, error: str | None) -> Turn | None:
        run.close()
        if run.failure is not None and status == "executed":
            status, error = "dispatch_failed", run.failure
        if status != "executed":
            run.stream.publish(events.to_json(events.Failure(error or status)))
        for oddity, times in run.fold.anomalies.items():
            log.warning("agent was odd: %s", oddity.kind, extra={"turn_id": turn.id, "times": times})
        parts = run.fold.parts()
        metadata = {} if status == "executed" else {"status": status}
        reply = NewMessage("assistant", parts, id=reply_id(turn.id), metadata=metadata) if parts else None
        usage = run.fold.usage
        end = TurnEnd(status=status, error=error, usage=msgspec.to_builtins(usage), seen=run.seen)
        chunks = run.stream.unstored()
        ending = Ending(end, reply, chunks, tokens=usage.input_tokens + usage.output_tokens)
        # A person at a terminal is told at once; elsewhere nobody waits, and a database may come back in a moment.
        for pause in () if turn.surface == "cli" else self._timing.retry_seconds:
            try:
                async with self._step(turn):
                    return await self._turns.finish(scope, turn, ending)
            except StoreFailed:
                log.warning("turn not finished yet", extra={"turn_id": turn.id})
                await asyncio.sleep(pause)
        return await self._turns.finish(scope, turn, ending)

    def _step(self, turn: Turn) -> AbstractAsyncContextManager[None]:
        """Around what a turn does with the database before and after its agent."""
        return self._lane if turn.surface in CHANNELS else contextlib.nullcontext()

    async def _keep(self, scope: Scope, turn: Turn) -> None:
        """Renews the lease and looks for a wish to stop. A lost lease ends the run: the turn is another's now."""
        tx = self._store.scoped(scope)
        renew_every = self._timing.lease_seconds / 3
        # A wish to stop wakes the watch; to look besides is for where that does not reach. Who writes from a platform
        # has no button to stop with, and may be one of thousands.
        look_every = self._timing.wait_seconds * (_CHANNEL_PATIENCE if turn.surface in CHANNELS else 1)
        renewed = asyncio.get_running_loop().time()
        async with self._store.watch(scope, turn.id) as watch:
            while True:
                await watch.wait(min(look_every, renew_every))
                try:
                    if await tx.is_stop_requested(turn.id):
                        self._cancel(turn.id)
                        return
                    if asyncio.get_running_loop().time() - renewed < renew_every:
                        continue
                    if not await tx.renew_lease(turn.id, turn.fence, until=self.lease().until):
                        log.warning("lease lost", extra={"turn_id": turn.id})
                        self._tasks[turn.id].cancel()
                        return
                    renewed = asyncio.get_running_loop().time()
                except StoreFailed:
                    log.warning("lease not renewed", extra={"turn_id": turn.id})

    async def _store_chunks(self, scope: Scope, turn: Turn, stream: LiveStream) -> None:
        tx = self._store.scoped(scope)
        while True:
            # While an agent thinks there is nothing to do: a thousand of them must not wake ten times a second each.
            await stream.until_unstored()
            await asyncio.sleep(self._timing.flush_seconds)
            chunks = stream.unstored()
            try:
                if chunks and await tx.put_chunks(turn.id, turn.fence, chunks):
                    stream.mark_stored(chunks)
            except StoreFailed:
                # Readers here have the chunks; the finish stores what is still missing, or says that it could not.
                log.warning("chunks not stored", extra={"turn_id": turn.id})
