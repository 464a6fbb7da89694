"""The agents that a tenant's administrator configures.

A row is validated by building the agent, without the operator's trust, so that every stored row works. Keys and tokens
in its settings are stored encrypted and never returned. Each change has an audit entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from threadline.agents.setting_secrets import SettingSecrets, is_hidden, shown_settings
from threadline.core import jsontext
from threadline.core.channels import Agent as AgentRow
from threadline.core.errors import DuplicateId, ExtraMissing, InvalidInput, LimitExceeded, NotFound, SettingsInvalid
from threadline.core.ids import check_id
from threadline.core.sealing import CleanJson, Sealer
from threadline.core.threads import Scope
from threadline.ports import Store, Transaction
from threadline.threads.field_checks import admit_name
from threadline.turns.agent_directory import Build


class TenantAgents:
    """The operations of one scope. Everyone in the tenant may read; only its administrators may write."""

    def __init__(self, store: Store, sealer: Sealer, build: Build, secrets: SettingSecrets, scope: Scope) -> None:
        self._store = store
        self._sealer = sealer.for_tenant(scope.tenant_id)
        self._build = build
        self._secrets = secrets
        self._scope = scope
        self._session = store.scoped(scope)

    async def list_agents(self) -> list[AgentRow]:
        return await self._session.agents()

    async def create(self, row: AgentRow) -> AgentRow:
        """DuplicateId if the id is in use. SettingsInvalid if there are secrets and no key to encrypt them with."""
        self._scope.require("admin")
        checked = self._secrets.encrypt(self._scope.tenant_id, self._check(row))

        async def work(tx: Transaction) -> AgentRow:
            if await tx.agent(checked.id) is not None:
                raise DuplicateId("agent", checked.id)
            await tx.record_act("agent.created", checked.id, self._details(checked))
            return await tx.put_agent(checked)

        return await self._store.transact(self._scope, work)

    async def change(self, agent_id: str, **changes: Any) -> AgentRow:
        """Changes these fields of the row. `settings` replace all settings; a secret that is sent as it was shown
        stays. An agent whose secrets cannot be decrypted can still be disabled, renamed and given new settings."""
        self._scope.require("admin")
        stored = await self.get(agent_id)
        if changes.keys() & {"provider", "model", "settings"}:
            if "settings" in changes:
                changes["settings"] = self._with_secrets(stored, changes["settings"])
            row = msgspec.structs.replace(stored, **changes)
            checked = self._secrets.encrypt(self._scope.tenant_id, self._check(self._decrypt(row)))
        else:
            checked = self._check_names(msgspec.structs.replace(stored, **changes))

        async def work(tx: Transaction) -> AgentRow:
            await tx.record_act("agent.changed", checked.id, self._details(checked))
            return await tx.put_agent(checked)

        return await self._store.transact(self._scope, work)

    def _decrypt(self, row: AgentRow) -> AgentRow:
        return self._secrets.decrypt(self._scope.tenant_id, row)

    def _with_secrets(self, stored: AgentRow, given: Mapping[str, Any]) -> dict[str, Any]:
        """The given settings, with the stored ones where they repeat what is shown in the place of a secret."""
        shown = shown_settings(stored)
        kept = [name for name, value in given.items() if is_hidden(value) and value == shown.get(name)]
        return {**given, **{name: self._decrypt(stored).settings[name] for name in kept}}

    async def get(self, agent_id: str) -> AgentRow:
        found = await self._session.agent(check_id("agent", agent_id))
        if found is None:
            raise NotFound("agent", agent_id)
        return found

    async def delete(self, agent_id: str) -> bool:
        """Also deletes the context snapshots for it. False if there was none."""
        self._scope.require("admin")
        check_id("agent", agent_id)

        async def work(tx: Transaction) -> bool:
            deleted = await tx.delete_agent(agent_id)
            if deleted:
                await tx.record_act("agent.deleted", agent_id)
            return deleted

        return await self._store.transact(self._scope, work)

    def _details(self, row: AgentRow) -> CleanJson:
        """Without the settings, which may contain keys."""
        return self._sealer.json({"provider": row.provider, "model": row.model, "enabled": row.enabled}, "details")

    def _check_names(self, row: AgentRow) -> AgentRow:
        return msgspec.structs.replace(
            row,
            id=check_id("agent", row.id),
            name=admit_name(self._sealer, "agent", row.name),
            model=None if row.model is None else self._sealer.text(row.model, "model"),
            system_prompt=None if row.system_prompt is None else self._sealer.text(row.system_prompt, "system prompt"),
        )

    def _check(self, row: AgentRow) -> AgentRow:
        """The row with all its settings in clear, checked."""
        size = len(jsontext.dump(row.settings, "settings"))
        if size > self._sealer.limits.metadata_bytes:
            raise LimitExceeded("agent settings size in bytes", self._sealer.limits.metadata_bytes, size)
        for name, value in row.settings.items():
            if is_hidden(value):
                raise InvalidInput(f"`settings.{name}` is shown text, not the secret itself: send the secret")
        checked = self._check_names(row)
        try:
            self._build(checked, trusted=False)
        except (SettingsInvalid, ExtraMissing) as exc:
            raise InvalidInput(str(exc)) from exc
        return checked
