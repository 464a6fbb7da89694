"""The agents that a tenant's administrator configures.

A row is validated by building the agent, without the operator's trust, so that every stored row works. Settings may
contain a key of the tenant: they are stored, and never returned. Each change has an audit entry.
"""

from __future__ import annotations

import msgspec

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

    def __init__(self, store: Store, sealer: Sealer, build: Build, scope: Scope) -> None:
        self._store = store
        self._sealer = sealer
        self._build = build
        self._scope = scope
        self._session = store.scoped(scope)

    async def list_agents(self) -> list[AgentRow]:
        return await self._session.agents()

    async def create(self, row: AgentRow) -> AgentRow:
        """DuplicateId if the id is in use."""
        self._scope.require("admin")
        checked = self._check(row)

        async def work(tx: Transaction) -> AgentRow:
            if await tx.agent(checked.id) is not None:
                raise DuplicateId("agent", checked.id)
            await tx.record_act("agent.created", checked.id, self._details(checked))
            return await tx.put_agent(checked)

        return await self._store.transact(self._scope, work)

    async def replace(self, row: AgentRow) -> AgentRow:
        self._scope.require("admin")
        checked = self._check(row)

        async def work(tx: Transaction) -> AgentRow:
            await tx.record_act("agent.changed", checked.id, self._details(checked))
            return await tx.put_agent(checked)

        return await self._store.transact(self._scope, work)

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

    def _check(self, row: AgentRow) -> AgentRow:
        size = len(jsontext.dump(row.settings, "settings"))
        if size > self._sealer.limits.metadata_bytes:
            raise LimitExceeded("agent settings size in bytes", self._sealer.limits.metadata_bytes, size)
        checked = msgspec.structs.replace(
            row,
            id=check_id("agent", row.id),
            name=admit_name(self._sealer, "agent", row.name),
            model=None if row.model is None else self._sealer.text(row.model, "model"),
            system_prompt=None if row.system_prompt is None else self._sealer.text(row.system_prompt, "system prompt"),
        )
        try:
            self._build(checked, trusted=False)
        except (SettingsInvalid, ExtraMissing) as exc:
            raise InvalidInput(str(exc)) from exc
        return checked
