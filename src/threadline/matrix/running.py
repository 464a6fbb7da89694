"""The bot, put together on an open Threadline."""

from __future__ import annotations

import os
from pathlib import Path

from threadline.bootstrap import Threadline
from threadline.matrix.bot import Bot
from threadline.matrix.commands import Commands
from threadline.matrix.device import DeviceFolder
from threadline.matrix.hearing import Hearing
from threadline.matrix.homeserver import Homeserver
from threadline.matrix.inviting import Inviting
from threadline.matrix.linking import Linking, Welcoming
from threadline.matrix.making import RoomMaker
from threadline.matrix.people import People, Person
from threadline.matrix.reconciling import Reconciling
from threadline.matrix.rooms import SURFACE, Rooms
from threadline.matrix.tracking import Tracking
from threadline.ports import Platform
from threadline.settings import default_matrix_folder


def build_bot(threadline: Threadline) -> Bot:
    """SettingsInvalid if the section [matrix] does not say enough."""
    settings, tenant_id = threadline.settings.matrix, threadline.settings.tenant
    store, sealer, clock = threadline.store, threadline.sealer, threadline.clock

    def platform(person: Person) -> Platform:
        return threadline.platform(person.scope, SURFACE)

    folder = DeviceFolder(Path(settings.folder) if settings.folder else default_matrix_folder(os.environ))
    homeserver = Homeserver(settings, folder)
    people = People(store, tenant_id, settings)
    rooms = Rooms(store, sealer, homeserver, platform, threadline.settings.agent)
    maker = RoomMaker(store, sealer, homeserver, settings, rooms, platform)
    welcoming = Welcoming(maker)
    linking = Linking(store, tenant_id, threadline.messaging.links, people, welcoming, settings)
    commands = Commands(rooms, maker, homeserver, linking, platform, clock)
    hearing = Hearing(store, tenant_id, homeserver, people, rooms, commands, linking, platform, settings.edit_seconds)
    return Bot(
        folder,
        homeserver,
        hearing,
        Inviting(homeserver, people, welcoming, hearing),
        Reconciling(store, sealer, tenant_id, homeserver, people, rooms, platform),
        Tracking(folder),
        threadline.recovery,
        tenant_id,
        settings,
    )
