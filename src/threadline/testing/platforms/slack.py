"""A stand-in for Slack: signed events, buttons and slash commands out, to a webhook (`deliver`) or over Socket Mode
(`push`); `chat.postMessage`, `chat.update`, `chat.postEphemeral`, `conversations.history`, `conversations.replies`,
`auth.test` and `apps.connections.open` in.

It follows Slack's public rules: a repeated message is posted twice, whatever its `client_msg_id`; metadata is returned
only if it is asked for; reading needs the scope of the kind of conversation; and calls are limited, messages to about
one a second in each channel after a burst, reading to fifty a minute.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Self
from urllib.parse import parse_qsl, urlencode

from threadline.channels.slack import signature
from threadline.channels.slack_manifest import SCOPES
from threadline.core.turns import Surface
from threadline.ports import Clock
from threadline.testing.platforms.loopback import Asked, Told
from threadline.testing.platforms.platform import FakePlatform, Fault, Reply, fall_silent, told
from threadline.testing.platforms.slack_sockets import SlackSockets

BOT_USER = "U0THREADLN"
TEAM = "T0FAKE"

# Slack allows about one message a second in a channel and does not publish how long a burst may be.
_POSTS = (60.0, 1.0)
_READS = (50.0, 50.0 / 60.0)
_STREAMS = (20.0, 20.0 / 60.0)
_HISTORY_SCOPES = {"D": "im:history", "G": "groups:history"}


class FakeSlack(FakePlatform):
    """Everybody has a direct conversation with the bot; `mention` speaks to it in a channel."""

    platform: ClassVar[Surface] = "slack"
    person: ClassVar[str] = "U1001"

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        port: int = 0,
        signing_secret: str = "fake-signing-secret",
        bot_token: str = "xoxb-fake",
        app_token: str = "xapp-fake",
        sockets: SlackSockets | None = None,
        scopes: Collection[str] = tuple(SCOPES),
    ) -> None:
        super().__init__(clock, port=port)
        self._signing_secret = signing_secret
        self._bot_token = bot_token
        self._app_token = app_token
        self.sockets = sockets or SlackSockets()
        self.scopes = scopes
        self._written = 0
        self._messages: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._limits: dict[tuple[str, str], RateLimit] = {}
        self.searches = 0
        """Calls of `conversations.history` and `conversations.replies`."""

    @property
    def secrets(self) -> dict[str, str]:
        return {"signing_secret": self._signing_secret, "bot_token": self._bot_token, "app_token": self._app_token}

    async def __aenter__(self) -> Self:
        await self.sockets.start()
        return await super().__aenter__()

    async def __aexit__(self, *_: object) -> None:
        await super().__aexit__()
        await self.sockets.close()

    @property
    def api(self) -> str:
        return f"{self._server.url}/api"

    def account(self, name: str) -> str:
        return f"U{super().account(name)}"

    def sign(self, body: bytes) -> dict[str, str]:
        stamp = str(int(self.clock.now().timestamp()))
        form = {} if body.startswith(b"{") else {"content-type": "application/x-www-form-urlencoded"}
        return {
            "x-slack-request-timestamp": stamp,
            "x-slack-signature": signature(self._signing_secret, stamp, body),
            **form,
        }

    def write(self, text: str, sender: str | None = None, **event: Any) -> bytes:
        sender = sender or self.person
        said = {"type": "message", "channel": direct(sender), "channel_type": "im", "user": sender, "text": text}
        return self.event(self._store({**said, "ts": self._ts(), "team": TEAM, **event}))

    def mention(
        self, text: str, sender: str = person, channel: str = "C0GENERAL", thread_ts: str | None = None
    ) -> tuple[bytes, bytes]:
        """What Slack sends for one text in a channel, or in a thread of it: a `message` and an `app_mention`."""
        said = {"channel": channel, "user": sender, "text": f"<@{BOT_USER}> {text}", "ts": self._ts(), "team": TEAM}
        said |= {"thread_ts": thread_ts} if thread_ts else {}
        message = self._store({"type": "message", "channel_type": "channel", **said})
        return self.event(message), self.event({"type": "app_mention", **said})

    def edit(self, body: bytes, text: str) -> bytes:
        """What Slack sends when the sender edits a message that `write` or `mention` made."""
        before = json.loads(body)["event"]
        after = {**before, "text": text, "edited": {"user": before["user"], "ts": self._ts()}}
        return self.event({**self._change(before), "subtype": "message_changed", "message": after})

    def delete(self, body: bytes) -> bytes:
        """What Slack sends when the sender deletes such a message."""
        before = json.loads(body)["event"]
        return self.event({**self._change(before), "subtype": "message_deleted", "deleted_ts": before["ts"]})

    def _change(self, before: dict[str, Any]) -> dict[str, Any]:
        about = {"type": "message", "hidden": True, "channel": before["channel"], "previous_message": before}
        return {**about, "channel_type": before.get("channel_type", "channel"), "ts": self._ts()}

    def event(self, event: dict[str, Any]) -> bytes:
        self._written += 1
        envelope = {
            "token": "unused",
            "team_id": TEAM,
            "api_app_id": "A0FAKE",
            "event": event,
            "type": "event_callback",
            "event_id": f"Ev{self._written:08}",
            "event_time": int(self.clock.now().timestamp()),
            "authorizations": [{"team_id": TEAM, "user_id": BOT_USER, "is_bot": True}],
        }
        return json.dumps(envelope).encode()

    def press(self, question: Reply, label: str, sender: str | None = None) -> bytes:
        channel, _, thread_ts = question.recipient.partition(":")
        (button,) = [each for each in _buttons(question.payload) if each["text"]["text"] == label]
        message = {"type": "message", "ts": question.message_id, "text": question.text, "bot_id": "B0FAKE"}
        message |= {"thread_ts": thread_ts} if thread_ts else {}
        pressed = {name: button[name] for name in ("type", "action_id", "text", "value")}
        container = {"type": "message", "message_ts": question.message_id, "channel_id": channel, "is_ephemeral": False}
        payload = {
            "type": "block_actions",
            "user": {"id": sender or self.person, "username": "ada", "team_id": TEAM},
            "api_app_id": "A0FAKE",
            "container": container,
            "trigger_id": f"{self._ts()}.fake",
            "team": {"id": TEAM, "domain": "fake"},
            "channel": {"id": channel, "name": "directmessage" if channel.startswith("D") else "general"},
            "message": message,
            "response_url": f"{self._server.url}/actions/T0FAKE/1/fake",
            "actions": [{**pressed, "block_id": "b1", "action_ts": self._ts()}],
        }
        return urlencode({"payload": json.dumps(payload)}).encode()

    def command(self, command: str, text: str = "", sender: str | None = None, channel: str | None = None) -> bytes:
        """What Slack delivers for a slash command."""
        sender = sender or self.person
        given = {"token": "unused", "team_id": TEAM, "channel_id": channel or direct(sender), "user_id": sender}
        given |= {"command": command, "text": text, "api_app_id": "A0FAKE", "trigger_id": f"{self._ts()}.fake"}
        return urlencode({**given, "response_url": f"{self._server.url}/commands/T0FAKE/1/fake"}).encode()

    async def shake_hands(self) -> Told:
        """What Slack does when a request URL is entered."""
        asked = {"token": "unused", "challenge": "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P"}
        return await self.deliver(json.dumps({**asked, "type": "url_verification"}).encode())

    async def push(self, body: bytes) -> dict[str, Any]:
        """Delivers what `write`, `press` or `command` made over Socket Mode: the acknowledgement. NotAcknowledged."""
        if body.startswith(b"{"):
            return await self.sockets.push("events_api", json.loads(body))
        fields = dict(parse_qsl(body.decode(), keep_blank_values=True))
        if "payload" in fields:
            return await self.sockets.push("interactive", json.loads(fields["payload"]))
        return await self.sockets.push("slash_commands", fields)

    def _ts(self) -> str:
        self._written += 1
        return f"{int(self.clock.now().timestamp())}.{self._written:06}"

    def _store(self, message: dict[str, Any]) -> dict[str, Any]:
        self._messages[message["channel"]].append(message)
        return message

    async def _answer(self, asked: Asked) -> Told:
        method, given = asked.path.removeprefix("/api/"), _arguments(asked)
        if method == "apps.connections.open":
            return self._open_connection(asked.headers.get("authorization", ""))
        if asked.headers.get("authorization") != f"Bearer {self._bot_token}":
            return told({"ok": False, "error": "invalid_auth"})
        match method:
            case "chat.postMessage":
                return await self._post(given)
            case "chat.update":
                return await self._update(given)
            case "chat.postEphemeral":
                if not given.get("user") or not given.get("text"):
                    return told({"ok": False, "error": "no_text"})
                await self._notice(str(given["user"]), str(given["text"]))
                return told({"ok": True, "message_ts": self._ts()})
            case "conversations.history" | "conversations.replies":
                return self._search(method, given)
            case "chat.startStream":
                return await self._start_stream(given)
            case "chat.appendStream" | "chat.stopStream":
                return await self._change_stream(method, given)
            case "assistant.threads.setStatus":
                return await self._set_status(given)
            case "auth.test":
                me = {"user_id": BOT_USER, "user": "threadline", "bot_id": "B0FAKE"}
                return told({"ok": True, "team_id": TEAM, **me}, x_oauth_scopes=",".join(sorted(self.scopes)))
        return told({"ok": False, "error": "unknown_method"})

    def _open_connection(self, authorization: str) -> Told:
        if authorization != f"Bearer {self._app_token}":
            is_other = authorization == f"Bearer {self._bot_token}"
            return told({"ok": False, "error": "not_allowed_token_type" if is_other else "invalid_auth"})
        return told({"ok": True, "url": self.sockets.new_url()})

    def _take_permit(self, method: str, channel: str, limit: tuple[float, float]) -> Told | None:
        bucket = self._limits.setdefault((method, channel), RateLimit(*limit))
        wait = bucket.take(asyncio.get_running_loop().time())
        return None if wait is None else _refusal(Fault("rate_limited", wait))

    async def _post(self, message: dict[str, Any]) -> Told:
        fault = self._fault()
        channel, text = str(message.get("channel", "")), str(message.get("text", ""))
        if fault is not None and fault.kind != "silent":
            return _refusal(fault)
        if (limited := self._take_permit("chat.postMessage", channel, _POSTS)) is not None:
            return limited
        if not channel:
            return told({"ok": False, "error": "channel_not_found"})
        if not text:
            return told({"ok": False, "error": "no_text"})
        if not _are_blocks_valid(message):
            return told({"ok": False, "error": "invalid_blocks"})
        posted = {"type": "message", "user": BOT_USER, "bot_id": "B0FAKE", "text": text, "ts": self._ts()}
        posted |= {name: message[name] for name in ("thread_ts", "metadata") if message.get(name)}
        self._store({"channel": channel, **posted})
        thread_ts = message.get("thread_ts")
        await self._take(f"{channel}:{thread_ts}" if thread_ts else channel, text, message, posted["ts"])
        if fault is not None:
            return await fall_silent()
        return told({"ok": True, "channel": channel, "ts": posted["ts"], "message": posted})

    async def _update(self, given: dict[str, Any]) -> Told:
        fault = self._fault()
        if fault is not None:
            return _refusal(fault)
        channel, ts, text = (str(given.get(name, "")) for name in ("channel", "ts", "text"))
        if not any(each["ts"] == ts and each.get("bot_id") for each in self._messages[channel]):
            return told({"ok": False, "error": "message_not_found"})
        if not text or not _are_blocks_valid(given):
            return told({"ok": False, "error": "invalid_blocks" if text else "no_text"})
        (message,) = [each for each in self._messages[channel] if each["ts"] == ts]
        if message.get("is_streaming"):
            return told({"ok": False, "error": "streaming_state_conflict"})
        is_stream = message.pop("was_streamed", False)
        message |= {name: given[name] for name in ("text", "metadata") if name in given}
        if is_stream:
            # A stream's message becomes a reply.
            await self._take(f"{channel}:{message['thread_ts']}", text, given, ts)
        else:
            await self._edit(ts, text, has_buttons=bool(_buttons(given)))
        return told({"ok": True, "channel": channel, "ts": ts, "text": text})

    async def _start_stream(self, given: dict[str, Any]) -> Told:
        channel, thread_ts, text = (str(given.get(name, "")) for name in ("channel", "thread_ts", "markdown_text"))
        if not thread_ts or len(text) > 12_000:
            return told({"ok": False, "error": "invalid_arguments"})
        if not channel.startswith("D") and not (given.get("recipient_user_id") and given.get("recipient_team_id")):
            return told({"ok": False, "error": "missing_recipient_user_id"})
        if not self.has_drafts:
            return told({"ok": False, "error": "channel_type_not_supported"})
        if (limited := self._take_permit("chat.startStream", "", _STREAMS)) is not None:
            return limited
        posted = {"type": "message", "user": BOT_USER, "bot_id": "B0FAKE", "text": text, "ts": self._ts()}
        streamed = {"thread_ts": thread_ts, "is_streaming": True, "was_streamed": True}
        self._store({"channel": channel, **posted, **streamed})
        await self._show(f"{channel}:{thread_ts}", text)
        return told({"ok": True, "channel": channel, "ts": posted["ts"]})

    async def _change_stream(self, method: str, given: dict[str, Any]) -> Told:
        channel, text = str(given.get("channel", "")), str(given.get("markdown_text", ""))
        found = [each for each in self._messages[channel] if each["ts"] == given.get("ts")]
        if not found:
            return told({"ok": False, "error": "message_not_found"})
        if not found[0].get("is_streaming"):
            return told({"ok": False, "error": "message_not_in_streaming_state"})
        if method == "chat.appendStream" and not text:
            return told({"ok": False, "error": "no_text"})
        found[0]["text"] += text
        found[0]["is_streaming"] = method == "chat.appendStream"
        await self._show(f"{channel}:{found[0]['thread_ts']}", found[0]["text"])
        return told({"ok": True, "channel": channel, "ts": given["ts"]})

    def end_streams(self) -> None:
        """What Slack does with a stream some minutes after it was opened."""
        for message in (each for messages in self._messages.values() for each in messages):
            message.pop("is_streaming", None)

    def messages_of_bot(self, channel: str) -> list[str]:
        """What people see of the bot in a conversation."""
        return [each["text"] for each in self._messages[channel] if each.get("bot_id")]

    async def _set_status(self, given: dict[str, Any]) -> Told:
        if not given.get("thread_ts") or "status" not in given:
            return told({"ok": False, "error": "invalid_arguments"})
        await self._show(f"{given['channel_id']}:{given['thread_ts']}")
        return told({"ok": True})

    def _search(self, method: str, given: dict[str, Any]) -> Told:
        self.searches += 1
        channel, thread_ts = str(given.get("channel", "")), given.get("ts")
        needed = _HISTORY_SCOPES.get(channel[:1], "channels:history")
        if needed not in self.scopes:
            provided = ",".join(sorted(self.scopes))
            return told({"ok": False, "error": "missing_scope", "needed": needed, "provided": provided})
        if (limited := self._take_permit(method, "", _READS)) is not None:
            return limited
        if method == "conversations.replies":
            found = [each for each in self._messages[channel] if thread_ts in (each["ts"], each.get("thread_ts"))]
            if not found:
                return told({"ok": False, "error": "thread_not_found"})
        else:
            # Newest first, and without replies in threads.
            found = [each for each in self._messages[channel] if "thread_ts" not in each][::-1]
        oldest = float(given.get("oldest", 0))
        found = [each for each in found if float(each["ts"]) > oldest or each["ts"] == thread_ts]
        start, limit = int(given.get("cursor") or 0), min(int(given.get("limit", 100)), 999)
        page = [_shown(each, with_metadata=given.get("include_all_metadata") in ("true", "1")) for each in found]
        has_more = len(page) > start + limit
        cursor = {"response_metadata": {"next_cursor": str(start + limit)}} if has_more else {}
        return told({"ok": True, "messages": page[start : start + limit], "has_more": has_more, **cursor})


class RateLimit:
    """A token bucket: `burst` calls at once, then `per_second`."""

    def __init__(self, burst: float, per_second: float) -> None:
        self._left = self._burst = burst
        self._per_second = per_second
        self._at = 0.0

    def take(self, now: float) -> int | None:
        """Takes one; the whole seconds to wait if there is none."""
        self._left = min(self._burst, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1.0:
            return max(1, round((1.0 - self._left) / self._per_second))
        self._left -= 1.0
        return None


def _buttons(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    blocks = [block for block in message.get("blocks", ()) if block["type"] == "actions"]
    return [element for block in blocks for element in block["elements"] if element["type"] == "button"]


def _are_blocks_valid(message: Mapping[str, Any]) -> bool:
    """Slack's limits: sections of 3,000 characters; buttons with a label of 75 and a value of 2,000."""
    sections = [block for block in message.get("blocks", ()) if block["type"] == "section"]
    fits = all(0 < len(block["text"]["text"]) <= 3_000 for block in sections)
    buttons = _buttons(message)
    ids = [each["action_id"] for each in buttons]
    return (
        fits
        and len(ids) == len(set(ids))
        and all(0 < len(each["text"]["text"]) <= 75 and len(each["value"]) <= 2_000 for each in buttons)
    )


def _shown(message: dict[str, Any], *, with_metadata: bool) -> dict[str, Any]:
    internal = ("channel", "channel_type", "is_streaming", "was_streamed")
    hidden = internal if with_metadata else (*internal, "metadata")
    return {name: value for name, value in message.items() if name not in hidden}


def direct(sender: str) -> str:
    """The id of a user's conversation with the bot."""
    return f"D{sender}"


def _arguments(asked: Asked) -> dict[str, Any]:
    if asked.headers.get("content-type", "").startswith("application/json"):
        return dict(json.loads(asked.body))
    return {**asked.query, **asked.form()}


def _refusal(fault: Fault) -> Told:
    if fault.kind == "rate_limited":
        return told({"ok": False, "error": "ratelimited"}, 429, retry_after=str(fault.retry_after))
    if fault.kind == "server_error":
        return Told(503, b"upstream connect error", {"content-type": "text/plain"})
    return told({"ok": False, "error": "is_archived"})
