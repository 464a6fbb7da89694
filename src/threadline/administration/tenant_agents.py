"""The agents of a tenant, as its administrator sets them up.

An agent is checked by building it, with no more trust than it will have later, so a row that is stored can answer. Its
settings may hold a key of the tenant's own: they go in, and never come out. Each change is on record.
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


class Agents:
    """The use cases of one scope. Reading is for everyone in the tenant, changing for its administrator."""

    def __init__(self, store: Store, sealer: Sealer, build: Build, scope: Scope) -> None:
        self._store = store
        self._sealer = sealer
        self._build = build
        self._scope = scope
        self._tx = store.scoped(scope)

    async def list_agents(self) -> list[AgentRow]:
        return await self._tx.agents()

    async def create(self, row: AgentRow) -> AgentRow:
        """DuplicateId if there is one under this id."""
        self._scope.require("admin")
        admitted = self._admit(row)

        async def work(tx: Transaction) -> AgentRow:
            if await tx.agent(admitted.id) is not None:
                raise DuplicateId("agent", admitted.id)
            await tx.record_act("agent.created", admitted.id, self._details(admitted))
            return await tx.put_agent(admitted)

        return await self._store.transact(self._scope, work)

    async def replace(self, row: AgentRow) -> AgentRow:
        self._scope.require("admin")
        admitted = self._admit(row)

        async def work(tx: Transaction) -> AgentRow:
            await tx.record_act("agent.changed", admitted.id, self._details(admitted))
            return await tx.put_agent(admitted)

        return await self._store.transact(self._scope, work)

    async def get(self, agent_id: str) -> AgentRow:
        found = await self._tx.agent(check_id("agent", agent_id))
        if found is None:
            raise NotFound("agent", agent_id)
        return found

    async def delete(self, agent_id: str) -> bool:
        """With every snapshot pinned for it. False if there was none."""
        self._scope.require("admin")
        check_id("agent", agent_id)

        async def work(tx: Transaction) -> bool:
            deleted = await tx.delete_agent(agent_id)
            if deleted:
                await tx.record_act("agent.deleted", agent_id)
            return deleted

        return await self._store.transact(self._scope, work)

    def _details(self, row: AgentRow) -> CleanJson:
        """Its settings may hold keys, and are not written down."""
        return self._sealer.json({"provider": row.provider, "model": row.model, "enabled": row.enabled}, "details")

    def _admit(self, row: AgentRow) -> AgentRow:
        size = len(jsontext.dump(row.settings, "settings"))
        if size > self._sealer.limits.metadata_bytes:
            raise LimitExceeded("agent settings in bytes", self._sealer.limits.metadata_bytes, size)
        admitted = msgspec.structs.replace(
            row,
            id=check_id("agent", row.id),
            name=admit_name(self._sealer, "agent", row.name),
            model=None if row.model is None else self._sealer.text(row.model, "model"),
            system_prompt=None if row.system_prompt is None else self._sealer.text(row.system_prompt, "system prompt"),
        )
        try:
            self._build(admitted, trusted=False)
        except (SettingsInvalid, ExtraMissing) as exc:
            raise InvalidInput(str(exc)) from exc
        return admitted
