"""Secrets of tenants' agents in all tenants: encryption of rows that earlier versions stored in clear, and rotation.

For the operator: these operations see every tenant. All of them are safe to repeat.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from threadline.agents.setting_secrets import SettingSecrets, has_clear_secrets, key_of
from threadline.core.channels import Agent as AgentRow
from threadline.core.errors import SettingsInvalid
from threadline.core.threads import system_scope
from threadline.ports import Cipher, Finding, Store, Transaction
from threadline.vault import Rotated


class AgentSecrets:
    def __init__(self, store: Store, cipher: Cipher) -> None:
        self._store = store
        self._cipher = cipher
        self._secrets = SettingSecrets(cipher)

    async def encrypt_clear(self) -> Rotated:
        """Encrypts what is stored in clear. EncryptionKeyMissing."""
        return await self._encrypt(has_clear_secrets)

    async def rotate(self) -> Rotated:
        """Encrypts with the current key what is stored in clear or uses another key. EncryptionKeyMissing."""
        current = self._cipher.key_id
        return await self._encrypt(lambda row: has_clear_secrets(row) or key_of(row) not in (None, current))

    async def _encrypt(self, is_due: Callable[[AgentRow], bool]) -> Rotated:
        done = Rotated()
        for tenant_id in await self._store.tenants():
            # Read before the transaction: mostly there is nothing to do, and a start must not write to every tenant.
            if any(map(is_due, await self._store.scoped(system_scope(tenant_id)).agents())):
                done = done.add(await self._encrypt_tenant(tenant_id, is_due))
        return done

    async def _encrypt_tenant(self, tenant_id: str, is_due: Callable[[AgentRow], bool]) -> Rotated:
        async def work(tx: Transaction) -> Rotated:
            done = Rotated()
            for row in filter(is_due, await tx.agents()):
                try:
                    plain = self._secrets.decrypt(tenant_id, row)
                except SettingsInvalid:
                    done = done.add(Rotated(unreadable=1))
                    continue
                await tx.put_agent(self._secrets.encrypt(tenant_id, plain))
                done = done.add(Rotated(encrypted=1))
            return done

        return await self._store.transact(system_scope(tenant_id), work)

    async def findings(self) -> list[Finding]:
        """Agents whose secrets are in clear, cannot be decrypted, or are encrypted with an older key."""
        found: dict[str, list[str]] = {"clear": [], "unreadable": [], "older": []}
        for tenant_id in await self._store.tenants():
            for row in await self._store.scoped(system_scope(tenant_id)).agents():
                if (problem := self._problem(tenant_id, row)) is not None:
                    found[problem].append(f"{tenant_id}/{row.id}")
        again = "add the missing key to [vault.keys], or set them again"
        kinds: tuple[tuple[Literal["error", "warning"], str, str, str], ...] = (
            ("error", "clear", "are stored in clear", self._next_step()),
            ("error", "unreadable", "cannot be decrypted with the keys in [vault.keys]", again),
            ("warning", "older", "are encrypted with an older key", "threadline vault rotate"),
        )
        return [
            Finding(level, f"secrets of agents {what}: {', '.join(found[kind])}", remedy)
            for level, kind, what, remedy in kinds
            if found[kind]
        ]

    def _problem(self, tenant_id: str, row: AgentRow) -> str | None:
        if has_clear_secrets(row):
            return "clear"
        try:
            if (key_id := key_of(row)) is None:
                return None
            self._secrets.decrypt(tenant_id, row)
            return None if key_id == self._cipher.key_id else "older"
        except SettingsInvalid:
            return "unreadable"

    def _next_step(self) -> str:
        try:
            self._cipher.key_id  # noqa: B018 - raises without a key
        except SettingsInvalid as exc:
            return str(exc)
        return "threadline vault rotate"
