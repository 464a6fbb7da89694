"""The home thread: the one thread of a user that all their private chats on platforms continue.

A user chooses any of their threads; it is stored as a binding of its own. Until they choose, it is the thread under a
state key that is made from an agent's name. Private places that continue the home thread move with it when another is
chosen. Shared places never do: a reply there must not use private messages.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from threadline.core.channel_settings import ChannelsSettings
from threadline.core.channels import Binding
from threadline.core.errors import Conflict, NotFound
from threadline.core.ids import new_id
from threadline.core.threads import NewThread, Thread
from threadline.core.turn_commits import HomeClaim
from threadline.core.turns import Surface
from threadline.ports import Transaction

# No platform delivers messages of this surface, so the place cannot be one of theirs.
HOME_SURFACE: Surface = "web"
_PLAIN = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)


def home_key(agent_id: str) -> str:
    """The state key of the home thread for an agent."""
    name = agent_id if _PLAIN.fullmatch(agent_id) else hashlib.sha256(agent_id.encode()).hexdigest()[:32]
    return f"home-{name}"


def home_place(owner_id: str) -> str:
    """How bindings spell the user's choice of a home thread."""
    return f"home {owner_id}"


def is_home(binding: Binding) -> bool:
    """Whether it is a user's choice of a home thread, and no place."""
    return binding.surface == HOME_SURFACE


def is_private_place(binding: Binding) -> bool:
    """Whether only the user and the bot read the place. Rooms are not private: each has a thread of its own."""
    match binding.surface:
        case "slack":
            return binding.place.startswith("D")
        case "telegram":
            return not binding.place.startswith("-")
        case "whatsapp":
            return True
    return False


def _is_read_by_others(binding: Binding) -> bool:
    match binding.surface:
        case "slack" | "telegram" | "whatsapp":
            return not is_private_place(binding)
        case "matrix":
            # A shared room is bound without a user.
            return " " not in binding.place
    return False


class HomeThreads:
    """`agents` are those of the platforms, the default one first. With `is_per_agent`, a user who has chosen no home
    thread has one for each agent."""

    def __init__(self, agents: Iterable[str], *, is_per_agent: bool = False) -> None:
        self._agents = tuple(dict.fromkeys(agents))
        self._is_per_agent = is_per_agent

    @classmethod
    def of(cls, settings: ChannelsSettings, default_agent: str) -> HomeThreads:
        named = (settings.slack.agent, settings.telegram.agent, settings.whatsapp.agent)
        agents = (default_agent, *(agent for agent in named if agent is not None))
        return cls(agents, is_per_agent=settings.home == "agent")

    async def chosen(self, tx: Transaction) -> Thread | None:
        """The thread that the user chose, unless it is deleted."""
        binding = await tx.binding(HOME_SURFACE, home_place(tx.scope.user_id))
        return None if binding is None else await tx.thread(binding.thread_id)

    async def find(self, tx: Transaction, agent_id: str | None = None) -> Thread | None:
        """The home thread for messages to this agent (default: to the first); None if there is none yet."""
        if (chosen := await self.chosen(tx)) is not None:
            return chosen
        for key in self._keys(agent_id):
            if (found := await tx.thread_by_key(key)) is not None:
                return found
        return None

    async def open(self, tx: Transaction, agent_id: str) -> Thread:
        """The same; created if there is none. In one transaction: of several callers one creates it."""
        found = await self.find(tx, agent_id)
        key = self._keys(agent_id)[0]
        return found or await tx.create_thread(NewThread(id=new_id(), state_key=key, agent_id=agent_id))

    async def choose(self, tx: Transaction, thread_id: str) -> Thread:
        """Makes it the home thread; the private places that continued another home thread continue this one. NotFound;
        Conflict if others read a place that continues it."""
        thread = await tx.thread(thread_id)
        if thread is None:
            raise NotFound("thread", thread_id)
        for binding in await tx.bindings(thread_id=thread.id):
            if _is_read_by_others(binding):
                place = binding.label or binding.place.partition(" ")[0]
                raise Conflict(
                    f"this thread is continued in {place} on {binding.surface}, where others read what you would write "
                    "in private: branch it, and make the branch your home thread"
                )
        homes = {home.id for home in [await self.chosen(tx)] if home is not None}
        for agent_id in self._agents:
            if (home := await tx.thread_by_key(home_key(agent_id))) is not None:
                homes.add(home.id)
        for binding in await tx.bindings():
            if binding.thread_id in homes and is_private_place(binding):
                await tx.bind(binding.surface, binding.place, thread.id)
        await tx.bind(HOME_SURFACE, home_place(tx.scope.user_id), thread.id)
        return thread

    def claim(self, owner_id: str, agent_id: str) -> HomeClaim:
        """The same for a store, which finds the thread in the commit that stores a message."""
        return HomeClaim(home_place(owner_id), tuple(self._keys(agent_id)))

    def _keys(self, agent_id: str | None) -> list[str]:
        """The state keys under which the home thread may be; a new one gets the first."""
        if self._is_per_agent:
            return [home_key(agent_id or self._agents[0])]
        agents = self._agents if agent_id is None else (*self._agents, agent_id)
        return list(dict.fromkeys(map(home_key, agents)))
