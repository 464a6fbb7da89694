"""What is asked in a run: by whom, where, when, and what the agent does with it."""

from __future__ import annotations

import asyncio
import random
from typing import Literal, NamedTuple, TypeAlias

from tests.simulation.agent import Plan
from threadline.core.turns import Policy
from threadline.messaging.home_threads import home_key

TENANT = "sim"
AGENT = "planner"
HOME_KEY = home_key(AGENT)
OWN_KEY = "own"

ChatSurface: TypeAlias = Literal["telegram", "slack"]
Surface: TypeAlias = Literal["telegram", "slack", "api"]


class Chat(NamedTuple):
    """A person's private conversation with the bot on one platform."""

    surface: ChatSurface
    address: str

    @property
    def sender(self) -> str:
        """The person's account: Slack names it in the conversation, Telegram uses one number for both."""
        return self.address.removeprefix("D")


class Person(NamedTuple):
    user_id: str
    number: int

    def chat(self, surface: ChatSurface) -> Chat:
        return Chat(surface, f"DU{self.number}" if surface == "slack" else str(self.number))

    @property
    def chats(self) -> tuple[Chat, Chat]:
        return self.chat("telegram"), self.chat("slack")


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
        self.asked_at = 0.0
        self.policy: Policy = "queue"
        self.stop_after: float | None = None
        self.is_watched = False
        """Whether another caller reads the stream of its turn, in any process."""
        self.is_acknowledged = False
        """Whether its sender was told that it is stored."""
        self.answers: list[str] = []
        """What callers got: the reply's text."""
        self.failures: list[str] = []
        self.shown: list[str] = []
        """What readers of its stream got."""
        self.turn_id: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def chat(self) -> Chat | None:
        """Where it was written; None if a program asked it."""
        return None if self.surface == "api" else self.person.chat(self.surface)


def draw_questions(chance: random.Random, has_platform: bool) -> list[Question]:
    people = PEOPLE[: chance.randint(1, len(PEOPLE))]
    period = chance.choice((1.0, 20.0, 60.0))
    return [_draw(chance, number, people, period, has_platform) for number in range(1, chance.randint(4, 16))]


def _draw(
    chance: random.Random, number: int, people: tuple[Person, ...], period: float, has_platform: bool
) -> Question:
    plan = Plan(
        calls=tuple(chance.choice(("pay", "look")) for _ in range(chance.choice((0, 0, 1, 2)))),
        think_seconds=chance.choice((0.0, 0.05, 1.0, 20.0)),
        failure=chance.choice((None, None, None, None, "refusal", "fault")),
    )
    surfaces: tuple[Surface, ...] = ("telegram", "slack", "api", "api")
    surface = chance.choice(surfaces) if has_platform else "api"
    state_key = HOME_KEY if surface != "api" else chance.choice((HOME_KEY, OWN_KEY))
    question = Question(number, chance.choice(people), surface, state_key, plan)
    question.asked_at = chance.uniform(0, period)
    if surface == "api":
        question.policy = chance.choice(("queue", "queue", "queue", "reject", "interrupt"))
        question.stop_after = chance.choice((None, None, None, chance.uniform(0, 20)))
        question.is_watched = chance.random() < 0.3
    return question
