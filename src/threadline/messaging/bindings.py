"""Bindings: which thread a place (chat, channel, room) of a messaging platform continues.

A user's private places share the home thread (`home_threads`) until a command binds one of them to another thread. In a
shared place a reply must not use private messages: there the user has a thread for that place alone. Several users of a
channel must not read each other's threads, so a place is bound separately for each user.
"""

from __future__ import annotations

from typing import NamedTuple

from threadline.core.channels import Binding
from threadline.core.ids import new_id, new_state_key
from threadline.core.platform_messages import Arrival
from threadline.core.threads import NewThread, Thread
from threadline.core.turns import Surface
from threadline.messaging.home_threads import HomeThreads
from threadline.ports import Transaction


class CurrentThread(NamedTuple):
    """A user's place and its thread."""

    binding: Binding
    thread: Thread


def bound_place(place: str, owner_id: str) -> str:
    """How bindings spell a place of one user."""
    return f"{place} {owner_id}"


def place_of(arrival: Arrival, owner_id: str) -> str:
    """How the binding spells the place of an arrival: a place that everyone shares is bound without a user."""
    return bound_place(arrival.place, owner_id) if arrival.author is None else arrival.place


async def new_thread_for(tx: Transaction, agent_id: str | None, title: str | None) -> Thread:
    """A new, empty thread that is not the home thread."""
    new = NewThread(
        id=new_id(), state_key=new_state_key(), title=title, title_by_person=title is not None, agent_id=agent_id
    )
    return await tx.create_thread(new)


async def current_thread(
    tx: Transaction, surface: Surface, place: str, agent_id: str, homes: HomeThreads, *, is_shared: bool
) -> CurrentThread:
    """The place's binding and thread. A private place without a thread, or whose thread is deleted, is bound to the
    home thread; a shared one gets a thread of its own."""
    binding = await tx.binding(surface, place)
    thread = None if binding is None else await tx.thread(binding.thread_id)
    if binding is None or thread is None:
        thread = await (new_thread_for(tx, agent_id, None) if is_shared else homes.open(tx, agent_id))
        binding = await tx.bind(surface, place, thread.id)
    return CurrentThread(binding, thread)
