"""How a Slack app is set up: its scopes, its app token, and which way it delivers.

Slack tells a bot neither its subscriptions nor its addresses; `threadline channels manifest` has the right ones.
"""

from __future__ import annotations

from threadline.channels.inspection import PUBLIC_NAMES, Inspection, fields, read
from threadline.channels.slack_manifest import SCOPES
from threadline.core.platform_messages import HttpRequest
from threadline.ports import Finding, InspectionContext


def inspect_slack(context: InspectionContext, whoami: HttpRequest, connection: HttpRequest | None) -> Inspection:
    """`connection` asks for the address of a Socket Mode connection, if there is an app token."""
    found = []
    response = yield whoami
    given = (response.headers.get("x-oauth-scopes") if response is not None else None) or ""
    granted = {scope.strip() for scope in given.split(",")}
    for scope, purpose in SCOPES.items() if given else ():
        if scope not in granted:
            what = f"the Slack app lacks the scope {scope}, so the bot cannot {purpose}"
            remedy = "paste threadline channels manifest slack into the app's App Manifest, and reinstall the app"
            found.append(Finding("warning", what, remedy))
    if connection is not None:
        opened = fields(read((yield connection)))
        if opened.get("ok") is False:
            what = f"Slack refuses a Socket Mode connection: {opened.get('error')}"
            remedy = (
                "generate an app-level token with connections:write, then: threadline channels credentials set slack"
            )
            found.append(Finding("error", what, remedy))
    elif not context.serves_public_names:
        what = "Slack delivers to a webhook, but without authentication the service answers public host names with 421"
        found.append(Finding("warning", what, PUBLIC_NAMES))
    return found
