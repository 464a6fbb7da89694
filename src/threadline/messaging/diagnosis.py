"""Problems of a tenant's channels, each with its fix."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Mapping
from typing import cast

from threadline.core.channels import OutboxBacklog
from threadline.core.errors import NotFound, SettingsInvalid, ThreadlineError
from threadline.core.platform_messages import HttpResponse, Permanent, Transient
from threadline.core.threads import Scope, system_scope
from threadline.core.turns import Surface
from threadline.messaging.credentials import Credentials, missing_secrets
from threadline.messaging.identities import ask_identity
from threadline.ports import Channel, Cipher, Clock, Finding, Http, InspectedChannel, InspectionContext, Store
from threadline.turns.agent_directory import Directory

# Replies are normally sent within a second: what waits longer has failed, or nothing sends it.
_PATIENCE = dt.timedelta(minutes=1)
# A person waits for the answer in a terminal.
_ASK_SECONDS = 10.0


class ChannelDiagnosis:
    """`platforms` are all; `channels` those that are enabled. `stand_ins` are simulated on this machine.
    `serves_public_names`: the service requires authentication."""

    def __init__(
        self,
        store: Store,
        cipher: Cipher,
        credentials: Credentials,
        directory: Directory,
        channels: Mapping[Surface, Channel],
        *,
        platforms: tuple[Surface, ...],
        agents: Mapping[Surface, str],
        stand_ins: frozenset[Surface],
        http: Http,
        clock: Clock,
        serves_public_names: bool,
    ) -> None:
        self._serves_public_names = serves_public_names
        self._clock = clock
        self._store = store
        self._cipher = cipher
        self._credentials = credentials
        self._directory = directory
        self._channels = channels
        self._platforms = platforms
        self._agents = agents
        self._stand_ins = stand_ins
        self._http = http

    async def findings(self, tenant_id: str) -> list[Finding]:
        return [finding async for finding in self._findings(tenant_id)]

    async def _findings(self, tenant_id: str) -> AsyncIterator[Finding]:
        if (wrong := self._keys()) is not None:
            yield wrong
        tx = self._store.scoped(system_scope(tenant_id))
        stored = {found.platform: found.key_id for found in await tx.all_credentials()}
        linked = {link.platform for link in await tx.links() if link.state == "verified"}
        for platform in self._platforms:
            if platform not in self._channels:
                remedy = f"set enabled = true in [channels.{platform}] to enable it"
                yield Finding("warning", f"{platform} is disabled", remedy)
            elif platform not in stored:
                remedy = f"threadline channels credentials set {platform}"
                yield Finding("warning", f"{platform} has no credentials, so its webhook answers 404", remedy)
            else:
                async for finding in self._of_platform(tenant_id, platform, stored[platform]):
                    yield finding
                if platform not in linked:
                    yield Finding("warning", f"no account is linked on {platform}", "threadline link code")
        for each in await tx.outbox_backlog():
            if (late := self._undelivered(each)) is not None:
                yield late

    def _undelivered(self, backlog: OutboxBacklog) -> Finding | None:
        platform, count = backlog.platform, f"{backlog.count:,}"
        age = self._clock.now() - backlog.oldest_at
        error = f", with {backlog.last_error!r}" if backlog.last_error else ""
        if backlog.status == "dead":
            remedy = f"remove the cause, then: threadline channels outbox requeue --all --platform {platform}"
            return Finding("warning", f"{count} dead letters to {platform}{error}", remedy)
        if backlog.status in ("waiting", "claimed") and age > _PATIENCE:
            minutes = int(age.total_seconds() // 60)
            remedy = "a running service retries them; check the platform's status page, and that a service is running"
            return Finding(
                "warning", f"{count} deliveries to {platform} wait, the oldest for {minutes} min{error}", remedy
            )
        return None

    async def _ask(self, platform: Surface, secrets: Mapping[str, str], again: str) -> Finding | None:
        """Asks the platform whether it knows the bot."""
        match await ask_identity(self._http, self._channels[platform], secrets, seconds=_ASK_SECONDS):
            case Permanent(reason):
                return Finding("error", f"{platform} does not accept the credentials: {reason}", again)
            case Transient(reason):
                remedy = "check that this machine reaches the platform, and the platform's status page"
                return Finding("warning", f"{platform} could not be asked about the credentials: {reason}", remedy)
        return None

    async def _inspect(self, tenant_id: str, platform: Surface, secrets: Mapping[str, str]) -> list[Finding]:
        """Asks the platform how the bot is set up there."""
        context = InspectionContext(tenant_id, self._clock.now(), self._serves_public_names)
        # Every codec can be asked; the protocol of `Channel` is what the turn path needs.
        inspection = cast(InspectedChannel, self._channels[platform]).inspect(secrets, context)
        try:
            request = next(inspection)
            while True:
                answered = await self._http.send(request, seconds=_ASK_SECONDS)
                request = inspection.send(answered if isinstance(answered, HttpResponse) else None)
        except StopIteration as done:
            return list(done.value)

    def _keys(self) -> Finding | None:
        try:
            key_id = self._cipher.key_id
            self._cipher.decrypt(key_id, self._cipher.encrypt(b"doctor", ("doctor",)), ("doctor",))
        except ThreadlineError as exc:
            return Finding("error", str(exc), "see [vault] in docs/settings.md")
        return None

    async def _of_platform(self, tenant_id: str, platform: Surface, key_id: str) -> AsyncIterator[Finding]:
        again = f"threadline channels credentials set {platform}"
        try:
            secrets = await self._credentials.open(tenant_id, platform)
            if missing := missing_secrets(self._channels[platform], secrets):
                yield Finding("error", f"{platform} has no {missing}", again)
            if key_id != self._cipher.key_id:
                remedy = "threadline vault rotate"
                yield Finding(
                    "warning", f"{platform}'s credentials are encrypted with the older key {key_id!r}", remedy
                )
            refused = None if missing else await self._ask(platform, secrets, again)
            if refused is not None:
                yield refused
            elif not missing:
                for finding in await self._inspect(tenant_id, platform, secrets):
                    yield finding
        except SettingsInvalid as exc:
            yield Finding("error", f"{platform}: {exc}", again)
        if platform in self._stand_ins:
            remedy = f"leave api out of [channels.{platform}]"
            yield Finding("warning", f"{platform} is simulated on this machine", remedy)
        try:
            await self._directory.find(Scope(tenant_id, "system", "member"), self._agents[platform])
        except NotFound:
            what = f"agent {self._agents[platform]!r} of {platform} does not exist"
            yield Finding("error", what, f"set agent in [channels.{platform}] to an existing agent")
