"""One service with two chat-context façades: in process, and over HTTP with an impersonation token."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

import msgspec

from tests.client.conftest import IMPATIENT
from tests.service.conftest import SERVICE
from tests.service.running_service import serving
from tests.service.token_clients import token_for
from threadline.bootstrap import Threadline
from threadline.client import Client, connect
from threadline.core.threads import Scope
from threadline.messaging.chat_contexts import ChatContexts
from threadline.settings import GuardSettings, Settings

ASKING = Settings(
    database=":memory:",
    agent="scripted",
    service=msgspec.structs.replace(SERVICE, authentication=True),
    guard=GuardSettings(patterns=("forbidden",), message="Not that"),
)

PlatformOf: TypeAlias = Callable[[str], ChatContexts]
"""The port of a user."""


def in_process(threadline: Threadline) -> PlatformOf:
    return lambda user_id: threadline.chat_contexts(Scope("local", user_id), "matrix")


def over_http(client: Client) -> PlatformOf:
    return lambda user_id: ChatContexts(client.acting_for(user_id, surface="matrix"))


@asynccontextmanager
async def acting_client(threadline: Threadline) -> AsyncIterator[Client]:
    """A client whose token acts for users."""
    async with serving(threadline) as service:
        token = await token_for(threadline, "bot", acts_for_users=True)
        async with connect(service.url, token=token, retry=IMPATIENT) as client:
            yield client
