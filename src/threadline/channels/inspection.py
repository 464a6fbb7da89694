"""Inspections: a platform is asked how a bot is set up there; what is wrong becomes findings, each with one next step.

An inspection is a generator without I/O: it yields requests and is sent the platform's responses, None without one.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from threadline.channels.platform_payloads import convert_or_none, parse_json
from threadline.core.errors import InvalidInput
from threadline.core.platform_messages import HttpRequest, HttpResponse
from threadline.core.turns import Surface
from threadline.ports import Finding, InspectionContext

Inspection: TypeAlias = Generator[HttpRequest, HttpResponse | None, list[Finding]]
PUBLIC_NAMES = "set authentication = true under [service] in threadline.toml, and restart the service"


class Webhook(NamedTuple):
    """An address that a platform delivers to."""

    platform: Surface
    url: str


def check_webhook(webhook: Webhook, context: InspectionContext, remedy: str) -> list[Finding]:
    """What can be seen of an address without calling it. `remedy` sets another one."""
    expected = f"/api/v1/tenants/{context.tenant_id}/channels/{webhook.platform}/webhook"
    parts = urlsplit(webhook.url)
    found = []
    if not parts.path.endswith(expected):
        what = f"{webhook.platform} delivers to {webhook.url[:200]!r}, which is not this tenant's webhook"
        found.append(Finding("error", what, f"{remedy}; the address must end with {expected}"))
    if not context.serves_public_names:
        what = f"{webhook.platform} delivers to {parts.hostname}, but without authentication public names get 421"
        found.append(Finding("error", what, PUBLIC_NAMES))
    return found


def read(response: HttpResponse | None) -> Any:
    """The body as JSON; None if there is none that can be read."""
    try:
        return None if response is None else parse_json(response.body)
    except InvalidInput:
        return None


def names(value: Any) -> Sequence[str]:
    """A list of strings; empty for anything else."""
    return convert_or_none(value, list[str]) or []


def fields(value: Any) -> dict[str, Any]:
    """A JSON object; empty for anything else."""
    return value if isinstance(value, dict) else {}


def objects(value: Any) -> list[dict[str, Any]]:
    """The JSON objects of a list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
