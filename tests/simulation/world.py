"""One run of the simulation: a seed decides who asks what and when, which faults occur, and in which order all runs.

First phase: questions and faults. Second phase: no more faults; within a bounded time every asker has an answer and the
database is idle. Then the processes are stopped, and the checker compares the database, the platform and what the
askers got with what was asked.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import tempfile
from collections import Counter
from collections.abc import Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from tests.simulation import checker, machine
from tests.simulation.agent import Plan, make_agent
from tests.simulation.event_loop import OWNER, NothingToRun, Owner, SimulatedLoop
from tests.simulation.faults import LONGEST_JUMP_SECONDS, Faults
from tests.simulation.machine import Replacement
from tests.simulation.people import ask_by_library, read_everything, watch, write_in_chat
from tests.simulation.platform import SECRETS, SimulatedPlatforms
from tests.simulation.processes import SimulatedProcess, SimulatedWriterThread, StatementFaults
from tests.simulation.questions import AGENT, PEOPLE, TENANT, Question, draw_questions
from threadline import platform_http
from threadline.bootstrap import Threadline
from threadline.core.threads import Scope, system_scope
from threadline.settings import ChannelsSettings, Settings
from threadline.stores.sqlite import change_watch, writer

_RECOVERY_SECONDS = 2 * LONGEST_JUMP_SECONDS + 600.0
"""After the last fault everything must be idle within this time: twice a jump, by which two clocks differ at most, and
time for leases, claims, retries and a queue of slow agents."""
_KEYS = {"first": "c2ltdWxhdGVkLXNpbXVsYXRlZC1zaW11bGF0ZWQtMTI="}


class Result(NamedTuple):
    seed: int
    steps: int
    seconds: float
    """Of virtual time."""
    violations: list[str]
    trace: list[str]
    digest: str
    """The same for two runs of a seed."""
    faults: Counter[str]
    """How many of each kind were injected."""


class World:
    def __init__(self, seed: int, database: str) -> None:
        self.chance = random.Random(seed)
        # The methods about sockets, signals and processes are left out: nothing simulated may call them.
        self.loop = SimulatedLoop(self.chance, self._before_callback, self._after_crash)  # type: ignore[abstract]
        self.faults = Faults(self.chance)
        self.platform = SimulatedPlatforms(self)
        self.has_own_clocks = self.chance.random() < 0.5
        """Whether each process has a wall clock of its own, as if it ran on another machine."""
        self.is_service = self.chance.random() < 0.7
        """Whether the processes are services, with their sweeps and workers, or programs that use the library."""
        # Not from `chance`: a seed without roles runs as it did before there were any.
        self.has_roles = self.is_service and random.Random(f"roles {seed}").random() < 0.4
        """Whether only the first process runs turns; the others accept them."""
        self.troubles = 0
        """How many faults were injected."""
        self.trace: list[str] = []
        self.violations: list[str] = []
        self.questions: dict[str, Question] = {}
        self.effects: Counter[tuple[str, str, int]] = Counter()
        self.injected: Counter[str] = Counter()
        self.processes: list[SimulatedProcess] = []
        """Those that run."""
        self.database = database
        self._settings = Settings(
            database=database,
            tenant=TENANT,
            agent=AGENT,
            channels=ChannelsSettings(keys=_KEYS),
        )
        self._is_ending = False

    # What the parts of the simulation call.

    def note(self, what: str) -> None:
        owner = OWNER.get()
        where = "world" if owner is None else owner.name
        self.trace.append(f"{self.loop.time():.6f} {where}: {what.replace(self.database, 'threadline.db')}")

    def fail(self, what: str) -> None:
        self.note(f"VIOLATION {what}")
        self.violations.append(what)

    def agents(self, process: SimulatedProcess) -> dict[str, Any]:
        return {AGENT: make_agent(self)}

    def plan(self, token: str) -> Plan:
        return self.questions[token].plan

    def note_prompt(self, token: str, shown: list[str]) -> None:
        question = self.questions[token]
        for other in map(self.questions.__getitem__, shown):
            if (other.person, other.state_key) != (question.person, question.state_key):
                self.fail(f"the agent was shown {other.token} when it answered {token}")

    def note_effect(self, tool: str, token: str, number: int) -> None:
        owner = OWNER.get()
        if owner is not None and owner.is_alive:
            self.note(f"{tool} {token} {number}")
            self.effects[tool, token, number] += 1

    async def any_process(self) -> SimulatedProcess:
        while True:
            ready = [process for process in self.processes if process.is_ready]
            if ready:
                return self.chance.choice(ready)
            await asyncio.sleep(0.05)

    # Faults.

    def _before_callback(self, owner: Owner) -> None:
        assert isinstance(owner, SimulatedProcess)
        faults = self.faults
        if faults.occurs(faults.rates.crash_per_callback):
            owner.crash("between two callbacks")
            self._after_crash(owner)
        elif faults.occurs(faults.rates.pause_per_callback):
            seconds = faults.pause_seconds()
            self.inject("pauses", f"{owner.name} pauses for {seconds:.3f} s")
            owner.paused_until = self.loop.time() + seconds
        elif faults.occurs(faults.rates.clock_jump_per_callback):
            offset = faults.clock_offset()
            self.inject("clock jumps", f"the clock of {owner.name} is set to {offset:+.3f} s")
            for process in (owner,) if self.has_own_clocks else self.processes:
                process.clock_offset = offset

    def _after_crash(self, owner: Owner) -> None:
        assert isinstance(owner, SimulatedProcess)
        self.inject("crashes", f"{owner.name} is gone")
        self.loop.drop(owner)
        owner.reap()

    def inject(self, kind: str, what: str) -> None:
        self.troubles += 1
        self.injected[kind] += 1
        self.note(what)

    # The run.

    async def run(self) -> None:
        await self._prepare()
        supervisors = [asyncio.create_task(self._supervise(slot)) for slot in range(self.chance.randint(1, 3))]
        self.questions = {question.token: question for question in draw_questions(self.chance, self.is_service)}
        asking = [asyncio.create_task(self._ask(question)) for question in self.questions.values()]
        asking += [asyncio.create_task(watch(self, each)) for each in self.questions.values() if each.is_watched]
        await asyncio.sleep(self.chance.uniform(30, 120))
        self._end_faults()
        deadline = self.loop.time() + _RECOVERY_SECONDS
        _, waiting = await asyncio.wait(asking, timeout=_RECOVERY_SECONDS)
        if waiting:
            self.fail(f"{len(waiting)} askers wait for ever")
        await self._wait_until_idle(deadline)
        await self._look_around()
        self._is_ending = True
        self.note("all processes are told to stop")
        for process in self.processes:
            process.stop()
        _, running = await asyncio.wait(supervisors, timeout=_RECOVERY_SECONDS)
        if running:
            self.fail("a process does not stop")

    async def _wait_until_idle(self, deadline: float) -> None:
        # Read again and again: the database does not notify readers outside the processes.
        while busy := checker.find_unfinished(self.database):
            if self.loop.time() > deadline:
                for each in busy:
                    self.fail(f"never finished: {each}")
                return
            await asyncio.sleep(1.0)

    async def _look_around(self) -> None:
        """Every person reads all they can, and the store checks itself."""
        for finding in await (await self.any_process()).call(lambda threadline: threadline.store.check()):
            self.fail(f"the store finds {finding}")
        for person in PEOPLE:
            for token in await (await self.any_process()).call(partial(read_everything, person)):
                if self.questions[token].person != person:
                    self.fail(f"{person.user_id} can read {token}")

    async def _prepare(self) -> None:
        """The people's links and the platform's credentials. Not part of what is tested: no faults."""
        rates, self.faults.is_active = self.faults.is_active, False
        process = SimulatedProcess(self, "setup", self._settings, 0.0, is_service=False)
        self.processes.append(process)
        await (await self.any_process()).call(_link_people)
        process.stop()
        await process.ended
        self.processes.remove(process)
        self.faults.is_active = rates

    async def _supervise(self, slot: int) -> None:
        life = 0
        while not self._is_ending:
            life += 1
            process = SimulatedProcess(
                self,
                f"p{slot}.{life}",
                self._settings,
                self._clock_offset(),
                is_service=self.is_service,
                runs_turns=slot == 0 or not self.has_roles,
            )
            self.processes.append(process)
            while not process.ended.done():
                await asyncio.wait((process.ended,), timeout=1.0)
                if self.faults.occurs(self.faults.rates.graceful_stop_per_second):
                    process.stop()
            self.processes.remove(process)
            await asyncio.sleep(self.chance.choice((0.0, 0.1, 3.0)))

    def _clock_offset(self) -> float:
        if self.has_own_clocks and self.faults.rates.clock_jump_per_callback:
            return self.faults.clock_offset()
        return self.processes[0].clock_offset if self.processes else 0.0

    def _end_faults(self) -> None:
        self.note("no more faults")
        self.faults.is_active = False
        for process in self.processes:
            process.paused_until = 0.0

    async def _ask(self, question: Question) -> None:
        await asyncio.sleep(question.asked_at)
        if question.chat is None:
            await ask_by_library(self, question)
        else:
            await write_in_chat(self, question, question.chat)


async def _link_people(threadline: Threadline) -> None:
    for platform, secrets in SECRETS.items():
        await threadline.messaging.credentials.put(Scope(TENANT, "root", "admin"), platform, secrets)
    session = threadline.store.scoped(system_scope(TENANT))
    for person in PEOPLE:
        for chat in person.chats:
            await session.put_link(chat.surface, chat.sender, person.user_id, "verified")


def simulate(seed: int, defect: Sequence[Replacement] = ()) -> Result:
    """One run. Uses no thread, no socket and no time but the loop's. `defect` replaces parts of the product."""
    with (
        machine.quiet_end(),
        tempfile.TemporaryDirectory(prefix="threadline-simulation-", dir=_fast_folder()) as folder,
    ):
        return _simulate(seed, str(Path(folder) / "threadline.db"), defect)


def _fast_folder() -> str | None:
    """A file system in memory, where there is one: the power never fails in a simulation."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _simulate(seed: int, database: str, defect: Sequence[Replacement]) -> Result:
    world = World(seed, database)
    attach = StatementFaults(world).attach
    replaced: list[Replacement] = [
        *defect,
        (platform_http, "PlatformHttp", lambda _: world.platform),
        (writer, "WriterThread", SimulatedWriterThread),
        # Nine steps in ten would be polls otherwise.
        (change_watch, "POLL_SECONDS", 0.5),
    ]
    apsw.connection_hooks.append(attach)
    try:
        with machine.logs_in_trace(world.note), machine.simulated_machine(world.loop, seed, replaced):
            _run_to_end(world, world.run())
    finally:
        apsw.connection_hooks.remove(attach)
        for process in world.processes:
            process.reap()
    checker.check(world)
    world.note(f"{world.loop.steps} steps")
    digest = hashlib.sha256("\n".join(world.trace).encode()).hexdigest()[:16]
    return Result(seed, world.loop.steps, world.loop.time(), world.violations, world.trace, digest, world.injected)


def _run_to_end(world: World, main: Coroutine[Any, Any, None]) -> None:
    try:
        world.loop.run(main)
    except NothingToRun:
        world.fail("everything waits for ever")
