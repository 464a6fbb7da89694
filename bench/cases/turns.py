"""Whole turns through the library: what accept, run and finish add to their commits, and how streams fan out.

The agents answer at once, so that what is left is Threadline's own; masking is on, as it is by default.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module

import threadline
from bench.arena import Arena
from bench.budgets import FAN_OUT, FIRST_EVENT, OURS, PROMPT, TURN
from bench.cases.references import BARE_COMMIT, BARE_COMMITS, open_bare
from bench.contenders.ours import ThreadlineLibrary, place_for_ours
from bench.measure import Operation, Samples, interleave
from bench.results import Row, timing, timings
from bench.workload import MESSAGES_PER_TURN, turns
from threadline.core.events import Event, TextDelta
from threadline.core.prompts import Prompt
from threadline.core.turns import Surface
from threadline.ports import AgentServices
from threadline.turns.acceptance import TurnRequest

EVENTS = 1_000
SUBSCRIBERS = (1, 10, 100)


class Instant:
    """An agent that needs no time: what is measured is everything around it."""

    def __init__(self, text: str) -> None:
        self._text = text

    async def run(self, prompt: Prompt, services: AgentServices) -> AsyncIterator[Event]:
        yield TextDelta(self._text)


class Chatty:
    """An agent that says a word at a time, and lets others run between two words as any real one does."""

    async def run(self, prompt: Prompt, services: AgentServices) -> AsyncIterator[Event]:
        for number in range(EVENTS):
            yield TextDelta(f"word {number} ")
            await asyncio.sleep(0)


async def whole_turn(arena: Arena) -> list[Row]:
    """A question asked and its reply awaited with an agent that answers at once, in a thread of 100 messages, against
    the two bare commits that no design can save. What is above them is the price of leases, streams and recovery."""
    history = turns(50)
    bare = await open_bare(arena)
    in_bare = await bare.start(history)
    feed = itertools.cycle(history)
    async with _opened(arena) as opened:
        # In turns, so that the threads stay about as long as they were: a prompt shows all of them.
        threads = itertools.cycle([await _filled(opened, 100) for _ in range(arena.sized(20, 5))])
        operations: dict[str, Operation] = {
            BARE_COMMITS: lambda: bare.exchange(in_bare, next(feed)),
            OURS: lambda: _ask(next(threads), next(feed).question),
        }
        if arena.backend == "sqlite":
            runner = import_module("bench.contenders.openai_runner").AgentsRunner(
                arena.file("agents"), history[0].answer
            )
            await runner.start(history)
            operations["OpenAI Agents runner and SQLiteSession"] = lambda: runner.ask(next(feed).question)
        rounds, repeats, rest = arena.sized(40, 10), arena.sized(10, 5), {OURS: opened.store.index_pending}
        taken = await interleave(operations, rounds=rounds, repeats=repeats, warmup=3, afterwards=rest)
    await bare.close()
    return timings(TURN, taken, reference=BARE_COMMITS)


async def first_event(arena: Arena) -> list[Row]:
    """From the question to the first event that a reader sees, against the one commit that must come before it.
    A person who waits sees this time; after the request is safe, no disk may stand between agent and reader."""
    history = turns(50)
    bare = await open_bare(arena)
    in_bare = await bare.start(history)
    async with _opened(arena) as opened:
        thread = await _filled(opened, 100)
        taken: dict[str, list[list[float]]] = {BARE_COMMIT: [], OURS: []}
        for turn in itertools.islice(itertools.cycle(history), arena.sized(300, 60)):
            clock = asyncio.get_running_loop().time
            started = clock()
            await bare.append_question(in_bare, turn)
            taken[BARE_COMMIT].append([clock() - started])
            started = clock()
            reply = thread.ask(turn.question, agent="instant")
            events = aiter(reply)
            await anext(events)
            taken[OURS].append([clock() - started])
            await reply.ended()
    await bare.close()
    samples = {name: Samples(rounds) for name, rounds in taken.items()}
    return timings(FIRST_EVENT, samples, reference=BARE_COMMIT)


async def fan_out(arena: Arena) -> list[Row]:
    """A reply of 1,000 events read by 1, 10 and 100 subscribers at once: events delivered in a second.
    Several tabs, devices and colleagues may watch one turn; they must not slow it, nor each other."""
    rows: list[Row] = []
    async with _opened(arena) as opened:
        thread = await _filled(opened, 10)
        for subscribers in SUBSCRIBERS:
            seconds = [await _watched(opened, thread, subscribers) for _ in range(1 + arena.sized(5, 2))][1:]
            samples = Samples([[each] for each in seconds])
            delivered = EVENTS * subscribers
            at = f"{subscribers} subscribers" if subscribers > 1 else "1 subscriber"
            rate, best = delivered / samples.median, delivered / samples.best
            rows.append(Row(FAN_OUT.name, OURS, "events/s", rate, at=at, best=best, samples=len(samples)))
    return rows


async def prompts(arena: Arena) -> list[Row]:
    """The prompt of a turn, assembled in threads of 10 to 100,000 messages, for a channel's window of 12 turns and for
    the larger one of the web. What is shown has a limit, so the time to gather it must have one too."""
    rows: list[Row] = []
    async with _opened(arena) as opened:
        threads = {length: await _filled(opened, length) for length in (10, 1_000, arena.sized(100_000, 10_000))}
        surfaces: tuple[Surface, ...] = ("slack", "web")
        for surface in surfaces:
            operations = {
                f"{length:,} messages": await _prompting(opened, thread, surface) for length, thread in threads.items()
            }
            await arena.settle()
            taken = await interleave(operations, rounds=arena.sized(20, 8), repeats=5)
            # The first is shorter than any window; from the second on it has to be flat.
            middle = list(taken)[1]
            rows += [
                timing(PROMPT, OURS, samples, at=f"{at}, {surface}", against=(middle, taken[middle]))
                for at, samples in taken.items()
            ]
    return rows


@asynccontextmanager
async def _opened(arena: Arena) -> AsyncIterator[threadline.Threadline]:
    agents = {"instant": Instant(turns(1)[0].answer), "chatty": Chatty()}
    async with threadline.open(await place_for_ours(arena), agents=agents) as opened:
        yield opened


async def _filled(opened: threadline.Threadline, messages: int) -> threadline.ThreadHandle:
    ours = ThreadlineLibrary(opened)
    filling = list(itertools.islice(itertools.cycle(turns(1_000)), messages // MESSAGES_PER_TURN))
    return ours.thread(await ours.start(filling))


async def _ask(thread: threadline.ThreadHandle, question: str) -> object:
    return await thread.ask(question, agent="instant")


async def _watched(opened: threadline.Threadline, thread: threadline.ThreadHandle, subscribers: int) -> float:
    scope = opened.as_user("ada", tenant="bench").scope
    clock = asyncio.get_running_loop().time
    started = clock()
    reply = thread.ask("Say a thousand words.", agent="chatty")
    turn_id = (await reply.accept()).id
    counts = await asyncio.gather(*(_count(opened, scope, turn_id) for _ in range(subscribers)))
    seconds = clock() - started
    await reply.ended()
    if set(counts) != {EVENTS}:
        raise RuntimeError(f"subscribers saw {sorted(set(counts))} of {EVENTS} events")
    return seconds


async def _count(opened: threadline.Threadline, scope: threadline.Scope, turn_id: str) -> int:
    count = 0
    async for streamed in opened.streams.read(scope, turn_id):
        count += isinstance(streamed.event, TextDelta)
    return count


async def _prompting(opened: threadline.Threadline, thread: threadline.ThreadHandle, surface: Surface) -> Operation:
    scope = opened.as_user("ada", tenant="bench").scope
    request = TurnRequest(message=threadline.user("And now?"), surface=surface, thread_id=thread.id, policy="queue")
    accepted = await opened.turns.accept(scope, request)
    return partial(opened.prompts.prompt, scope, accepted.turn, accepted.thread, None)
