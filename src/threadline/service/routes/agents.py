"""The routes of agents: those of the tenant (for administrators), and the context a user pinned for one.

Pinning a context does not contact the agent, which may be unreachable. Agents of other tenants are not found. Secrets
in an agent's settings are stored encrypted and masked in responses: they can be written but not read.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadline.agents.setting_secrets import shown_settings
from threadline.api_types import AgentInfo, AgentsResponse, ApiStruct, Id, OkResponse, PinnedContext
from threadline.bootstrap import Threadline
from threadline.core import errors
from threadline.core.channels import Agent as AgentRow
from threadline.core.channels import ContextSnapshot
from threadline.core.errors import NotFound
from threadline.core.ids import check_id
from threadline.core.threads import Scope
from threadline.service.context import ServiceContext
from threadline.service.http.request_context import scope_of
from threadline.service.http.requests import RequestStruct, read_body
from threadline.service.http.responses import json_response
from threadline.service.openapi.operation import Body, Link, ResponseSpec, operation
from threadline.turns.meters import allowed_models

_AGENTS = "/api/v1/agents"
_AGENT = _AGENTS + "/{agent_id}"


class PinContextBody(RequestStruct, frozen=True):
    context: str


class CreateAgentBody(RequestStruct, frozen=True):
    id: Id
    provider: str
    name: str | None = None
    model: str | None = None
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    system_prompt: str | None = None
    enabled: bool = True


class ChangeAgentBody(RequestStruct, frozen=True):
    provider: str | msgspec.UnsetType = msgspec.UNSET
    name: str | msgspec.UnsetType = msgspec.UNSET
    model: str | msgspec.UnsetType | None = msgspec.UNSET
    settings: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    system_prompt: str | msgspec.UnsetType | None = msgspec.UNSET
    enabled: bool | msgspec.UnsetType = msgspec.UNSET


class AppliedResponse(ApiStruct, frozen=True):
    status: Literal["applied"]


_OWN_AGENT = {"agent_id": "concierge"}


class AgentRoutes:
    def __init__(self, context: ServiceContext) -> None:
        self._threadline = context.threadline

    def routes(self) -> list[Route]:
        return [
            Route(_AGENTS, self.list_agents, methods=["GET"]),
            Route(_AGENTS, self.create, methods=["POST"]),
            Route(_AGENT, self.change, methods=["PATCH"]),
            Route(_AGENT, self.delete, methods=["DELETE"]),
            Route(_AGENT + "/context", self.pin_context, methods=["POST"]),
            Route(_AGENT + "/context", self.read_context, methods=["GET"]),
            Route(_AGENT + "/context", self.clear_context, methods=["DELETE"]),
        ]

    @operation(
        "listAgents",
        "List agents",
        ResponseSpec(
            200, "The tenant's agents, the ids of the agents that every tenant has, and the default.", AgentsResponse
        ),
        tag="agents",
    )
    async def list_agents(self, request: Request) -> Response:
        scope = scope_of(request)
        own = await self._threadline.tenant_agents(scope).list_agents()
        directory = self._threadline.directory
        shared, default = list(directory.ids()), self._threadline.settings.agent
        rows = [*filter(None, map(directory.configured_row, shared)), *own]
        models = {row.id: list(found) for row in rows if (found := allowed_models(row))}
        return json_response(AgentsResponse([_info(row) for row in own], shared, default, models))

    @operation(
        "createAgent",
        "Create an agent",
        ResponseSpec(
            201,
            "The agent.",
            AgentInfo,
            links=tuple(
                Link(id, {"agentId": "$response.body#/id"})
                for id in ("updateAgent", "deleteAgent", "pinContext", "askAgent", "streamAgent")
            ),
        ),
        tag="agents",
        body=Body(
            CreateAgentBody, {"a second rehearsal agent": {"id": "porter", "provider": "rehearsal", "name": "Porter"}}
        ),
        errors=(errors.InvalidName, errors.DuplicateId, errors.EncryptionKeyMissing),
    )
    async def create(self, request: Request) -> Response:
        scope = scope_of(request)
        body = await read_body(request, CreateAgentBody)
        fields = {**msgspec.structs.asdict(body), "name": body.name or body.id}
        return json_response(_info(await self._threadline.tenant_agents(scope).create(AgentRow(**fields))), 201)

    @operation(
        "updateAgent",
        "Change an agent",
        ResponseSpec(200, "The changed agent.", AgentInfo),
        tag="agents",
        body=Body(ChangeAgentBody, {"disable": {"enabled": False}}, required=False),
        errors=(errors.NotFound, errors.InvalidName, errors.EncryptionKeyMissing),
        path=_OWN_AGENT,
    )
    async def change(self, request: Request) -> Response:
        scope = scope_of(request)
        changes = msgspec.structs.asdict(await read_body(request, ChangeAgentBody))
        given = {name: value for name, value in changes.items() if value is not msgspec.UNSET}
        row = await self._threadline.tenant_agents(scope).change(request.path_params["agent_id"], **given)
        return json_response(_info(row))

    @operation(
        "deleteAgent",
        "Delete an agent",
        ResponseSpec(200, "The agent and the contexts pinned for it are deleted, or did not exist.", OkResponse),
        tag="agents",
        errors=(errors.InvalidName,),
        path=_OWN_AGENT,
    )
    async def delete(self, request: Request) -> Response:
        await self._threadline.tenant_agents(scope_of(request)).delete(request.path_params["agent_id"])
        return json_response(OkResponse(True))

    @operation(
        "pinContext",
        "Pin a text that the agent gets first in every turn of this user",
        ResponseSpec(
            200,
            "The text is stored.",
            AppliedResponse,
            links=(Link("readContext", {"agentId": "$request.path.agentId"}),),
        ),
        tag="agents",
        body=Body(PinContextBody, {"a preference": {"context": "I travel with two children."}}),
        errors=(errors.NotFound, errors.InvalidName, errors.GuardRefused),
    )
    async def pin_context(self, request: Request) -> Response:
        scope = scope_of(request)
        agent_id = await self._context_agent_id(scope, request)
        body = await read_body(request, PinContextBody)
        await self._threadline.contexts(scope).set(agent_id, body.context)
        return json_response(AppliedResponse("applied"))

    @operation(
        "readContext",
        "Read the context that the user pinned for an agent",
        ResponseSpec(200, "The pinned context.", PinnedContext),
        tag="agents",
        errors=(errors.NotFound, errors.InvalidName),
    )
    async def read_context(self, request: Request) -> Response:
        scope = scope_of(request)
        agent_id = await self._context_agent_id(scope, request)
        return json_response(_pinned_context(await self._threadline.contexts(scope).get(agent_id)))

    @operation(
        "clearContext",
        "Delete the context that the user pinned for an agent",
        ResponseSpec(200, "Nothing is pinned.", OkResponse),
        tag="agents",
        errors=(errors.NotFound, errors.InvalidName),
    )
    async def clear_context(self, request: Request) -> Response:
        scope = scope_of(request)
        agent_id = await self._context_agent_id(scope, request)
        await self._threadline.contexts(scope).clear(agent_id)
        return json_response(OkResponse(True))

    async def _context_agent_id(self, scope: Scope, request: Request) -> str:
        """The id from the path, if there is such an agent, enabled or not, or the user has pinned a context for it. An
        agent that left the settings keeps its users' texts, and they stay in their reach. NotFound."""
        agent_id = check_id("agent", request.path_params["agent_id"])
        session = self._threadline.store.scoped(scope)
        if agent_id in self._threadline.directory.ids() or await session.agent(agent_id) is not None:
            return agent_id
        if await session.context(agent_id) is None:
            raise NotFound("agent", agent_id)
        return agent_id


async def find_agent_id(threadline: Threadline, scope: Scope, request: Request) -> str:
    """The id from the path, checked without building the agent. NotFound, also for an agent that is disabled."""
    agent_id = check_id("agent", request.path_params["agent_id"])
    if agent_id not in threadline.directory.ids():
        own = await threadline.store.scoped(scope).agent(agent_id)
        if own is None or not own.enabled:
            raise NotFound("agent", agent_id)
    return agent_id


def _info(row: AgentRow) -> AgentInfo:
    return AgentInfo(
        id=row.id,
        name=row.name,
        provider=row.provider,
        model=row.model,
        settings=shown_settings(row),
        system_prompt=row.system_prompt,
        enabled=row.enabled,
    )


def _pinned_context(snapshot: ContextSnapshot) -> PinnedContext:
    return PinnedContext(
        agent_id=snapshot.agent_id,
        owner_id=snapshot.owner_id,
        context=snapshot.context,
        created_at=snapshot.created_at,
        updated_at=snapshot.updated_at,
    )
