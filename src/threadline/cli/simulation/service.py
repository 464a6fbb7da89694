"""The fake platforms of a simulation and the service that they talk to.

`start_service` runs a service in this process, on a temporary database or a named one; credentials of a real platform
are never replaced. `connect_to_service` uses a running service whose settings (`api`) point at the fake platforms.
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
from threadline.settings import Settings, VaultSettings
from threadline.vault import new_key

try:
    from threadline.service.app import build_app
    from threadline.service.process.server import Server, address_of, listen
    from threadline.testing.platforms import FakePlatform, FakeSlack, FakeTelegram, FakeWhatsApp
    from threadline.testing.platforms.loopback import ask
except ModuleNotFoundError as exc:
    raise ExtraMissing("channels,service", "threadline channels simulate") from exc

FAKE_PLATFORMS: Mapping[str, type[FakePlatform]] = {
    "slack": FakeSlack,
    "telegram": FakeTelegram,
    "whatsapp": FakeWhatsApp,
}
_KEY = "simulation"


class ServiceRefused(ThreadlineError):
    code = "service_refused"


class CreateLinkCode(Protocol):
    async def __call__(self) -> str:
        """Returns a new code that links an account to the user."""
        ...


class Simulation(NamedTuple):
    platforms: Mapping[str, FakePlatform]
    url: str
    link_code: CreateLinkCode


@asynccontextmanager
async def start_service(names: Sequence[str], settings: Settings, *, is_temporary: bool) -> AsyncIterator[Simulation]:
    """Runs a service in this process, on a new database that is deleted at the end if `is_temporary`."""
    async with AsyncExitStack() as stack:
        platforms = {name: await stack.enter_async_context(FAKE_PLATFORMS[name]()) for name in names}
        if is_temporary:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="threadline-"))
            settings = msgspec.structs.replace(settings, database=str(Path(folder) / "simulation.db"))
        settings = _point_to(platforms, settings)
        threadline = await stack.enter_async_context(open_threadline(settings=settings))
        url = await stack.enter_async_context(_serving(threadline))
        user = Scope(settings.tenant, settings.user)
        await _store_credentials(threadline, platforms, Scope(settings.tenant, settings.user, "admin"))

        async def link_code() -> str:
            return (await threadline.messaging.links.new_code(user)).code

        yield _connect_webhooks(platforms, url, settings.tenant, link_code)


@asynccontextmanager
async def connect_to_service(
    names: Sequence[str], url: str, tenant: str, token: str | None, port: int
) -> AsyncIterator[Simulation]:
    """Uses a running service. Its setting `api` of each platform must be the address of the fake platform."""
    async with AsyncExitStack() as stack:
        # Ports count over all platforms, so that a platform has the same port whichever others are simulated.
        ports = {name: port + number for number, name in enumerate(FAKE_PLATFORMS)}
        fakes = {name: FAKE_PLATFORMS[name](port=ports[name]) for name in names}
        platforms = {name: await stack.enter_async_context(fake) for name, fake in fakes.items()}
        api = _Api(url.rstrip("/"), token)
        for name, platform in platforms.items():
            await api.call("PUT", f"/api/v1/channels/{name}/credentials", {"secrets": platform.secrets})

        async def link_code() -> str:
            return str((await api.call("POST", "/api/v1/channels/links/code", {}))["code"])

        yield _connect_webhooks(platforms, api.url, tenant, link_code)


def _connect_webhooks(
    platforms: Mapping[str, FakePlatform], url: str, tenant: str, link_code: CreateLinkCode
) -> Simulation:
    for name, platform in platforms.items():
        platform.webhook = f"{url}/api/v1/tenants/{tenant}/channels/{name}/webhook"
    return Simulation(platforms, url, link_code)


def _point_to(platforms: Mapping[str, FakePlatform], settings: Settings) -> Settings:
    given = {
        name: msgspec.structs.replace(getattr(settings.channels, name), api=platform.api, enabled=True)
        for name, platform in platforms.items()
    }
    keys = {**settings.channels.keys, **settings.vault.keys, _KEY: new_key()}
    vault = VaultSettings(keys=keys, key=_KEY)
    return msgspec.structs.replace(settings, vault=vault, channels=msgspec.structs.replace(settings.channels, **given))


async def _store_credentials(threadline: Threadline, platforms: Mapping[str, FakePlatform], admin: Scope) -> None:
    credentials = threadline.messaging.credentials
    known = {found.platform: found.key_id for found in await credentials.listed(admin)}
    for platform in platforms.values():
        if known.get(platform.platform, _KEY) != _KEY:
            raise Conflict(f"this database has credentials for the real {platform.platform}: use another --database")
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
            raise InvalidInput(f"--url must begin with http://, got {url!r}")
        self.url = url
        self._headers = {"content-type": "application/json"}
        if token:
            self._headers["authorization"] = f"Bearer {token}"

    async def call(self, method: str, path: str, body: Any) -> Any:
        try:
            response = await ask(method, f"{self.url}{path}", self._headers, json.dumps(body).encode())
        except (OSError, TimeoutError) as exc:
            raise ServiceRefused(f"no answer from {self.url}: is the service running?") from exc
        if response.status >= 400:
            raise ServiceRefused(
                f"{self.url}{path} returned {response.status}: {response.body.decode(errors='replace')[:300]}"
            )
        return json.loads(response.body or b"{}")
