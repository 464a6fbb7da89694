"""Telegram messages as text: media become placeholders with their caption, commands such as `/new` become `!new`."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from threadline.channels.platform_payloads import join_text, placeholder
from threadline.channels.telegram_entities import Entity, with_addresses
from threadline.core.platform_messages import Ignored


class Person(msgspec.Struct):
    id: int
    is_bot: bool = False


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


class _Answered(msgspec.Struct):
    message_id: int


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
    reply_to_message: _Answered | None = None
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
_COMMAND = re.compile(r"/([A-Za-z0-9_]{1,32})(?:@\w+)?(?!\S)")
_BOT_NAME = re.compile(r"@\w*bot(?!\w)[\s,:]*", re.IGNORECASE)


def message_text(message: Message) -> str | Ignored:
    if _is_service_message(message):
        return Ignored("membership")
    text = message.text if message.text is not None else message.caption
    entities = message.entities if message.text is not None else message.caption_entities
    media = _media_placeholders(message)
    if text is None and not media:
        return Ignored("unknown", "message")
    command = _normalize_command(with_addresses(text or "", entities), entities)
    return join_text(command, media) or Ignored("empty")


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


def _normalize_command(text: str, entities: list[Entity]) -> str:
    """The text without the bot's name at the start. A Telegram command becomes Threadline's: `/new` is `!new`, and
    `/start CODE`, from a link to the bot, is `!link CODE`."""
    first = next((entity.type for entity in entities if entity.offset == 0), None)
    if first == "mention" and (name := _BOT_NAME.match(text)):
        return text[name.end() :]
    command = _COMMAND.match(text) if first == "bot_command" else None
    if command is None:
        return text
    word, rest = command[1].lower(), text[command.end() :].strip()
    if word == "start":
        return f"!link {rest}" if rest else "!help"
    return f"!{word} {rest}".strip()
