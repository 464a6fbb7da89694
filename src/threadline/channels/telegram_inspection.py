"""How a Telegram bot is set up: its webhook and the last error there, what is delivered, and its privacy mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from threadline.channels.inspection import Inspection, Webhook, check_webhook, fields, names, read
from threadline.core.platform_messages import HttpRequest
from threadline.ports import Finding, InspectionContext

_SET_WEBHOOK = "call setWebhook as in docs/channels/telegram.md"
_FIXES = {
    "401": f"the secret word differs: {_SET_WEBHOOK}, with the webhook_secret that is stored",
    "404": "threadline channels credentials set telegram, in the tenant that the address names",
    "421": "set authentication = true under [service] in threadline.toml, and restart the service",
}
# An older error is from before the webhook worked.
_RECENT_SECONDS = 3_600


def inspect_telegram(
    secrets: Mapping[str, str],
    context: InspectionContext,
    whoami: HttpRequest,
    webhook: HttpRequest,
    needed: Sequence[str],
) -> Inspection:
    """`needed` are the kinds of updates that the bot reads."""
    found = []
    me = fields(fields(read((yield whoami))).get("result"))
    if me.get("can_read_all_group_messages"):
        what = f"@{me.get('username')} gets every message of its groups, not only those that are meant for it"
        found.append(Finding("warning", what, "write /setprivacy to @BotFather and choose Enable"))
    info = fields(fields(read((yield webhook))).get("result"))
    url = str(info.get("url") or "")
    if not url and secrets.get("webhook_secret"):
        what = "Telegram has no webhook, so messages arrive only while they are polled"
        found.append(Finding("warning", what, f"run threadline channels connect telegram, or {_SET_WEBHOOK}"))
    if not url:
        return found
    found += check_webhook(Webhook("telegram", url), context, _SET_WEBHOOK)
    if not secrets.get("webhook_secret"):
        what = "Telegram delivers to a webhook, but no webhook_secret is stored, so each delivery is refused"
        found.append(Finding("error", what, "threadline channels credentials set telegram"))
    if lacking := [kind for kind in needed if (allowed := names(info.get("allowed_updates"))) and kind not in allowed]:
        what = f"Telegram does not deliver {', '.join(lacking)}"
        found.append(Finding("warning", what, f"{_SET_WEBHOOK}, which names every kind of update"))
    error, at = str(info.get("last_error_message") or ""), info.get("last_error_date")
    if error and isinstance(at, int) and context.now.timestamp() - at < _RECENT_SECONDS:
        fix = next(
            (fix for status, fix in _FIXES.items() if status in error), "check the address and the proxy before it"
        )
        found.append(Finding("error", f"Telegram's last delivery failed: {error[:200]}", fix))
    return found
