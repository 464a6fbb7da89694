"""`threadline agents …`: list agents, and add, enable, disable and remove the tenant's own.

Agents in `threadline.toml` are shared by all tenants; these commands list them but do not change them.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from threadline.administration.tenant_agents import TenantAgents
from threadline.agents.registry import build_agent
from threadline.bootstrap import Threadline
from threadline.cli import settings_file
from threadline.cli.connection import admin_scope, open_threadline
from threadline.cli.output import print_json, print_table, report
from threadline.core.channels import Agent as AgentRow
from threadline.core.errors import InvalidInput
from threadline.core.ids import check_id
from threadline.settings import AgentSettings

# Only the operator may use these: they reach the operator's network and environment.
_OPERATOR_SETTINGS = frozenset(("base_url", "api_key_env"))


async def list_agents(args: argparse.Namespace) -> None:
    async with open_threadline(args) as tl:
        own, shared, configured = await _agents(tl).list_agents(), tl.directory.ids(), tl.settings.agents
    if args.json:
        print_json({"agents": [_describe(row) for row in own], "everyTenants": shared})
        return
    rows = [(row.id, row.provider, row.model or "", "on" if row.enabled else "off", row.name) for row in own]
    for agent_id in shared:
        agent = configured.get(agent_id, AgentSettings(agent_id))
        rows.append((agent_id, agent.provider, agent.model or "", "on", "(shared by all tenants)"))
    print_table(
        ("id", "provider", "model", "state", "name"),
        rows,
        empty="No agents yet. Add one: threadline agents add ID --provider PROVIDER",
    )


async def add_agent(args: argparse.Namespace) -> None:
    given = dict(_parse_setting(each) for each in args.set)
    if args.base_url is not None:
        given["base_url"] = args.base_url
    if given.keys() & _OPERATOR_SETTINGS:
        _add_to_settings(args, given)
        return
    row = AgentRow(
        args.id,
        args.name or args.id,
        args.provider,
        model=args.model,
        settings=given,
        system_prompt=args.system,
    )
    async with open_threadline(args) as tl:
        added = await _agents(tl).create(row)
    report(args, _describe(added), f"Added {added.id}. Try it: threadline chat --agent {added.id}")


def _add_to_settings(args: argparse.Namespace, given: dict[str, Any]) -> None:
    """Adds an agent that a tenant may not have to the operator's settings. InvalidInput for a key: none belongs into a
    file. SettingsInvalid if the agent cannot be built."""
    if given.get("api_key", "none") != "none":
        raise InvalidInput(
            "an agent with a base_url is written to threadline.toml, where no key belongs: "
            "put the key into a variable and name it with --set api_key_env=NAME"
        )
    if args.name is not None:
        raise InvalidInput("--name is for agents of a tenant: an agent in threadline.toml is named by its id")
    check_id("agent", args.id)
    agent = AgentSettings(args.provider, args.model, args.system, settings=given)
    row = AgentRow(args.id, args.id, args.provider, model=args.model, settings=given, system_prompt=args.system)
    build_agent(row)
    path = settings_file.file_to_change(args.settings)
    settings_file.write(path, settings_file.add_agent(settings_file.read_text(path), args.id, agent))
    report(args, _describe(row), f"Added {args.id} to {path}. Try it: threadline chat --agent {args.id}")


async def enable_agent(args: argparse.Namespace) -> None:
    await _set_enabled(args, enabled=True)


async def disable_agent(args: argparse.Namespace) -> None:
    await _set_enabled(args, enabled=False)


async def _set_enabled(args: argparse.Namespace, *, enabled: bool) -> None:
    async with open_threadline(args) as tl:
        agents = _agents(tl)
        await _refuse_shared(tl, agents, args.id)
        row = await agents.change(args.id, enabled=enabled)
    report(args, _describe(row), f"{'Enabled' if enabled else 'Disabled'} {row.id}")


async def remove_agent(args: argparse.Namespace) -> None:
    async with open_threadline(args) as tl:
        agents = _agents(tl)
        await _refuse_shared(tl, agents, args.id)
        removed = await agents.delete(args.id)
    report(args, {"removed": removed}, f"Removed {args.id}" if removed else f"No agent {args.id}: nothing removed")


async def _refuse_shared(tl: Threadline, agents: TenantAgents, agent_id: str) -> None:
    if agent_id in tl.directory.ids() and agent_id not in {row.id for row in await agents.list_agents()}:
        raise InvalidInput(f"agent {agent_id!r} is shared by all tenants: change it in threadline.toml")


def _agents(tl: Threadline) -> TenantAgents:
    return tl.tenant_agents(admin_scope(tl))


def _parse_setting(text: str) -> tuple[str, Any]:
    """Splits `NAME=VALUE`. A value that is valid JSON is decoded; any other is a string."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise InvalidInput(f"--set must be NAME=VALUE, got {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _describe(row: AgentRow) -> dict[str, Any]:
    """Everything but `settings`, which can contain an API key."""
    return {
        "id": row.id,
        "name": row.name,
        "provider": row.provider,
        "model": row.model,
        "systemPrompt": row.system_prompt,
        "enabled": row.enabled,
    }
