"""The agents of one process: those of the settings and of the tenants' rows, built with the process's tools, and traced
if tracing is on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from threadline.agents.mcp.servers import McpServers
from threadline.agents.registry import build_agent
from threadline.agents.setting_secrets import SettingSecrets
from threadline.agents.tools import Tool
from threadline.core.channels import Agent as AgentRow
from threadline.observability.tracing import TracedAgent
from threadline.ports import Agent, Store, Tracer
from threadline.settings import AgentSettings, Settings
from threadline.turns.agent_directory import Directory


def open_directory(
    store: Store,
    settings: Settings,
    secrets: SettingSecrets,
    tools: Sequence[Tool],
    servers: McpServers,
    given: Mapping[str, Agent],
    tracer: Tracer | None,
) -> Directory:
    configured = configured_agents(settings)
    build = partial(build_agent, tools=tuple(tools), servers=servers)
    if tracer is None:
        return Directory(store, build, secrets.decrypt, given=given, configured=configured)
    traced = partial(TracedAgent, tracer=tracer, content=settings.tracing.content)

    def build_traced(row: AgentRow, *, trusted: bool) -> Agent:
        return traced(build(row, trusted=trusted), provider=row.provider)

    named = {name: traced(agent) for name, agent in given.items()}
    return Directory(store, build_traced, secrets.decrypt, given=named, configured=configured)


def configured_agents(settings: Settings) -> dict[str, AgentRow]:
    """The agents of the settings; `rehearsal` is always there."""
    named = {name: _row(name, agent) for name, agent in settings.agents.items()}
    return {"rehearsal": AgentRow(id="rehearsal", name="rehearsal", provider="rehearsal"), **named}


def _row(agent_id: str, agent: AgentSettings) -> AgentRow:
    """As in rows of tenants, whose `tools` and `mcp` are refused, all that the provider checks is in its settings."""
    named = {key: list(names) for key in ("tools", "mcp") if (names := getattr(agent, key))}
    return AgentRow(
        id=agent_id,
        name=agent_id,
        provider=agent.provider,
        model=agent.model,
        settings={**agent.settings, **named},
        system_prompt=agent.system_prompt,
    )
