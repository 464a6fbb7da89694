"""Who uses the simulated processes: people on a messaging platform, and programs that ask through the library.

Both behave like the real ones. A platform repeats a webhook until it is acknowledged. A program repeats its question,
at once and with the same key, in any process that is up, until it has an answer.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Literal, NamedTuple, Protocol, TypeAlias

from tests.simulation.agent import Plan
from tests.simulation.event_loop import SimulatedLoop
from tests.simulation.faults import Faults
from tests.simulation.platform import update
from tests.simulation.processes import ProcessGone, SimulatedProcess
from threadline.bootstrap import Threadline
from threadline.core.errors import AgentFailed, StoreFailed, TurnRunning
from threadline.core.ids import new_id
from threadline.core.turns import Policy
from threadline.library import ThreadHandle
from threadline.messaging.bindings import home_key

TENANT = "sim"
AGENT = "planner"
HOME_KEY = home_key(AGENT)
OWN_KEY = "own"

Surface: TypeAlias = Literal["telegram", "api"]


class Person(NamedTuple):
    user_id: str
    chat: int


PEOPLE = (Person("alice", 1001), Person("bob", 1002), Person("carol", 1003))


class Question:
    """One question, and what its asker knows of it."""

    def __init__(self, number: int, person: Person, surface: Surface, state_key: str, plan: Plan) -> None:
        self.number = number
        self.token = f"q{number}"
        self.person = person
        self.surface = surface
        self.state_key = state_key
        """The thread that it belongs to: chats continue the home thread."""
        self.plan = plan
        self.policy: Policy = "queue"
        self.stop_after: float | None = None
        self.is_acknowledged = False
        """Whether somebody was told that it is stored."""
        self.answers: list[str] = []
        """What callers got: the reply's text."""
        self.failures: list[str] = []


class World(Protocol):
    loop: SimulatedLoop
    faults: Faults

    def note(self, what: str) -> None: ...

    def fail(self, what: str) -> None: ...

    async def any_process(self) -> SimulatedProcess: ...


async def write_in_chat(world: World, question: Question) -> None:
    """A person writes; the platform delivers it, perhaps twice."""
    sent_at = world.loop.time()
    copies = 2 if world.faults.occurs(world.faults.rates.duplicate_delivery) else 1
    async with asyncio.TaskGroup() as group:
        for copy in range(copies):
            group.create_task(_deliver(world, question, sent_at, delay=copy * world.loop.chance.uniform(0, 40)))


async def _deliver(world: World, question: Question, sent_at: float, delay: float) -> None:
    body = update(question.number, question.person.chat, f"{question.token} please", 1767268800 + sent_at)
    await asyncio.sleep(delay + world.loop.chance.uniform(0, 0.5))
    while True:
        process = await world.any_process()
        try:
            decisions = await process.call(partial(_receive, body))
        except (ProcessGone, StoreFailed) as exc:
            world.note(f"webhook of {question.token} fails in {process.name}: {type(exc).__name__}")
            await asyncio.sleep(world.loop.chance.choice((0.0, 0.1, 5.0)))
            continue
        if not set(decisions) <= {"accepted", "duplicate"}:
            world.fail(f"{question.token} was received as {decisions}")
        question.is_acknowledged = True
        world.note(f"{question.token} acknowledged by {process.name}: {decisions}")
        return


async def _receive(body: bytes, threadline: Threadline) -> list[str]:
    """As the webhook's route does."""
    delivery = threadline.messaging.codecs["telegram"].parse_webhook(body)
    inbox = threadline.inbox
    return [(await inbox.receive(TENANT, arrival, new_id())).decision for arrival in delivery.arrivals]


async def ask_by_library(world: World, question: Question) -> None:
    """A program asks until it has the answer or knows that there is none."""
    while True:
        process = await world.any_process()
        try:
            answer = await process.call(partial(_ask, world, question))
        except (ProcessGone, StoreFailed, TurnRunning) as exc:
            world.note(f"asking {question.token} in {process.name} fails: {type(exc).__name__}")
            await asyncio.sleep(world.loop.chance.choice((0.0, 0.0, 0.5)) if not isinstance(exc, TurnRunning) else 1.0)
            continue
        except AgentFailed as exc:
            question.failures.append(str(exc))
            world.note(f"asking {question.token} in {process.name} fails: {exc}")
            return
        question.answers.append(answer)
        world.note(f"{question.token} answered in {process.name}: {answer!r}")
        return


async def _ask(world: World, question: Question, threadline: Threadline) -> str:
    view = threadline.as_user(question.person.user_id, tenant=TENANT)
    thread = await view.open_thread(question.state_key, agent_id=AGENT)
    reply = thread.ask(f"{question.token} please", key=question.token, policy=question.policy)
    turn = await reply.accept()
    question.is_acknowledged = True
    world.note(f"{question.token} accepted as {turn.status}")
    if question.stop_after is not None:
        asyncio.create_task(_stop(question.stop_after, thread, turn.id))  # noqa: RUF006 - the simulation keeps it
    return (await reply).text


async def _stop(seconds: float, thread: ThreadHandle, turn_id: str) -> None:
    await asyncio.sleep(seconds)
    try:
        await thread.stop(turn_id)
    except StoreFailed:
        return
