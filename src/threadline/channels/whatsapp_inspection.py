"""How a WhatsApp app is set up: the permissions and the end of its token, whether the app is subscribed to the account,
and the address that Meta delivers to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

from threadline.channels.inspection import Inspection, Webhook, check_webhook, fields, names, objects, read
from threadline.core.platform_messages import HttpRequest
from threadline.ports import Finding, InspectionContext

_PERMISSIONS = {
    "whatsapp_business_messaging": "send replies",
    "whatsapp_business_management": "be asked what it is subscribed to",
}
_OBJECT = "whatsapp_business_account"
_CONFIGURATION = "press Edit beside the webhook under WhatsApp, Configuration in the app's dashboard"
# Long enough to create another token before the bot falls silent.
_SOON_SECONDS = 3 * 86_400


def inspect_whatsapp(secrets: Mapping[str, str], context: InspectionContext, api: str) -> Inspection:
    token = secrets["access_token"]
    bearer = {"authorization": f"Bearer {token}"}
    asked = HttpRequest("GET", f"{api}/debug_token?{urlencode({'input_token': token})}", bearer)
    about = fields(fields(read((yield asked))).get("data"))
    found = list(_check_token(about, context)) if about else []
    for account in _accounts(about):
        subscribed = read((yield HttpRequest("GET", f"{api}/{account}/subscribed_apps", bearer)))
        if isinstance(subscribed, dict) and subscribed.get("data") == []:
            what = f"the app is not subscribed to the WhatsApp account {account}, so nothing arrives"
            remedy = f"curl -X POST -H 'Authorization: Bearer <access_token>' {api}/{account}/subscribed_apps"
            found.append(Finding("error", what, remedy))
    app_id = str(about.get("app_id") or "")
    if app_id.isdigit():
        # An app's own token: its id and its secret.
        own = {"authorization": f"Bearer {app_id}|{secrets['app_secret']}"}
        response = read((yield HttpRequest("GET", f"{api}/{app_id}/subscriptions", own)))
        found += _check_subscriptions(fields(response), context)
    return found


def _check_token(about: dict[str, Any], context: InspectionContext) -> Iterator[Finding]:
    scopes = names(about.get("scopes"))
    for permission, purpose in _PERMISSIONS.items() if scopes else ():
        if permission not in scopes:
            what = f"the access token lacks {permission}, so the bot cannot {purpose}"
            remedy = "create a token of a system user with it, then: threadline channels credentials set whatsapp"
            yield Finding("error" if permission.endswith("messaging") else "warning", what, remedy)
    ends_at = about.get("expires_at")
    if isinstance(ends_at, int) and 0 < ends_at < context.now.timestamp() + _SOON_SECONDS:
        remedy = (
            "create a token of a system user, which does not expire, then: threadline channels credentials set whatsapp"
        )
        yield Finding("warning", "the access token expires within three days", remedy)


def _accounts(about: dict[str, Any]) -> list[str]:
    """The WhatsApp accounts that the token was given."""
    granted = objects(about.get("granular_scopes"))
    ids = [each for scope in granted if scope.get("scope") in _PERMISSIONS for each in names(scope.get("target_ids"))]
    return sorted({each for each in ids if each.isdigit()})


def _check_subscriptions(response: dict[str, Any], context: InspectionContext) -> Iterator[Finding]:
    if "error" in response:
        what = "Meta does not accept the app secret, so deliveries are refused"
        yield Finding("error", what, "copy it from App settings, Basic: threadline channels credentials set whatsapp")
        return
    if "data" not in response:
        return
    mine = [each for each in objects(response["data"]) if each.get("object") == _OBJECT]
    if not mine or not mine[0].get("callback_url"):
        yield Finding("error", "Meta has no webhook for WhatsApp, so nothing arrives", _CONFIGURATION)
        return
    subscribed = [str(field.get("name")) for field in objects(mine[0].get("fields"))]
    if "messages" not in subscribed:
        remedy = "subscribe to it under WhatsApp, Configuration in the app's dashboard"
        yield Finding("error", "the webhook's field messages is not subscribed, so nothing arrives", remedy)
    if mine[0].get("active") is False:
        yield Finding("error", "Meta has switched the webhook off", _CONFIGURATION)
    yield from check_webhook(Webhook("whatsapp", str(mine[0]["callback_url"])), context, _CONFIGURATION)
