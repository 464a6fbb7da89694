"""`threadline mcp-servers …`: what the MCP servers of the settings offer, and what is wrong with them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from threadline.agents.mcp.servers import McpServers, ServerReport
from threadline.cli.connection import load_settings
from threadline.cli.output import pluralize, print_json, print_table
from threadline.cli.printable import printable
from threadline.core.errors import NotFound, ThreadlineError
from threadline.core.mcp_servers import McpServer
from threadline.ports import Finding
from threadline.settings import Settings

_FAILED = 1


async def list_servers(args: argparse.Namespace) -> int:
    settings = load_settings(args)
    reports = await _report(settings, None)
    if args.json:
        print_json({"servers": [_describe(report, settings.mcp[report.name]) for report in reports]})
        return _exit_code(reports)
    rows = [
        (
            report.name,
            "ready" if report.state == "ready" else "failed",
            str(len(report.catalogue.tools)),
            str(len(report.catalogue.prompts)),
            str(len(report.catalogue.resources)),
            f"{report.seconds * 1000:.0f} ms" if report.state == "ready" else "",
            ", ".join(name for name, agent in settings.agents.items() if report.name in agent.mcp),
            report.reason,
        )
        for report in reports
    ]
    headings = ("name", "state", "tools", "prompts", "resources", "connected in", "agents", "error")
    print_table(headings, rows, empty="No MCP servers yet. Add one to threadline.toml: [mcp.NAME] command = […]")
    return _exit_code(reports)


async def test_servers(args: argparse.Namespace) -> int:
    settings = load_settings(args)
    if args.name is not None and args.name not in settings.mcp:
        raise NotFound("MCP server", args.name)
    reports = await _report(settings, None if args.name is None else [args.name])
    if args.json:
        print_json({"servers": [_describe(report, settings.mcp[report.name]) for report in reports]})
        return _exit_code(reports)
    for report in reports:
        _print(report, settings.mcp[report.name])
    if not reports:
        print("No MCP servers yet. Add one to threadline.toml: [mcp.NAME] command = […]")
    return _exit_code(reports)


async def find_problems(settings: Settings) -> list[Finding]:
    """For `threadline doctor`: servers that cannot be used."""
    try:
        reports = await _report(settings, None)
    except ThreadlineError as exc:
        return [Finding("error", str(exc), "correct [mcp] in threadline.toml")]
    remedy = "run threadline mcp-servers test NAME; agents answer without its tools until then"
    return [
        Finding("error", f"MCP server {report.name} failed: {report.reason}", remedy.replace("NAME", report.name))
        for report in reports
        if report.state != "ready"
    ]


async def _report(settings: Settings, names: Sequence[str] | None) -> list[ServerReport]:
    servers = McpServers(settings.mcp)
    try:
        return await servers.report(names)
    finally:
        await servers.close()


def _exit_code(reports: Sequence[ServerReport]) -> int:
    return _FAILED if any(report.state != "ready" for report in reports) else 0


def _print(report: ServerReport, server: McpServer) -> None:
    if report.state != "ready":
        print(f"{report.name}: failed: {printable(report.reason)}")
        return
    found = report.catalogue
    counts = [
        pluralize(len(found.tools), "tool"),
        pluralize(len(found.prompts), "prompt"),
        pluralize(len(found.resources), "resource"),
    ]
    print(f"{report.name}: connected in {report.seconds * 1000:.0f} ms: {', '.join(counts)}")
    for tool in found.tools:
        mark = " (asks for approval)" if server.needs_approval(tool.name) else ""
        _print_entry("tool", tool.full_name + mark, tool.description)
    for prompt in found.prompts:
        arguments = "".join(f" {each.name}" if each.required else f" [{each.name}]" for each in prompt.arguments)
        _print_entry("prompt", f"/{prompt.full_name}{arguments}", prompt.description)
    for resource in found.resources:
        _print_entry("template" if resource.is_template else "resource", resource.uri, resource.name)


def _print_entry(kind: str, name: str, about: str) -> None:
    line = about.strip().splitlines()[0] if about.strip() else ""
    print(printable(f"  {kind} {name}" + (f": {line[:100]}" if line else "")))


def _describe(report: ServerReport, server: McpServer) -> dict[str, Any]:
    found = report.catalogue
    return {
        "name": report.name,
        "state": "ready" if report.state == "ready" else "failed",
        "error": report.reason or None,
        "seconds": round(report.seconds, 3),
        "tools": [
            {"name": each.full_name, "description": each.description, "approval": server.needs_approval(each.name)}
            for each in found.tools
        ],
        "prompts": [
            {
                "name": each.full_name,
                "description": each.description,
                "arguments": [a._asdict() for a in each.arguments],
            }
            for each in found.prompts
        ],
        "resources": [{"uri": each.uri, "name": each.name, "template": each.is_template} for each in found.resources],
    }
