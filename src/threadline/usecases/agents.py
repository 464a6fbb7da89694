"""The agents of a tenant, as its administrator sets them up.

An agent is checked by building it, with no more trust than it will have later, so a row that is stored can answer. Its
settings may hold a key of the tenant's own: they go in, and never come out.
"""

from __future__ import annotations

import msgspec

from threadline.core import jsontext
from threadline.core.channels import Agent as AgentRow
from threadline.core.errors import DuplicateId, ExtraMissing, InvalidInput, LimitExceeded, NotFound, SettingsInvalid
from threadline.core.ids import check_id
from threadline.core.sealing import Sealer
from threadline.core.threads import Scope
from threadline.ports import Store
from threadline.usecases.admission import admit_name
from threadline.usecases.directory import Build


class Agents:
    """The use cases of one scope. Reading is for everyone in the tenant, changing for its administrator."""

    def __init__(self, store: Store, sealer: Sealer, build: Build, scope: Scope) -> None:
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
        if await self._tx.agent(admitted.id) is not None:
            raise DuplicateId("agent", admitted.id)
        return await self._tx.put_agent(admitted)

    async def replace(self, row: AgentRow) -> AgentRow:
        self._scope.require("admin")
        return await self._tx.put_agent(self._admit(row))

    async def get(self, agent_id: str) -> AgentRow:
        found = await self._tx.agent(check_id("agent", agent_id))
        if found is None:
            raise NotFound("agent", agent_id)
        return found

    async def delete(self, agent_id: str) -> bool:
        """With every snapshot pinned for it. False if there was none."""
        self._scope.require("admin")
        return await self._tx.delete_agent(check_id("agent", agent_id))

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
