"""`threadline doctor`: checks the settings, the agents and the database, and prints how to fix what it finds."""

from __future__ import annotations

import argparse
from typing import Any

from threadline import maintenance
from threadline.agents.mcp.servers import McpServers
from threadline.agents.registry import build_agent
from threadline.cli.connection import load_settings
from threadline.cli.mcp_servers import find_problems
from threadline.cli.model_search import list_server_models
from threadline.cli.output import print_json
from threadline.cli.printable import printable, without_password
from threadline.core.channels import Agent as AgentRow
from threadline.core.errors import ExtraMissing, SchemaMismatch, SettingsInvalid, ThreadlineError
from threadline.ports import Finding
from threadline.process_agents import configured_agents
from threadline.settings import Settings

_UNHEALTHY = 1
# A server on this machine or in this network; one that needs longer for a list is not usable for a chat.
_PROBE_SECONDS = 2.0


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
    """Whether a local model server answers and has the model."""
    base_url = row.settings.get("base_url")
    if row.provider != "openai" or not isinstance(base_url, str) or not base_url.startswith("http://"):
        return []
    models = await list_server_models(base_url, _PROBE_SECONDS)
    if not models:
        return [
            Finding("warning", f"agent {row.id!r}: {base_url} lists no models", "start the server, or load a model")
        ]
    if row.model is not None and row.model not in models:
        offered = ", ".join(models[:5])
        what = f"agent {row.id!r}: the server does not list the model {row.model!r}"
        return [Finding("warning", what, f"it lists {offered}")]
    return []
