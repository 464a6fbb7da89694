"""Credentials of a tenant's platforms: they are stored and used, and cannot be read.

They are encrypted with one of the operator's keys and bound to tenant, platform and key, so that a row copied into
another tenant cannot be decrypted. Rotation encrypts again what still uses an older key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from threadline.core import jsontext
from threadline.core.channels import SealedCredentials
from threadline.core.errors import InvalidInput, NotFound, SettingsInvalid
from threadline.core.threads import Scope, system_scope
from threadline.core.turns import Surface
from threadline.ports import Channel, Cipher, Store, Transaction
from threadline.vault import Rotated

# Longer than any platform's token, short enough to be stored with each tenant.
_LONGEST = 4_096


_OPENED_SECONDS = 1.0
_MOST_OPENED = 1_000


class _Opened(NamedTuple):
    until: float
    secrets: Mapping[str, str]


class Credentials:
    def __init__(self, store: Store, cipher: Cipher, channels: Mapping[Surface, Channel]) -> None:
        self._store = store
        self._cipher = cipher
        self._channels = channels
        self._opened_lately: dict[tuple[str, Surface], _Opened] = {}

    async def put(self, scope: Scope, platform: str, secrets: Mapping[str, str]) -> SealedCredentials:
        """Administrators only. InvalidInput names missing and unknown secrets, never a value."""
        scope.require("admin")
        channel = self.channel(platform)
        _check(channel, secrets)
        key_id = self._cipher.key_id
        plain = jsontext.dump(dict(secrets), "credentials")
        sealed = self._cipher.encrypt(plain, _bound_to(scope.tenant_id, channel.platform))

        async def work(tx: Transaction) -> SealedCredentials:
            stored = await tx.put_credentials(channel.platform, key_id, sealed)
            await tx.record_act("credentials.set", channel.platform, actor_id=scope.user_id)
            return stored

        stored = await self._store.transact(system_scope(scope.tenant_id), work)
        self._opened_lately.pop((scope.tenant_id, channel.platform), None)
        return stored

    async def listed(self, scope: Scope) -> list[SealedCredentials]:
        """Which platforms have credentials, and which key encrypts them. Administrators only."""
        scope.require("admin")
        return await self._store.scoped(system_scope(scope.tenant_id)).all_credentials()

    async def delete(self, scope: Scope, platform: str) -> bool:
        scope.require("admin")
        channel = self.channel(platform)

        async def work(tx: Transaction) -> bool:
            gone = await tx.delete_credentials(channel.platform)
            if gone:
                await tx.record_act("credentials.deleted", channel.platform, actor_id=scope.user_id)
            return gone

        is_gone = await self._store.transact(system_scope(scope.tenant_id), work)
        self._opened_lately.pop((scope.tenant_id, channel.platform), None)
        return is_gone

    def channel(self, platform: str) -> Channel:
        """NotFound for a platform that is unknown or disabled."""
        for name, channel in self._channels.items():
            if name == platform:
                return channel
        raise NotFound("platform", platform)

    async def open(self, tenant_id: str, platform: Surface) -> Mapping[str, str]:
        """The secrets, for sending. NotFound if the tenant has none. A change by another process counts after a second:
        each message needs them twice."""
        now = asyncio.get_running_loop().time()
        lately = self._opened_lately.get((tenant_id, platform))
        if lately is not None and now < lately.until:
            return lately.secrets
        found = await self._store.scoped(system_scope(tenant_id)).credentials(platform)
        if found is None:
            raise NotFound("credentials", platform)
        secrets = self._opened(tenant_id, found)
        if len(self._opened_lately) >= _MOST_OPENED:
            self._opened_lately.clear()
        self._opened_lately[tenant_id, platform] = _Opened(now + _OPENED_SECONDS, secrets)
        return secrets

    def _opened(self, tenant_id: str, found: SealedCredentials) -> dict[str, str]:
        plain = self._cipher.decrypt(found.key_id, found.sealed, _bound_to(tenant_id, found.platform))
        return msgspec.json.decode(plain, type=dict[str, str])

    async def rotate(self) -> Rotated:
        """Encrypts with the current key what uses another, in every tenant. Safe to repeat."""
        done = Rotated()
        for tenant_id in await self._store.tenants():
            done = done.add(await self._rotate_tenant(tenant_id))
        return done

    async def _rotate_tenant(self, tenant_id: str) -> Rotated:
        key_id = self._cipher.key_id

        async def work(tx: Transaction) -> Rotated:
            older = [found for found in await tx.all_credentials() if found.key_id != key_id]
            unreadable = 0
            for found in older:
                try:
                    plain = jsontext.dump(self._opened(tenant_id, found), "credentials")
                except SettingsInvalid:
                    unreadable += 1
                    continue
                sealed = self._cipher.encrypt(plain, _bound_to(tenant_id, found.platform))
                await tx.put_credentials(found.platform, key_id, sealed)
            return Rotated(len(older) - unreadable, unreadable)

        return await self._store.transact(system_scope(tenant_id), work)


def _bound_to(tenant_id: str, platform: Surface) -> tuple[str, str, str]:
    return ("credentials", tenant_id, platform)


def missing_secrets(channel: Channel, secrets: Iterable[str]) -> str | None:
    """The names of what is missing, with alternatives; None if nothing is."""
    given = set(secrets)
    missing = [", ".join(sorted(needed - given)) for needed in channel.sufficient_secrets]
    return " or ".join(missing) if all(missing) else None


def _check(channel: Channel, secrets: Mapping[str, str]) -> None:
    if (missing := missing_secrets(channel, secrets)) is not None:
        raise InvalidInput(f"{channel.platform} needs {missing} as well")
    known = set(channel.secret_names)
    if unknown := sorted(set(secrets) - known):
        raise InvalidInput(
            f"{channel.platform} has no use for {', '.join(unknown)}: it takes {', '.join(sorted(known))}"
        )
    for name, value in secrets.items():
        if not value or len(value) > _LONGEST or not value.isascii() or not value.isprintable() or " " in value:
            raise InvalidInput(f"{name} is not a credential: 1 to {_LONGEST} visible ASCII characters, no spaces")
