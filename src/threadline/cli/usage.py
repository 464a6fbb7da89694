"""`threadline usage`: what was used, by day, user, agent, model and kind."""

from __future__ import annotations

import argparse
import datetime as dt
from collections.abc import Sequence
from typing import cast

from threadline.cli.connection import admin_scope, open_threadline
from threadline.cli.output import print_json, print_table
from threadline.core.errors import InvalidInput
from threadline.core.usage import USAGE_GROUPS, UsageFilter, UsageGroup, UsageRow


async def list_usage(args: argparse.Namespace) -> None:
    """For the whole tenant: anyone who can open the database can read every row in it."""
    # `UsageReports` checks that each is a group.
    groups = cast(list[UsageGroup], [group.strip() for group in args.by.split(",") if group.strip()])
    wanted: UsageFilter = {
        "by": groups,
        "since": _day("--since", args.since),
        "until": _day("--until", args.until),
        "user": args.of_user,
        "agent": args.agent,
    }
    async with open_threadline(args) as threadline:
        found = await threadline.usage_reports(admin_scope(threadline)).read(**wanted)
        currency = threadline.settings.currency
    if args.json:
        print_json({"usage": [_describe(row) for row in found], "currency": currency})
        return
    names = [name for name in USAGE_GROUPS if name in groups]
    columns = (*names, "turns", "input", "cached", "output", "cost")
    print_table(columns, [_cells(row, names, currency) for row in found], empty="Nothing was used in these days.")


def _day(option: str, text: str | None) -> dt.date | None:
    try:
        return None if text is None else dt.date.fromisoformat(text)
    except ValueError as exc:
        raise InvalidInput(f"{option} must be a day such as 2026-11-16, got {text!r}") from exc


def _describe(row: UsageRow) -> dict[str, object]:
    keys = {
        "day": row.day,
        "user": row.user_id,
        "agent": row.agent_id,
        "provider": row.provider,
        "model": row.model,
        "kind": row.kind,
    }
    return {
        **{name: value for name, value in keys.items() if value is not None},
        "turns": row.turns,
        "inputTokens": row.input_tokens,
        "outputTokens": row.output_tokens,
        "cachedTokens": row.cached_tokens,
        "reasoningTokens": row.reasoning_tokens,
        "cost": row.cost,
    }


def _cells(row: UsageRow, names: Sequence[str], currency: str) -> tuple[str, ...]:
    model = row.model or "(unknown)"
    shown = {
        "day": str(row.day),
        "user": row.user_id or "",
        "agent": row.agent_id or "",
        "kind": row.kind or "",
        "model": f"{row.provider}/{model}" if row.provider else model,
    }
    counts = (row.turns, row.input_tokens, row.cached_tokens, row.output_tokens)
    cost = "" if row.cost is None else f"{row.cost:,.4f} {currency}"
    return (*(shown[name] for name in names), *(f"{count:,}" for count in counts), cost)
