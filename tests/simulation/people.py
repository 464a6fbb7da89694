"""Who uses the simulated processes: people on a messaging platform, and programs that ask through the library.

Both behave like the real ones. A platform repeats a webhook until it is acknowledged. A program repeats its question,
at once and with the same key, in any process that is up, until it has an answer.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Protocol

from tests.simulation.agent import TOKEN
from tests.simulation.event_loop import SimulatedLoop
from tests.simulation.faults import Faults
from tests.simulation.machine import START
from tests.simulation.platform import webhook
from tests.simulation.processes import ProcessGone, SimulatedProcess
from tests.simulation.questions import AGENT, TENANT, Chat, ChatSurface, Person, Question
from threadline.bootstrap import Threadline
from threadline.core.errors import AgentFailed, NoWorker, StoreFailed, TurnRunning
from threadline.core.events import Failure, Restart, TextDelta
from threadline.core.ids import new_id
from threadline.library import ThreadHandle


class World(Protocol):
    loop: SimulatedLoop
    faults: Faults

    def note(self, what: str) -> None: ...

    def fail(self, what: str) -> None: ...

    async def any_process(self) -> SimulatedProcess: ...


async def write_in_chat(world: World, question: Question, chat: Chat) -> None:
    """A person writes; the platform delivers it, perhaps twice."""
    sent_at = world.loop.time()
    copies = 2 if world.faults.occurs(world.faults.rates.duplicate_delivery) else 1
    async with asyncio.TaskGroup() as group:
        for copy in range(copies):
            group.create_task(_deliver(world, question, chat, sent_at, delay=copy * world.loop.chance.uniform(0, 40)))


async def _deliver(world: World, question: Question, chat: Chat, sent_at: float, delay: float) -> None:
    body = webhook(chat, question.number, f"{question.token} please", START.timestamp() + sent_at)
    await asyncio.sleep(delay + world.loop.chance.uniform(0, 0.5))
    while True:
        process = await world.any_process()
        try:
            decisions = await process.call(partial(_receive, chat.surface, body))
        except (ProcessGone, StoreFailed, NoWorker) as exc:
            world.note(f"webhook of {question.token} fails in {process.name}: {type(exc).__name__}")
            await asyncio.sleep(world.loop.chance.choice((0.0, 0.1, 5.0)))
            continue
        if not set(decisions) <= {"accepted", "duplicate"}:
            world.fail(f"{question.token} was received as {decisions}")
        question.is_acknowledged = True
        world.note(f"{question.token} acknowledged by {process.name}: {decisions}")
        return


async def _receive(surface: ChatSurface, body: bytes, threadline: Threadline) -> list[str]:
    """As the webhook's route does."""
    delivery = threadline.messaging.codecs[surface].parse_webhook(body)
    inbox = threadline.inbox
    return [(await inbox.receive(TENANT, arrival, new_id())).decision for arrival in delivery.arrivals]


async def ask_by_library(world: World, question: Question) -> None:
    """A program asks until it has the answer or knows that there is none."""
    while True:
        process = await world.any_process()
        try:
            answer = await process.call(partial(_ask, world, question))
        except (ProcessGone, StoreFailed, NoWorker, TurnRunning) as exc:
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
    if not question.turn_id.done():
        question.turn_id.set_result(turn.id)
    if question.stop_after is not None:
        asyncio.create_task(_stop(question.stop_after, thread, turn.id))  # noqa: RUF006 - the simulation keeps it
    return (await reply).text


async def _stop(seconds: float, thread: ThreadHandle, turn_id: str) -> None:
    await asyncio.sleep(seconds)
    try:
        await thread.stop(turn_id)
    except StoreFailed:
        return


async def watch(world: World, question: Question) -> None:
    """Another caller reads the stream of the turn, from its beginning, in any process."""
    turn_id = await question.turn_id
    while True:
        process = await world.any_process()
        try:
            shown = await process.call(partial(_read_stream, question, turn_id))
        except (ProcessGone, StoreFailed):
            await asyncio.sleep(world.loop.chance.choice((0.0, 1.0)))
            continue
        world.note(f"{question.token} was shown as {shown!r} in {process.name}")
        if shown is not None:
            question.shown.append(shown)
        return


async def _read_stream(question: Question, turn_id: str, threadline: Threadline) -> str | None:
    """The text that the events add up to; a restart discards what came before. None if the turn failed: an interrupted
    one may continue when its question is repeated."""
    view = threadline.as_user(question.person.user_id, tenant=TENANT)
    shown: list[str] = []
    async for event in view.reply(turn_id):
        match event:
            case TextDelta(text=text):
                shown.append(text)
            case Restart():
                shown.clear()
            case Failure():
                return None
    return "".join(shown)


async def read_everything(person: Person, threadline: Threadline) -> list[str]:
    """The tokens of everything that a person can list, read and find."""
    view = threadline.as_user(person.user_id, tenant=TENANT)
    found = [hit.snippet for hit in await view.search("please", limit=100)]
    for thread in (await view.threads(limit=100)).items:
        found += [message.text for message in await (await view.thread(thread.id)).messages()]
    return TOKEN.findall(" ".join(found))
