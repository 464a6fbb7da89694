"""The bot, put together: on an open Threadline, or on a service elsewhere and a book of its own."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from threadline.bootstrap import Threadline
from threadline.core.threads import system_scope
from threadline.matrix.bindings import SURFACE, Book
from threadline.matrix.bot import Bot
from threadline.matrix.commands import Commands
from threadline.matrix.device import DeviceFolder
from threadline.matrix.event_handler import Hearing
from threadline.matrix.homeserver import Homeserver
from threadline.matrix.invites import Inviting
from threadline.matrix.links import Linking, Welcoming
from threadline.matrix.people import People, Person
from threadline.matrix.room_factory import RoomMaker
from threadline.matrix.room_reconciler import Reconciling
from threadline.matrix.rooms import Rooms
from threadline.matrix.sync_cursor import Tracking
from threadline.messaging.chat_contexts import ChatContexts
from threadline.messaging.identities import StoredIdentities
from threadline.ports import Clock, Identities
from threadline.settings import MatrixSettings, default_matrix_folder


class Ground(NamedTuple):
    """What a bot stands on. `sweep` is done now and then; `agent_id` is who answers, where that is known here."""

    book: Book
    clock: Clock
    identities: Identities
    platform: Callable[[Person], ChatContexts]
    sweep: Callable[[], Awaitable[object]]
    agent_id: str | None


def build_bot(threadline: Threadline) -> Bot:
    """A bot in the process and on the database of the threads. SettingsInvalid if the section [matrix] does not say
    enough."""
    settings = threadline.settings
    house = system_scope(settings.tenant)
    ground = Ground(
        book=Book(threadline.store, threadline.sealer, settings.tenant),
        clock=threadline.clock,
        identities=StoredIdentities(threadline.store, threadline.messaging.links, settings.tenant, SURFACE),
        platform=lambda person: threadline.chat_contexts(person.scope, SURFACE),
        sweep=lambda: threadline.recovery.recover(house),
        agent_id=settings.agent,
    )
    return build_bot_on(ground, folder_of(settings.matrix), settings.matrix)


def folder_of(settings: MatrixSettings) -> DeviceFolder:
    return DeviceFolder(Path(settings.folder) if settings.folder else default_matrix_folder(os.environ))


def build_bot_on(ground: Ground, folder: DeviceFolder, settings: MatrixSettings) -> Bot:
    book, clock, identities, platform, sweep, agent_id = ground
    homeserver = Homeserver(settings, folder)
    people = People(identities, settings)
    rooms = Rooms(book, homeserver, platform, agent_id)
    maker = RoomMaker(book, homeserver, settings, rooms, platform)
    welcoming = Welcoming(maker)
    linking = Linking(identities, people, welcoming, settings)
    commands = Commands(rooms, maker, homeserver, linking, platform, clock)
    hearing = Hearing(book, homeserver, people, rooms, commands, linking, platform, settings.edit_seconds)
    return Bot(
        folder,
        homeserver,
        hearing,
        Inviting(homeserver, people, welcoming, hearing),
        Reconciling(book, homeserver, people, rooms, platform),
        Tracking(folder),
        sweep,
        settings,
    )
