"""A stand-in for WhatsApp's Cloud API: signed webhooks and statuses out, `/messages` in.

The window is real: a person who has not written for 24 hours of the clock cannot be written to, but with one of the
`templates`.
"""

from __future__ import annotations

import datetime as dt
import json
from typing import Any, ClassVar
from urllib.parse import urlencode

from threadline.channels.whatsapp import signature
from threadline.core.turns import Surface
from threadline.ports import Clock
from threadline.testing.platforms.loopback import Asked, Told, ask
from threadline.testing.platforms.platform import FakePlatform, Fault, Reply, fall_silent, told

NUMBER_ID = "106540352242922"
NUMBER = "15550783881"
ACCOUNT = "102290129340398"
APP_ID = "634974688087057"
WINDOW = dt.timedelta(hours=24)


class FakeWhatsApp(FakePlatform):
    platform: ClassVar[Surface] = "whatsapp"
    person: ClassVar[str] = "16505551234"

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        port: int = 0,
        app_secret: str = "fake-app-secret",
        access_token: str = "fake-access-token",
        verify_token: str = "fake-verify-token",
    ) -> None:
        super().__init__(clock, port=port)
        self._app_secret = app_secret
        self._access_token = access_token
        self._verify_token = verify_token
        self._wamids = 0
        self.permissions = ["whatsapp_business_management", "whatsapp_business_messaging"]
        self.token_ends_at = 0
        self.subscribed_apps: list[dict[str, Any]] = [{"whatsapp_business_api_data": {"id": APP_ID}}]
        self.subscription: dict[str, Any] | None = {
            "object": "whatsapp_business_account",
            "callback_url": "",
            "active": True,
            "fields": [{"name": "messages", "version": "v23.0"}],
        }
        """What Meta delivers, and where to: by default the webhook's address."""
        self.templates: set[tuple[str, str]] = set()
        """Name and language of the approved ones, none of which has parameters."""
        self._wrote_at: dict[str, dt.datetime] = {}

    @property
    def secrets(self) -> dict[str, str]:
        return {
            "app_secret": self._app_secret,
            "access_token": self._access_token,
            "verify_token": self._verify_token,
        }

    @property
    def api(self) -> str:
        return f"{self._server.url}/v23.0"

    def sign(self, body: bytes) -> dict[str, str]:
        return {"x-hub-signature-256": signature(self._app_secret, body)}

    def write(self, text: str, sender: str | None = None) -> bytes:
        return self.batch(self.message(text, sender))

    def message(self, text: str, sender: str | None = None) -> dict[str, Any]:
        sender, now = sender or self.person, self.clock.now()
        self._wrote_at[sender] = now
        stamp = str(int(now.timestamp()))
        who = {"from": sender, "from_user_id": _user_id(sender)}
        return {**who, "id": self._wamid(), "timestamp": stamp, "type": "text", "text": {"body": text}}

    def press(self, question: Reply, label: str, sender: str | None = None) -> bytes:
        buttons = [each["reply"] for each in question.payload["interactive"]["action"]["buttons"]]
        (button,) = [each for each in buttons if each["title"] == label]
        said = {name: value for name, value in self.message("", sender).items() if name != "text"}
        chosen = {"type": "button_reply", "button_reply": {"id": button["id"], "title": button["title"]}}
        context = {"from": NUMBER, "id": question.message_id}
        return self.batch({**said, "type": "interactive", "interactive": chosen, "context": context})

    def batch(self, *messages: Any) -> bytes:
        """Several messages in one webhook, as WhatsApp sends them after it could not deliver for a while."""
        people = dict.fromkeys(str(message["from"]) for message in messages if isinstance(message, dict))
        return _webhook({"contacts": [_contact(person) for person in people], "messages": list(messages)})

    def status(self, key: str, status: str, **more: Any) -> bytes:
        """What became of a reply, by the key it was sent with."""
        about = {"id": self._wamid(), "status": status, "timestamp": str(int(self.clock.now().timestamp()))}
        statuses = [{**about, "recipient_id": self.person, "biz_opaque_callback_data": key, **more}]
        return _webhook({"contacts": [_contact(self.person)], "statuses": statuses})

    async def shake_hands(self) -> Told:
        """What Meta does when a callback URL is entered."""
        assert self.webhook is not None, "no webhook is set"
        asked = {"hub.mode": "subscribe", "hub.challenge": "1158201444", "hub.verify_token": self._verify_token}
        return await ask("GET", f"{self.webhook}?{urlencode(asked)}", {})

    def _wamid(self) -> str:
        self._wamids += 1
        return f"wamid.FAKE{self._wamids:08}"

    async def _answer(self, asked: Asked) -> Told:
        if asked.path.endswith(f"/{APP_ID}/subscriptions"):
            if asked.headers.get("authorization") != f"Bearer {APP_ID}|{self._app_secret}":
                return _error(400, 190, "Invalid OAuth access token signature.")
            if self.subscription is None:
                return told({"data": []})
            address = self.subscription["callback_url"] or self.webhook
            return told({"data": [{**self.subscription, "callback_url": address}]})
        if asked.headers.get("authorization") != f"Bearer {self._access_token}":
            return _error(401, 190, "Invalid OAuth access token - Cannot parse access token")
        if (asked.method, asked.path.rpartition("/")[2]) == ("GET", "me"):
            return told({"id": "122100000000000001", "name": "Threadline"})
        if asked.method == "GET" and asked.path.endswith("/debug_token"):
            granular = [{"scope": each, "target_ids": [ACCOUNT]} for each in self.permissions]
            about = {"app_id": APP_ID, "type": "SYSTEM_USER", "is_valid": True, "expires_at": self.token_ends_at}
            return told({"data": {**about, "scopes": self.permissions, "granular_scopes": granular}})
        if asked.method == "GET" and asked.path.endswith(f"/{ACCOUNT}/subscribed_apps"):
            return told({"data": self.subscribed_apps})
        if asked.method != "POST" or not asked.path.endswith(f"/{NUMBER_ID}/messages"):
            return _error(404, 100, "Unsupported request")
        given = json.loads(asked.body)
        if given.get("status") == "read":
            await self._show(given["message_id"])
            return told({"success": True})
        return await self._send(given)

    async def _send(self, message: dict[str, Any]) -> Told:
        fault = self._fault()
        person = str(message.get("to") or message.get("recipient"))
        wrote_at = self._wrote_at.get(person)
        template = message.get("template") if message.get("type") == "template" else None
        if template is None and (wrote_at is None or self.clock.now() - wrote_at >= WINDOW):
            fault = Fault("window_closed")
        if fault is not None and fault.kind != "silent":
            return _refusal(fault)
        if template is not None and (template["name"], template["language"]["code"]) not in self.templates:
            return _error(404, 132001, "Template name does not exist in the translation")
        if template is not None and template.get("components"):
            return _error(400, 132000, "Number of parameters does not match the expected number of params")
        asked = message.get("interactive", {})
        text = str((asked.get("body", {}).get("text") if asked else message.get("text", {}).get("body")) or "")
        text = f"[{template['name']}]" if template else text
        longest = 1_024 if asked else 4_096
        is_valid = 0 < len(text) <= longest and (not asked or _are_buttons_valid(asked["action"]["buttons"]))
        if message.get("messaging_product") != "whatsapp" or not is_valid:
            return _error(400, 100, "Invalid parameter")
        wamid = self._wamid()
        await self._take(f"{NUMBER_ID}:{person}", text, message, wamid)
        if fault is not None:
            return await fall_silent()
        contacts = [{"input": person, "wa_id": person}]
        sent = [{"id": wamid, "message_status": "accepted"}]
        return told({"messaging_product": "whatsapp", "contacts": contacts, "messages": sent})


def _are_buttons_valid(buttons: list[dict[str, Any]]) -> bool:
    """Meta's limits: three buttons, titles of 20 characters, ids of 256, both unique."""
    replies = [each["reply"] for each in buttons]
    unique = all(len({each[name] for each in replies}) == len(replies) for name in ("id", "title"))
    fits = all(0 < len(each["title"]) <= 20 and 0 < len(each["id"]) <= 256 for each in replies)
    return 0 < len(buttons) <= 3 and unique and fits


def _contact(person: str) -> dict[str, Any]:
    return {"profile": {"name": "Ada"}, "wa_id": person, "user_id": _user_id(person)}


def _user_id(person: str) -> str:
    return f"US.{person}"


def _webhook(value: dict[str, Any]) -> bytes:
    metadata = {"display_phone_number": NUMBER, "phone_number_id": NUMBER_ID}
    change = {"value": {"messaging_product": "whatsapp", "metadata": metadata, **value}, "field": "messages"}
    entry = {"id": ACCOUNT, "changes": [change]}
    return json.dumps({"object": "whatsapp_business_account", "entry": [entry]}).encode()


def _refusal(fault: Fault) -> Told:
    match fault.kind:
        case "rate_limited":
            return _error(429, 130429, "Rate limit hit", retry_after=str(fault.retry_after))
        case "server_error":
            return _error(503, 131016, "Service unavailable")
        case "window_closed":
            return _error(400, 131047, "Re-engagement message")
    return _error(400, 131026, "Message undeliverable")


def _error(status: int, code: int, message: str, **headers: str) -> Told:
    error = {"message": f"(#{code}) {message}", "type": "OAuthException", "code": code, "fbtrace_id": "FAKE"}
    return told({"error": error}, status, **headers)
