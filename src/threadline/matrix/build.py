"""Builds the bot: on an open Threadline in this process, or for a service elsewhere."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from threadline.bootstrap import Threadline
from threadline.client import Client
from threadline.core.errors import ImpersonationRefused, RoleRefused
from threadline.matrix.bot import Bot
from threadline.matrix.bridge import Bridge, LocalBridge, RemoteBridge
from threadline.matrix.device import DeviceFolder
from threadline.matrix.encryption import Encryption
from threadline.matrix.homeserver import Homeserver, retry_until_up
from threadline.settings import MatrixSettings, Settings, default_matrix_folder


def build_bot(threadline: Threadline) -> Bot:
    """A bot in the process that holds the threads. SettingsInvalid if the section [matrix] is incomplete."""
    settings = threadline.settings.matrix
    folder = _device_folder(settings)
    return _build(LocalBridge(threadline, settings, folder.worker_id()), folder, settings)


@asynccontextmanager
async def remote_bot(client: Client, settings: Settings) -> AsyncIterator[Bot]:
    """A bot for a service elsewhere. TokenRefused; ImpersonationRefused for a token of one user; SettingsInvalid if the
    section [matrix] is incomplete."""
    folder = _device_folder(settings.matrix)
    bridge = RemoteBridge(client, settings.matrix, folder.worker_id())
    bot = _build(bridge, folder, settings.matrix)
    await _check_token(bridge)
    yield bot


async def _check_token(bridge: Bridge) -> None:
    """Before the bot listens: a token that may not act for users would lose messages later."""
    try:
        await retry_until_up(bridge.rooms)
    except (ImpersonationRefused, RoleRefused) as exc:
        raise ImpersonationRefused("this token is for one user: create one with `--acts-for-users`") from exc


async def set_up_encryption(settings: MatrixSettings, *, recovery_key: str | None, reset: bool) -> str:
    """Cross-signs the bot's device; with a recovery key, with the keys of the account's secret storage. What was done,
    in a sentence. SettingsInvalid, InvalidInput, EncryptionIncomplete, HomeserverRefused, HomeserverAway."""
    folder = _device_folder(settings)
    with folder.locked():
        homeserver = Homeserver(settings, folder)
        encryption = Encryption(homeserver, folder)
        try:
            await homeserver.log_in()
            if recovery_key is not None:
                count = await encryption.recover(recovery_key)
                return f"signed the device {homeserver.device_id} and imported {count} message keys from the backup"
            await (encryption.reset if reset else encryption.set_up)(settings.password)
        finally:
            await homeserver.close()
    keys = folder.cross_signing()
    assert keys is not None  # `set_up` and `reset` write it
    return f"signed the device {homeserver.device_id}. Recovery key (store it in a safe place): {keys.recovery_key}"


def _device_folder(settings: MatrixSettings) -> DeviceFolder:
    return DeviceFolder(Path(settings.folder) if settings.folder else default_matrix_folder(os.environ))


def _build(bridge: Bridge, folder: DeviceFolder, settings: MatrixSettings) -> Bot:
    return Bot(folder, Homeserver(settings, folder), bridge, settings)
