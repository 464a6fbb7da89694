"""The routes of agents: the tenant's own (for its administrator), and the context pinned for one.

A pinned context is stored without asking the agent, which may be away. Agents of another tenant are as unknown as those
that never were. What an agent's settings hold is shown masked: keys go in and do not come out.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadline.administration.tenant_agents import Agents
from threadline.agents.registry import build_agent
from threadline.api_types import AgentInfo, AgentsResponse, ApiStruct, Id, OkResponse, PinnedContext
from threadline.bootstrap import Threadline
from threadline.core import errors
from threadline.core.channels import Agent as AgentRow
from threadline.core.channels import ContextSnapshot
from threadline.core.errors import NotFound
from threadline.core.ids import check_id
from threadline.core.masking import SecretMasker
from threadline.core.threads import Scope
from threadline.service.auth.callers import WhoAsks
from threadline.service.operation import Body, Link, ResponseSpec, operation
from threadline.service.requests import Shape, read_body
from threadline.service.responses import json_response

_AGENTS = "/api/v1/agents"
_AGENT = _AGENTS + "/{agent_id}"


class Pinning(Shape, frozen=True):
    context: str


class NewAgent(Shape, frozen=True):
    id: Id
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


class Applied(ApiStruct, frozen=True):
    status: Literal["applied"]


_OWN = {"agent_id": "concierge"}


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

    @operation(
        "listAgents",
        "List agents",
        ResponseSpec(200, "The agents that can be asked.", AgentsResponse),
        tag="agents",
    )
    async def list_agents(self, request: Request) -> Response:
        """The tenant's own, and the names of those that every tenant has."""
        scope = await self._who_asks(request)
        own = await self._agents(scope).list_agents()
        shared, default = list(self._threadline.directory.ids()), self._threadline.settings.agent
        return json_response(AgentsResponse([self._shown(row) for row in own], shared, default))

    @operation(
        "createAgent",
        "Add an agent to the tenant",
        ResponseSpec(
            201,
            "The agent.",
            AgentInfo,
            links=tuple(
                Link(id, {"agentId": "$response.body#/id"})
                for id in ("changeAgent", "deleteAgent", "pinContext", "readContext", "askAgent", "streamAgent")
            ),
        ),
        tag="agents",
        body=Body(NewAgent, {"another rehearsal": {"id": "porter", "provider": "rehearsal", "name": "Porter"}}),
        errors=(errors.InvalidName, errors.InvalidText, errors.DuplicateId),
        needs="admin",
    )
    async def create(self, request: Request) -> Response:
        scope = await self._who_asks(request)
        asked = await read_body(request, NewAgent)
        fields = {**msgspec.structs.asdict(asked), "name": asked.name or asked.id}
        return json_response(self._shown(await self._agents(scope).create(AgentRow(**fields))), 201)

    @operation(
        "changeAgent",
        "Change an agent of the tenant",
        ResponseSpec(200, "The agent as it is now.", AgentInfo),
        tag="agents",
        body=Body(AgentChanges, {"switch off": {"enabled": False}}, required=False),
        errors=(errors.NotFound, errors.InvalidName, errors.InvalidText),
        needs="admin",
        path=_OWN,
    )
    async def change(self, request: Request) -> Response:
        scope = await self._who_asks(request)
        agents = self._agents(scope)
        changes = msgspec.structs.asdict(await read_body(request, AgentChanges))
        given = {name: value for name, value in changes.items() if value is not msgspec.UNSET}
        row = msgspec.structs.replace(await agents.get(request.path_params["agent_id"]), **given)
        return json_response(self._shown(await agents.replace(row)))

    @operation(
        "deleteAgent",
        "Remove an agent from the tenant",
        ResponseSpec(200, "It is gone, or was, with what was pinned for it.", OkResponse),
        tag="agents",
        errors=(errors.InvalidName,),
        needs="admin",
        path=_OWN,
    )
    async def delete(self, request: Request) -> Response:
        await self._agents(await self._who_asks(request)).delete(request.path_params["agent_id"])
        return json_response(OkResponse(True))

    @operation(
        "pinContext",
        "Pin a text that the agent is shown first, on every turn of this user",
        ResponseSpec(200, "It is stored; the agent was not asked.", Applied),
        tag="agents",
        body=Body(Pinning, {"a preference": {"context": "I travel with two children."}}),
        errors=(errors.NotFound, errors.InvalidName, errors.InvalidText, errors.GuardRefused),
        needs="member",
    )
    async def pin(self, request: Request) -> Response:
        scope = await self._who_asks(request)
        agent_id = await known_agent(self._threadline, scope, request)
        asked = await read_body(request, Pinning)
        await self._threadline.contexts(scope).set(agent_id, asked.context)
        return json_response(Applied("applied"))

    @operation(
        "readContext",
        "Read what the user pinned for an agent",
        ResponseSpec(200, "The text.", PinnedContext),
        tag="agents",
        errors=(errors.NotFound, errors.InvalidName),
    )
    async def pinned(self, request: Request) -> Response:
        scope = await self._who_asks(request)
        agent_id = await known_agent(self._threadline, scope, request)
        return json_response(_snapshot_shown(await self._threadline.contexts(scope).get(agent_id)))

    @operation(
        "clearContext",
        "Forget what the user pinned for an agent",
        ResponseSpec(200, "There is nothing pinned any more.", OkResponse),
        tag="agents",
        errors=(errors.NotFound, errors.InvalidName),
        needs="member",
    )
    async def unpin(self, request: Request) -> Response:
        scope = await self._who_asks(request)
        agent_id = await known_agent(self._threadline, scope, request)
        await self._threadline.contexts(scope).clear(agent_id)
        return json_response(OkResponse(True))

    def _agents(self, scope: Scope) -> Agents:
        return Agents(self._threadline.store, self._threadline.sealer, build_agent, scope)

    def _shown(self, row: AgentRow) -> AgentInfo:
        return AgentInfo(
            id=row.id,
            name=row.name,
            provider=row.provider,
            model=row.model,
            settings=self._masker.mask_json(row.settings),
            system_prompt=row.system_prompt,
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


def _snapshot_shown(snapshot: ContextSnapshot) -> PinnedContext:
    return PinnedContext(
        agent_id=snapshot.agent_id,
        context=snapshot.context,
        created_at=snapshot.created_at,
        updated_at=snapshot.updated_at,
    )
