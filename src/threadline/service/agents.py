"""The routes of agents: the tenant's own (for its administrator), and the context pinned for one.

A pinned context is stored without asking the agent, which may be away. Agents of another tenant are as unknown as those
that never were. What an agent's settings hold is shown masked: keys go in and do not come out.
"""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadline.agents.registry import build_agent
from threadline.bootstrap import Threadline
from threadline.core.channels import Agent as AgentRow
from threadline.core.channels import ContextSnapshot
from threadline.core.errors import NotFound
from threadline.core.ids import check_id
from threadline.core.masking import SecretMasker
from threadline.core.threads import Scope
from threadline.service.answers import answer, moment, present
from threadline.service.callers import WhoAsks
from threadline.service.reading import Shape, read_body
from threadline.usecases.agents import Agents

_AGENTS = "/api/v1/agents"
_AGENT = _AGENTS + "/{agent_id}"


class Pinning(Shape, frozen=True):
    context: str


class NewAgent(Shape, frozen=True):
    id: str
    provider: str
    name: str | None = None
    model: str | None = None
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    system_prompt: str | None = None
    enabled: bool = True


class AgentChanges(Shape, frozen=True):
    provider: str | msgspec.UnsetType = msgspec.UNSET
    name: str | msgspec.UnsetType = msgspec.UNSET
    model: str | msgspec.UnsetType | None = msgspec.UNSET
    settings: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    system_prompt: str | msgspec.UnsetType | None = msgspec.UNSET
    enabled: bool | msgspec.UnsetType = msgspec.UNSET


class AgentRoutes:
    def __init__(self, threadline: Threadline, who_asks: WhoAsks) -> None:
        self._threadline = threadline
        self._who_asks = who_asks
        self._masker = SecretMasker()

    def routes(self) -> list[Route]:
        return [
            Route(_AGENTS, self.list_agents, methods=["GET"]),
            Route(_AGENTS, self.create, methods=["POST"]),
            Route(_AGENT, self.change, methods=["PATCH"]),
            Route(_AGENT, self.delete, methods=["DELETE"]),
            Route(_AGENT + "/context", self.pin, methods=["POST"]),
            Route(_AGENT + "/context", self.pinned, methods=["GET"]),
            Route(_AGENT + "/context", self.unpin, methods=["DELETE"]),
        ]

    async def list_agents(self, request: Request) -> Response:
        """The tenant's own, and the names of those that every tenant has."""
        scope = await self._who_asks(request)
        own = await self._agents(scope).list_agents()
        shared, default = self._threadline.directory.ids(), self._threadline.settings.agent
        return answer({"agents": [self._json(row) for row in own], "shared": shared, "default": default})

    async def create(self, request: Request) -> Response:
        scope = await self._who_asks(request)
        scope.require("admin")
        asked = await read_body(request, NewAgent)
        fields = {**msgspec.structs.asdict(asked), "name": asked.name or asked.id}
        return answer(self._json(await self._agents(scope).create(AgentRow(**fields))), 201)

    async def change(self, request: Request) -> Response:
        scope = await self._who_asks(request)
        scope.require("admin")
        agents = self._agents(scope)
        changes = msgspec.structs.asdict(await read_body(request, AgentChanges))
        given = {name: value for name, value in changes.items() if value is not msgspec.UNSET}
        row = msgspec.structs.replace(await agents.get(request.path_params["agent_id"]), **given)
        return answer(self._json(await agents.replace(row)))

    async def delete(self, request: Request) -> Response:
        await self._agents(await self._who_asks(request)).delete(request.path_params["agent_id"])
        return answer({"ok": True})

    async def pin(self, request: Request) -> Response:
        scope = await self._who_asks(request)
        scope.require("member")
        agent_id = await known_agent(self._threadline, scope, request)
        asked = await read_body(request, Pinning)
        await self._threadline.contexts(scope).set(agent_id, asked.context)
        return answer({"status": "applied"})

    async def pinned(self, request: Request) -> Response:
        scope = await self._who_asks(request)
        agent_id = await known_agent(self._threadline, scope, request)
        return answer(_snapshot_json(await self._threadline.contexts(scope).get(agent_id)))

    async def unpin(self, request: Request) -> Response:
        scope = await self._who_asks(request)
        scope.require("member")
        agent_id = await known_agent(self._threadline, scope, request)
        await self._threadline.contexts(scope).clear(agent_id)
        return answer({"ok": True})

    def _agents(self, scope: Scope) -> Agents:
        return Agents(self._threadline.store, self._threadline.sealer, build_agent, scope)

    def _json(self, row: AgentRow) -> dict[str, Any]:
        return present(
            id=row.id,
            name=row.name,
            provider=row.provider,
            model=row.model,
            settings=self._masker.mask_json(row.settings),
            systemPrompt=row.system_prompt,
            enabled=row.enabled,
        )


async def known_agent(threadline: Threadline, scope: Scope, request: Request) -> str:
    """The agent's id, without building or asking it. NotFound."""
    agent_id = check_id("agent", request.path_params["agent_id"])
    if agent_id not in threadline.directory.ids():
        own = await threadline.store.scoped(scope).agent(agent_id)
        if own is None or not own.enabled:
            raise NotFound("agent", agent_id)
    return agent_id


def _snapshot_json(snapshot: ContextSnapshot) -> dict[str, Any]:
    return present(
        agentId=snapshot.agent_id,
        context=snapshot.context,
        createdAt=moment(snapshot.created_at),
        updatedAt=moment(snapshot.updated_at),
    )
