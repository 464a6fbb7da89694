"""What a simulation plays on: stand-ins for the platforms, and a service that takes them for the real ones.

The service is one of its own, in this process, or one that runs already and was told where the stand-ins are. Its own
takes a database that goes with it, or a named one; credentials of a real platform are never replaced.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from threadline.bootstrap import Threadline
from threadline.bootstrap import open as open_threadline
from threadline.core.errors import Conflict, ExtraMissing, InvalidInput, ThreadlineError
from threadline.core.threads import Scope
from threadline.settings import Settings
from threadline.vault import new_key

try:
    from threadline.service.app import build_app
    from threadline.service.server import Server, address_of, listen
    from threadline.testing.platforms import FakePlatform, FakeSlack, FakeTelegram, FakeWhatsApp
    from threadline.testing.platforms.loopback import ask
except ModuleNotFoundError as exc:
    raise ExtraMissing("channels,service", "a simulation") from exc

STAND_INS: Mapping[str, type[FakePlatform]] = {
    "slack": FakeSlack,
    "telegram": FakeTelegram,
    "whatsapp": FakeWhatsApp,
}
_KEY = "simulation"


class ServiceRefused(ThreadlineError):
    code = "service_refused"


class Linking(Protocol):
    async def __call__(self) -> str:
        """A new code that links an account to the user."""
        ...


class Stage(NamedTuple):
    platforms: Mapping[str, FakePlatform]
    url: str
    link_code: Linking


@asynccontextmanager
async def own_service(names: Sequence[str], settings: Settings, *, kept: bool) -> AsyncIterator[Stage]:
    """A service in this process. Unless the database is to be kept, it is a new one that goes at the end."""
    async with AsyncExitStack() as stack:
        platforms = {name: await stack.enter_async_context(STAND_INS[name]()) for name in names}
        if not kept:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="threadline-"))
            settings = msgspec.structs.replace(settings, database=str(Path(folder) / "simulation.db"))
        settings = _pointed_at(platforms, settings)
        threadline = await stack.enter_async_context(open_threadline(settings=settings))
        url = await stack.enter_async_context(_serving(threadline))
        user = Scope(settings.tenant, settings.user)
        await _introduce(threadline, platforms, Scope(settings.tenant, settings.user, "admin"))

        async def link_code() -> str:
            return (await threadline.messaging.links.new_code(user)).code

        yield _opened(platforms, url, settings.tenant, link_code)


@asynccontextmanager
async def running_service(
    names: Sequence[str], url: str, tenant: str, token: str | None, port: int
) -> AsyncIterator[Stage]:
    """A service that runs already, with the setting `api` of each platform naming its stand-in."""
    async with AsyncExitStack() as stack:
        made = {name: STAND_INS[name](port=port + number) for number, name in enumerate(STAND_INS) if name in names}
        platforms = {name: await stack.enter_async_context(fake) for name, fake in made.items()}
        api = _Api(url.rstrip("/"), token)
        for name, platform in platforms.items():
            await api.call("PUT", f"/api/v1/channels/{name}/credentials", {"secrets": platform.secrets})

        async def link_code() -> str:
            return str((await api.call("POST", "/api/v1/channels/links/code", {}))["code"])

        yield _opened(platforms, api.url, tenant, link_code)


def _opened(platforms: Mapping[str, FakePlatform], url: str, tenant: str, link_code: Linking) -> Stage:
    for name, platform in platforms.items():
        platform.webhook = f"{url}/api/v1/tenants/{tenant}/channels/{name}/webhook"
    return Stage(platforms, url, link_code)


def _pointed_at(platforms: Mapping[str, FakePlatform], settings: Settings) -> Settings:
    given = {
        name: msgspec.structs.replace(getattr(settings.channels, name), api=platform.api, enabled=True)
        for name, platform in platforms.items()
    }
    keys = {**settings.channels.keys, _KEY: new_key()}
    channels = msgspec.structs.replace(settings.channels, keys=keys, key=_KEY, **given)
    return msgspec.structs.replace(settings, channels=channels)


async def _introduce(threadline: Threadline, platforms: Mapping[str, FakePlatform], admin: Scope) -> None:
    credentials = threadline.messaging.credentials
    known = {found.platform: found.key_id for found in await credentials.listed(admin)}
    for platform in platforms.values():
        if known.get(platform.platform, _KEY) != _KEY:
            raise Conflict(f"this database has credentials for the real {platform.platform}: simulate with another one")
        await credentials.put(admin, platform.platform, platform.secrets)


@asynccontextmanager
async def _serving(threadline: Threadline) -> AsyncIterator[str]:
    service = threadline.settings.service
    listening = listen("127.0.0.1", 0)
    server = Server(build_app(threadline, service), grace_seconds=1)
    running = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        await server.ready.wait()
        yield address_of(listening)
    finally:
        server.should_exit = True
        await running


class _Api:
    def __init__(self, url: str, token: str | None) -> None:
        if not url.startswith("http://"):
            raise InvalidInput(f"{url!r} is no service on this machine or network: give http://…")
        self.url = url
        self._headers = {"content-type": "application/json"}
        if token:
            self._headers["authorization"] = f"Bearer {token}"

    async def call(self, method: str, path: str, body: Any) -> Any:
        try:
            told = await ask(method, f"{self.url}{path}", self._headers, json.dumps(body).encode())
        except (OSError, TimeoutError) as exc:
            raise ServiceRefused(f"nobody answers at {self.url}") from exc
        if told.status >= 400:
            raise ServiceRefused(f"{self.url}{path} answered {told.status}: {told.body.decode(errors='replace')[:300]}")
        return json.loads(told.body or b"{}")
