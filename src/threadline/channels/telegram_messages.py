"""Telegram messages as text: media become placeholders with their caption, commands such as `/new` become `!new`."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from threadline.channels.platform_payloads import join_text, placeholder
from threadline.channels.telegram_entities import Entity, Person, with_addresses
from threadline.core.platform_messages import BotIdentity, Ignored


class Chat(msgspec.Struct):
    id: int
    type: str


class _Named(msgspec.Struct):
    file_name: str | None = None
    mime_type: str | None = None
    emoji: str | None = None
    title: str | None = None
    question: str | None = None
    first_name: str | None = None
    latitude: float | None = None
    longitude: float | None = None

    @property
    def name(self) -> str | None:
        where = f"{self.latitude}, {self.longitude}" if self.latitude is not None else None
        return self.file_name or self.title or self.question or self.first_name or self.emoji or where


class Answered(msgspec.Struct, rename={"sender": "from"}):
    """The message that another one replies to."""

    message_id: int
    sender: Person | None = None
    text: str | None = None
    caption: str | None = None
    forum_topic_created: Any = None
    """A topic's first message, which every message in the topic replies to."""


class _Quote(msgspec.Struct):
    """The part of a message that the sender chose to quote."""

    text: str = ""


class _Titled(msgspec.Struct):
    title: str | None = None


class _Origin(msgspec.Struct):
    """Who wrote a message that was forwarded: a user, a user who hides, a chat or a channel."""

    sender_user: Person | None = None
    sender_user_name: str | None = None
    sender_chat: _Titled | None = None
    chat: _Titled | None = None

    @property
    def name(self) -> str:
        where = self.sender_chat or self.chat
        named = self.sender_user.first_name if self.sender_user else self.sender_user_name or (where and where.title)
        return named or "somebody"


class Message(msgspec.Struct, rename={"sender": "from"}):
    message_id: int
    date: int
    chat: Chat
    sender: Person | None = None
    sender_chat: Any = None
    text: str | None = None
    caption: str | None = None
    entities: list[Entity] = []
    caption_entities: list[Entity] = []
    message_thread_id: int | None = None
    is_topic_message: bool = False
    edit_date: int | None = None
    media_group_id: str | None = None
    forward_origin: _Origin | None = None
    reply_to_message: Answered | None = None
    quote: _Quote | None = None
    photo: list[Any] | None = None
    document: _Named | None = None
    audio: _Named | None = None
    voice: _Named | None = None
    video: _Named | None = None
    video_note: _Named | None = None
    animation: _Named | None = None
    sticker: _Named | None = None
    contact: _Named | None = None
    location: _Named | None = None
    venue: _Named | None = None
    poll: _Named | None = None
    dice: _Named | None = None
    new_chat_members: list[Any] | None = None
    left_chat_member: Any = None
    group_chat_created: bool = False
    migrate_to_chat_id: int | None = None
    migrate_from_chat_id: int | None = None


_MEDIA = (
    # The more specific kind first: an animation is also a document, a venue also a location.
    *("animation", "document", "audio", "voice", "video", "video_note", "sticker", "contact", "venue", "location"),
    *("poll", "dice"),
)
# Kinds that say nothing without their content, which is not downloaded.
_UNREAD = frozenset(("photo", "animation", "document", "audio", "voice", "video", "video_note"))
_COMMAND = re.compile(r"/([A-Za-z0-9_]{1,32})(?:@(\w+))?(?!\S)")
_MENTION = re.compile(r"@(\w{1,64})[\s,:]*")
_BOT_NAME = re.compile(r"\w*bot", re.IGNORECASE)
"""What the names of all bots end with: the best guess while the bot's own name is not known."""


def is_addressed(message: Message, me: BotIdentity | None) -> bool:
    """Whether a message in a group is meant for the bot: it names the bot, replies to it, or is a command without a
    bot's name."""
    replied = message.reply_to_message
    if replied is not None and _is_me(replied.sender, me):
        return True
    text, entities = _written(message)
    for entity in entities:
        word = _slice(text, entity)
        if entity.type == "mention" and _is_my_name(word.removeprefix("@"), me):
            return True
        if entity.type == "text_mention" and _is_me(entity.user, me):
            return True
        command = _COMMAND.fullmatch(word) if entity.type == "bot_command" and entity.offset == 0 else None
        if command is not None:
            return command[2] is None or _is_my_name(command[2], me)
    return False


def _is_me(user: Person | None, me: BotIdentity | None) -> bool:
    return user is not None and me is not None and str(user.id) == me.id


def _is_my_name(name: str, me: BotIdentity | None) -> bool:
    if me is None or me.name is None:
        return _BOT_NAME.fullmatch(name) is not None
    return name.casefold() == me.name.casefold()


def _written(message: Message) -> tuple[str, list[Entity]]:
    if message.text is not None:
        return message.text, message.entities
    return message.caption or "", message.caption_entities


def _slice(text: str, entity: Entity) -> str:
    """Entities count in UTF-16 units, and may be out of range."""
    start, end = max(entity.offset, 0), max(entity.offset + entity.length, 0)
    wide = text.encode("utf-16-le", "surrogatepass")[start * 2 : end * 2]
    return wide.decode("utf-16-le", "replace")


def quoted_text(message: Message) -> str | None:
    """What the message replies to, or the part of it that the sender chose. None in a topic's ordinary messages, which
    reply to its first."""
    replied = message.reply_to_message
    if message.quote is not None and message.quote.text:
        return message.quote.text
    if replied is None or replied.forum_topic_created is not None:
        return None
    return replied.text or replied.caption


def has_only_media(message: Message) -> bool:
    """Whether there is nothing to read: a picture, a file or a recording without a caption."""
    return not _written(message)[0].strip() and any(getattr(message, kind) for kind in _UNREAD)


def message_text(message: Message, me: BotIdentity | None) -> str | Ignored:
    if _is_service_message(message):
        return Ignored("membership")
    text, entities = _written(message)
    media = _media_placeholders(message)
    if message.text is None and message.caption is None and not media:
        return Ignored("unknown", "message")
    text = with_addresses(text, entities)
    if message.forward_origin is not None:
        # The words of another person: a command in them is not the sender's.
        head = placeholder("forwarded from", message.forward_origin.name)
        return join_text(f"{head}\n{text}".strip(), media)
    return join_text(_normalize_command(text, entities, me), media) or Ignored("empty")


def _is_service_message(message: Message) -> bool:
    moved = message.migrate_to_chat_id is not None or message.migrate_from_chat_id is not None
    has_members = message.new_chat_members is not None or message.left_chat_member is not None
    return moved or has_members or message.group_chat_created


def _media_placeholders(message: Message) -> list[str]:
    if message.photo:
        return [placeholder("photo")]
    for kind in _MEDIA:
        found: _Named | None = getattr(message, kind)
        if found is not None:
            return [placeholder(kind.replace("_", " "), found.name, found.mime_type)]
    return []


def _normalize_command(text: str, entities: list[Entity], me: BotIdentity | None) -> str:
    """The text without the bot's name at the start. A Telegram command becomes Threadline's: `/new` is `!new`, and
    `/start CODE`, from a link to the bot, is `!link CODE`."""
    first = next((entity.type for entity in entities if entity.offset == 0), None)
    if first == "mention" and (name := _MENTION.match(text)) and _is_my_name(name[1], me):
        return text[name.end() :]
    command = _COMMAND.match(text) if first == "bot_command" else None
    if command is None:
        return text
    word, rest = command[1].lower(), text[command.end() :].strip()
    if word == "start":
        return f"!link {rest}" if rest else "!help"
    return f"!{word} {rest}".strip()
