"""`threadline agents …`: who can be asked, and the agents of a tenant's own, as its administrator sets them up.

What is in `threadline.toml` is every tenant's and is changed there.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import msgspec

from threadline.administration.tenant_agents import Agents
from threadline.agents.registry import build_agent
from threadline.bootstrap import Threadline
from threadline.cli.connection import opened
from threadline.cli.output import print_json, print_table, say
from threadline.core.channels import Agent as AgentRow
from threadline.core.errors import InvalidInput
from threadline.core.threads import Scope
from threadline.settings import AgentSettings


async def list_agents(args: argparse.Namespace) -> None:
    async with opened(args) as tl:
        own, shared, configured = await _agents(tl).list_agents(), tl.directory.ids(), tl.settings.agents
    if args.json:
        print_json({"agents": [_described(row) for row in own], "everyTenants": shared})
        return
    rows = [(row.id, row.provider, row.model or "", "on" if row.enabled else "off", row.name) for row in own]
    for agent_id in shared:
        made = configured.get(agent_id, AgentSettings(agent_id))
        rows.append((agent_id, made.provider, made.model or "", "on", "every tenant's"))
    print_table(("id", "provider", "model", "state", "name"), rows, empty="Nobody can be asked.")


async def add_agent(args: argparse.Namespace) -> None:
    row = AgentRow(
        args.id,
        args.name or args.id,
        args.provider,
        model=args.model,
        settings=dict(_setting(each) for each in args.set),
        system_prompt=args.system,
    )
    async with opened(args) as tl:
        added = await _agents(tl).create(row)
    say(args, _described(added), f"Added {added.id}. Try it: threadline chat --agent {added.id}")


async def enable_agent(args: argparse.Namespace) -> None:
    await _switch(args, enabled=True)


async def disable_agent(args: argparse.Namespace) -> None:
    await _switch(args, enabled=False)


async def _switch(args: argparse.Namespace, *, enabled: bool) -> None:
    async with opened(args) as tl:
        agents = _agents(tl)
        await _refuse_others(tl, agents, args.id)
        row = await agents.replace(msgspec.structs.replace(await agents.get(args.id), enabled=enabled))
    say(args, _described(row), f"{row.id} {'can be asked' if enabled else 'cannot be asked any more'}")


async def remove_agent(args: argparse.Namespace) -> None:
    async with opened(args) as tl:
        agents = _agents(tl)
        await _refuse_others(tl, agents, args.id)
        removed = await agents.delete(args.id)
    say(args, {"removed": removed}, f"Removed {args.id}" if removed else f"There was no agent {args.id}")


async def _refuse_others(tl: Threadline, agents: Agents, agent_id: str) -> None:
    if agent_id in tl.directory.ids() and agent_id not in {row.id for row in await agents.list_agents()}:
        raise InvalidInput(f"{agent_id} is every tenant's: it is changed in threadline.toml")


def _agents(tl: Threadline) -> Agents:
    """Whoever can open the database is its administrator."""
    return Agents(tl.store, tl.sealer, build_agent, Scope(tl.settings.tenant, tl.settings.user, "admin"))


def _setting(text: str) -> tuple[str, Any]:
    """`NAME=VALUE`, where a value that is JSON is taken as such, and any other as the text it is."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise InvalidInput(f"{text!r} is not NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _described(row: AgentRow) -> dict[str, Any]:
    """Without its settings: they may hold a key, which goes in and never comes out."""
    return {
        "id": row.id,
        "name": row.name,
        "provider": row.provider,
        "model": row.model,
        "systemPrompt": row.system_prompt,
        "enabled": row.enabled,
    }
