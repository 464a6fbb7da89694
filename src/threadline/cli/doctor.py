"""`threadline doctor`: checks the settings, the agents and the database, and prints how to fix what it finds."""

from __future__ import annotations

import argparse
import os
from typing import Any

from threadline import maintenance
from threadline.agents.mcp.servers import McpServers
from threadline.agents.registry import build_agent
from threadline.cli.connection import load_settings
from threadline.cli.mcp_servers import find_problems
from threadline.cli.model_search import find_key, probe_models
from threadline.cli.output import print_json
from threadline.cli.printable import printable, without_password
from threadline.core.channels import Agent as AgentRow
from threadline.core.errors import ExtraMissing, SchemaMismatch, SettingsInvalid, ThreadlineError
from threadline.ports import Finding
from threadline.process_agents import configured_agents
from threadline.settings import Settings

_UNHEALTHY = 1
# One that needs longer for a list of models is not usable for a chat.
_PROBE_SECONDS = 5.0


async def doctor(args: argparse.Namespace) -> int:
    settings, findings = await _find_problems(args)
    database = None if settings is None else without_password(settings.database)
    if args.json:
        print_json({"database": database, "findings": findings})
    else:
        if database is not None:
            print(f"Database: {printable(database)}")
        for finding in findings:
            print(f"{finding.level}: {printable(finding.what)}\n  → {printable(finding.remedy)}")
        if not findings:
            print("No problems found.")
    return _UNHEALTHY if any(finding.level == "error" for finding in findings) else 0


async def _find_problems(args: argparse.Namespace) -> tuple[Settings | None, list[Finding]]:
    try:
        settings = load_settings(args)
    except SettingsInvalid as exc:
        return None, [Finding("error", str(exc), "correct the settings; docs/settings.md describes every key")]
    findings = [*await _check_agents(settings), *await _check_database(settings), *await find_problems(settings)]
    return settings, findings


async def _check_database(settings: Settings) -> list[Finding]:
    if not maintenance.database_exists(settings.database):
        return [Finding("warning", "no database yet", "start a chat to create it: threadline chat")]
    try:
        return await maintenance.check(settings)
    except SchemaMismatch as exc:
        return [Finding("error", str(exc), "run threadline migrate with the login of the tables' owner")]
    except ThreadlineError as exc:
        return [Finding("error", str(exc), "fix this, then run threadline doctor again")]


async def _check_agents(settings: Settings) -> list[Finding]:
    """Builds every agent of the settings, which checks its provider, its settings, its key and its code."""
    findings: list[Finding] = []
    try:
        servers = McpServers(settings.mcp)
    except SettingsInvalid:
        # The check of the servers reports it; their agents cannot be built.
        return findings
    for name, row in configured_agents(settings).items():
        try:
            built: Any = build_agent(row, servers=servers)
        except (SettingsInvalid, ExtraMissing) as exc:
            remedy = "install it" if isinstance(exc, ExtraMissing) else f"correct [agents.{name}] of the settings"
            findings.append(Finding("error", str(exc), remedy))
            continue
        if (close := getattr(built, "close", None)) is not None:
            await close()
        findings += await _check_server(row)
    await servers.close()
    if settings.agent not in {"rehearsal", *settings.agents} and not await _is_tenants(settings):
        what = f"`agent` must be one of {', '.join(sorted({'rehearsal', *settings.agents}))}, got {settings.agent!r}"
        findings.append(Finding("error", what, "name a configured agent, or run threadline init"))
    return findings


async def _is_tenants(settings: Settings) -> bool:
    """Whether the default agent is one that a tenant added; those are in the database."""
    if not maintenance.database_exists(settings.database):
        return False
    try:
        return settings.agent in await maintenance.tenant_agent_ids(settings)
    except ThreadlineError:
        return True  # the check of the database says what is wrong with it


async def _check_server(row: AgentRow) -> list[Finding]:
    """Whether the provider accepts the key, and whether a server on this network answers and has the model."""
    base_url = row.settings.get("base_url")
    if row.provider not in ("openai", "anthropic") or not isinstance(base_url, str | None):
        return []
    key, variable = find_key(row.provider, row.settings, os.environ)
    probe = await probe_models(row.provider, base_url, key, _PROBE_SECONDS)
    where = base_url or row.provider
    if probe.status in (401, 403):
        named = f" in ${variable}" if variable else ""
        what = (
            f"agent {row.id!r}: {where} refused the key{named} ({probe.status})"
            if key
            else (f"agent {row.id!r}: {where} requires a key ({probe.status})")
        )
        return [Finding("error", what, "set api_key_env to the variable of a valid key")]
    if probe.fault:
        remedy = "start the server, or correct base_url" if base_url else "check the network and its proxy"
        return [Finding("warning", f"agent {row.id!r}: {where} cannot be reached: {probe.fault}", remedy)]
    if base_url is None or not base_url.startswith("http://"):
        return []
    if not probe.models:
        return [
            Finding("warning", f"agent {row.id!r}: {base_url} lists no models", "load a model, or correct base_url")
        ]
    if row.model is not None and row.model not in probe.models:
        offered = ", ".join(probe.models[:5])
        what = f"agent {row.id!r}: the server does not list the model {row.model!r}"
        return [Finding("warning", what, f"it lists {offered}")]
    return []
