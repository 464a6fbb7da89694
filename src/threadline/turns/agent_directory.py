"""The directory of agents: which agent has an id.

Agents given in code come first, then those of the tenant's own table, then those of the settings. Each is built once
and cached; a tenant's agent is built again when its row has changed, and may reach less than the operator's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from threadline.core.channels import Agent as AgentRow
from threadline.core.errors import NotFound
from threadline.core.threads import Scope
from threadline.ports import Agent, Store


class Build(Protocol):
    def __call__(self, row: AgentRow, *, trusted: bool) -> Agent:
        """Builds the agent that a row describes. `trusted` for the operator's own; a tenant's may reach less."""
        ...


class Decrypt(Protocol):
    def __call__(self, tenant_id: str, row: AgentRow) -> AgentRow:
        """The row with all its settings. SettingsInvalid if they cannot be decrypted."""
        ...


class Directory:
    def __init__(
        self,
        store: Store,
        build: Build,
        decrypt: Decrypt,
        *,
        given: Mapping[str, Agent] | None = None,
        configured: Mapping[str, AgentRow] | None = None,
    ) -> None:
        self._store = store
        self._build = build
        self._decrypt = decrypt
        self._given = dict(given or {})
        self._configured = dict(configured or {})
        self._built: dict[tuple[str, str], tuple[AgentRow, Agent]] = {}

    def ids(self) -> list[str]:
        """The agents that every tenant has."""
        return sorted({*self._given, *self._configured})

    async def find(self, scope: Scope, agent_id: str) -> Agent:
        """NotFound for an agent that is unknown, disabled, or another tenant's."""
        if agent_id in self._given:
            return self._given[agent_id]
        return self._of(scope, agent_id, await self._store.scoped(scope).agent(agent_id))

    async def look_up(self, scope: Scope, agent_id: str) -> tuple[Agent, AgentRow | None]:
        """The agent and its row, if it has one. NotFound, as for `find`."""
        own = await self._store.scoped(scope).agent(agent_id)
        return self._of(scope, agent_id, own), own or self._configured.get(agent_id)

    def _of(self, scope: Scope, agent_id: str, own: AgentRow | None) -> Agent:
        if own is None or agent_id in self._given:
            return self.find_configured(agent_id)
        if not own.enabled:
            raise NotFound("agent", agent_id)
        known = self._built.get((scope.tenant_id, agent_id))
        if known is None or known[0] != own:
            agent = self._build(self._decrypt(scope.tenant_id, own), trusted=False)
            known = self._built[scope.tenant_id, agent_id] = (own, agent)
        return known[1]

    def find_configured(self, agent_id: str) -> Agent:
        """An agent that needs no database: given in code or in the settings. NotFound."""
        if agent_id in self._given:
            return self._given[agent_id]
        if agent_id not in self._configured:
            raise NotFound("agent", agent_id)
        if ("", agent_id) not in self._built:
            row = self._configured[agent_id]
            self._built["", agent_id] = (row, self._build(row, trusted=True))
        return self._built["", agent_id][1]

    async def close(self) -> None:
        """Closes what agents keep open: connections, a model's process. Agents given in code are closed by their
        owner."""
        built, self._built = self._built, {}
        for _, agent in built.values():
            if (close := getattr(agent, "close", None)) is not None:
                await close()

    def configured_row(self, agent_id: str) -> AgentRow | None:
        return self._configured.get(agent_id)

    async def row(self, scope: Scope, agent_id: str) -> AgentRow | None:
        return await self._store.scoped(scope).agent(agent_id) or self._configured.get(agent_id)
