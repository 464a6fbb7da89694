"""Slack's Events API: messages, edits and deletions.

A message is identified by its channel and `ts`, which are the same in the `message` and the `app_mention` event that
Slack sends for one text. In a channel the bot is addressed by a mention; a message in a thread that names no one may
follow up. In a direct conversation every message is for the bot.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import msgspec

from threadline.channels.platform_payloads import convert_or_none, join_text, placeholder, time_from_timestamp
from threadline.channels.slack_text import names_a_person, unescape
from threadline.core.platform_messages import Arrival, BotIdentity, Ignored, IgnoredReason

_ID = re.compile(r"[A-Za-z0-9]{1,64}")
_TS = re.compile(r"[0-9]{1,12}\.[0-9]{1,9}")
_TEXT_SUBTYPES = frozenset((None, "file_share", "thread_broadcast", "me_message"))
_SUBTYPES: dict[str, IgnoredReason] = {"bot_message": "bot"}
_MEMBERSHIP = re.compile(
    r"(channel|group)_(join|leave|topic|purpose|name|archive|unarchive|convert_to_private)|bot_(add|remove)"
)
# A user opened the conversation with the bot, or looks at something else beside it. There is nothing to answer yet.
_NEWS = frozenset(
    ("app_home_opened", "app_context_changed", "assistant_thread_started", "assistant_thread_context_changed")
)
_LONGEST_FORWARD = 4_000


class _File(msgspec.Struct):
    name: str | None = None
    mimetype: str | None = None


class _Attachment(msgspec.Struct):
    """A forwarded message is an attachment; so is the preview of a link, which has no author's id."""

    text: str | None = None
    fallback: str | None = None
    author_name: str | None = None
    author_id: str | None = None
    is_share: bool = False


class _Edited(msgspec.Struct):
    ts: str


class _Event(msgspec.Struct):
    type: str
    channel: str
    ts: str
    user: str | None = None
    text: str | None = None
    subtype: str | None = None
    bot_id: str | None = None
    channel_type: str | None = None
    thread_ts: str | None = None
    files: list[_File] | None = None
    attachments: list[Any] | None = None

    @property
    def is_direct(self) -> bool:
        return self.channel_type == "im" or self.channel.startswith("D")

    @property
    def is_channel_message(self) -> bool:
        """A message in a channel, which may not be meant for the bot."""
        return self.type == "message" and self.channel_type in ("channel", "group", "mpim")


class _Stored(msgspec.Struct):
    """A message as it stands, or stood, in the conversation."""

    ts: str
    user: str | None = None
    text: str | None = None
    bot_id: str | None = None
    thread_ts: str | None = None
    edited: _Edited | None = None


class _Change(msgspec.Struct):
    """`message_changed` or `message_deleted`."""

    subtype: str
    channel: str
    ts: str
    channel_type: str | None = None
    message: _Stored | None = None
    previous_message: _Stored | None = None


class _Kind(msgspec.Struct):
    """The fields that all events have, messages or not."""

    type: str
    subtype: str | None = None


class _Authorization(msgspec.Struct):
    user_id: str | None = None
    is_bot: bool | None = None


class Envelope(msgspec.Struct):
    type: str
    challenge: str | None = None
    event: Any = None
    authorizations: list[_Authorization] | None = None

    def bots(self, me: BotIdentity | None) -> set[str]:
        """The users that are the bot. Slack does not always name them."""
        named = {bot.user_id for bot in self.authorizations or () if bot.is_bot and bot.user_id}
        return named | ({me.id} if me is not None else set())


def read_event(envelope: Envelope, me: BotIdentity | None) -> Arrival | Ignored:
    kind = convert_or_none(envelope.event, _Kind)
    if kind is None:
        return Ignored("broken", "event")
    if kind.type in _NEWS:
        return Ignored("status", kind.type)
    if kind.type not in ("message", "app_mention"):
        return Ignored("unknown", kind.type[:64])
    bots = envelope.bots(me)
    if kind.subtype in ("message_changed", "message_deleted"):
        return _read_change(convert_or_none(envelope.event, _Change), bots)
    if kind.subtype not in _TEXT_SUBTYPES:
        return _ignore_subtype(kind.subtype or "")
    event = convert_or_none(envelope.event, _Event)
    if event is None or not _TS.fullmatch(event.ts) or not _ID.fullmatch(event.channel):
        return Ignored("broken", kind.type)
    if event.user in bots:
        return Ignored("own")
    if event.bot_id is not None:
        return Ignored("bot")
    if not event.user or not _ID.fullmatch(event.user):
        return Ignored("broken", "user")
    return _read_message(event, event.user, bots)


def _read_message(event: _Event, user: str, bots: Collection[str]) -> Arrival | Ignored:
    given = event.text or ""
    is_addressed = not event.is_channel_message or any(f"<@{bot}" in given for bot in bots)
    is_reply = event.thread_ts not in (None, event.ts)
    if not is_addressed and (not is_reply or names_a_person(given)):
        return Ignored("unaddressed")
    written = unescape(given, bots, any_mention=event.type == "app_mention")
    text = join_text(written, [*_forwarded(event), *_file_names(event)])
    sent_at = time_from_timestamp(float(event.ts))
    if not text or sent_at is None:
        return Ignored("empty") if sent_at is not None else Ignored("broken", event.type)
    thread_ts = event.thread_ts if _TS.fullmatch(event.thread_ts or "") else None if event.is_direct else event.ts
    is_unread = bool(event.files) and not written.strip() and not event.attachments
    return Arrival(
        platform="slack",
        key=f"{event.channel}:{event.ts}",
        sender=user,
        place=event.channel,
        recipient=_recipient(event.channel, thread_ts),
        text=text,
        sent_at=sent_at,
        shared=not event.is_direct,
        reply_to=_recipient(event.channel, thread_ts) if thread_ts not in (None, event.ts) else None,
        kind="unsupported" if is_unread else "message",
        is_addressed=is_addressed,
        may_follow_up=not is_addressed,
        notice_to=None if event.is_direct else f"{_recipient(event.channel, thread_ts)}/{user}",
    )


def _read_change(change: _Change | None, bots: Collection[str]) -> Arrival | Ignored:
    """An edit or a deletion of a person's message. Slack sends `message_changed` also for link previews, which change
    no text, and for the bot's own messages."""
    before = None if change is None else change.previous_message
    if change is None or not _ID.fullmatch(change.channel):
        return Ignored("broken", "message_changed")
    reason: IgnoredReason = "deletion" if change.subtype == "message_deleted" else "edit"
    now = before if reason == "deletion" else change.message
    if now is None or not now.user or not _ID.fullmatch(now.user) or not _TS.fullmatch(now.ts):
        return Ignored(reason)
    if now.bot_id is not None or now.user in bots:
        return Ignored("own")
    stamp = change.ts if reason == "deletion" or now.edited is None else now.edited.ts
    changed_at = time_from_timestamp(float(stamp)) if _TS.fullmatch(stamp) else None
    text = "" if reason == "deletion" else unescape(now.text or "", bots, any_mention=False).strip()
    is_same = reason == "edit" and (now.edited is None or (before is not None and before.text == now.text) or not text)
    if changed_at is None or is_same:
        return Ignored(reason)
    is_direct = change.channel_type == "im" or change.channel.startswith("D")
    thread_ts = now.thread_ts if _TS.fullmatch(now.thread_ts or "") else None if is_direct else now.ts
    target = f"{change.channel}:{now.ts}"
    return Arrival(
        platform="slack",
        key=f"{target}:{'deleted' if reason == 'deletion' else stamp}",
        sender=now.user,
        place=change.channel,
        recipient=_recipient(change.channel, thread_ts),
        text=text,
        sent_at=changed_at,
        shared=not is_direct,
        kind="retraction" if reason == "deletion" else "edit",
        target=target,
    )


def in_direct_thread(arrival: Arrival) -> Arrival:
    """A direct message outside a thread begins one: the reply goes there."""
    channel, _, ts = (arrival.target or arrival.key).partition(":")
    if arrival.shared or arrival.recipient != channel or not _TS.fullmatch(ts):
        return arrival
    return msgspec.structs.replace(arrival, recipient=_recipient(channel, ts))


def _recipient(channel: str, thread_ts: str | None) -> str:
    return f"{channel}:{thread_ts}" if thread_ts else channel


def _file_names(event: _Event) -> list[str]:
    return [placeholder("file", file.name, file.mimetype) for file in event.files or ()]


def _forwarded(event: _Event) -> list[str]:
    """The messages that were forwarded with this one. Previews of links are no part of what was written."""
    found: list[str] = []
    for value in event.attachments or ():
        each = convert_or_none(value, _Attachment)
        text = (each.text or each.fallback or "") if each is not None else ""
        if each is None or not text or not (each.is_share or each.author_id):
            continue
        plain = unescape(text, (), any_mention=False)[:_LONGEST_FORWARD]
        found.append(f"{placeholder('forwarded from', each.author_name or 'somebody')}\n{plain}")
    return found


def _ignore_subtype(subtype: str) -> Ignored:
    reason: IgnoredReason = "membership" if _MEMBERSHIP.fullmatch(subtype) else _SUBTYPES.get(subtype, "unknown")
    return Ignored(reason, subtype[:64])
