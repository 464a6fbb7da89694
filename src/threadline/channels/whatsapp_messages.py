"""WhatsApp messages as text: media become placeholders with their caption, buttons the text of the chosen one."""

from __future__ import annotations

import msgspec

from threadline.channels.platform_payloads import join_text, placeholder
from threadline.core.approval_questions import read_button
from threadline.core.platform_messages import Ignored


class _Text(msgspec.Struct):
    body: str = ""


class _Media(msgspec.Struct):
    caption: str | None = None
    filename: str | None = None
    mime_type: str | None = None


class _Location(msgspec.Struct):
    latitude: float
    longitude: float
    name: str | None = None


class _Name(msgspec.Struct, frozen=True):
    formatted_name: str | None = None


class _Contact(msgspec.Struct):
    name: _Name = _Name()


class _Button(msgspec.Struct):
    text: str = ""


class _Choice(msgspec.Struct):
    id: str = ""
    title: str = ""


class _Interactive(msgspec.Struct):
    button_reply: _Choice | None = None
    list_reply: _Choice | None = None


class _Context(msgspec.Struct):
    id: str | None = None
    forwarded: bool = False
    frequently_forwarded: bool = False


class Message(msgspec.Struct, rename={"sender": "from"}):
    id: str
    timestamp: str
    type: str
    sender: str | None = None
    from_user_id: str | None = None
    group_id: str | None = None
    context: _Context | None = None
    text: _Text | None = None
    image: _Media | None = None
    video: _Media | None = None
    audio: _Media | None = None
    document: _Media | None = None
    sticker: _Media | None = None
    location: _Location | None = None
    contacts: list[_Contact] | None = None
    button: _Button | None = None
    interactive: _Interactive | None = None


# Kinds that ask for no answer.
_SILENT = frozenset(("reaction", "request_welcome"))


def pressed_button(message: Message) -> str | None:
    """What the pressed button of a question for approval carries; None for any other message."""
    pressed = None if message.interactive is None else message.interactive.button_reply
    return pressed.id if pressed is not None and read_button(pressed.id) is not None else None


def message_text(message: Message) -> str | Ignored:
    if message.group_id is not None:
        return Ignored("unknown", "group")
    match message.type:
        case "edit":
            return Ignored("edit")
        case "revoke":
            return Ignored("deletion")
        case "system":
            return Ignored("membership", "system")
    text = _text_of(message)
    if text is None:
        return Ignored("unknown", message.type[:64]) if message.type in _SILENT else placeholder(message.type[:32])
    context = message.context
    if text and context is not None and (context.forwarded or context.frequently_forwarded):
        # The words of another person: a command in them is not the sender's.
        text = f"[forwarded]\n{text}"
    return text or Ignored("empty")


def has_only_media(message: Message) -> bool:
    """Whether there is nothing to read: a picture, a file or a recording without a caption, or a kind of message that
    has no text form."""
    media = message.image or message.video or message.audio or message.document
    return not (media.caption or "").strip() if media is not None else _text_of(message) is None


def _text_of(message: Message) -> str | None:
    """None for a kind of message that has no text form."""
    if message.text is not None:
        return join_text(message.text.body, ())
    if message.button is not None:
        return join_text(message.button.text, ())
    if message.interactive is not None:
        chosen = message.interactive.button_reply or message.interactive.list_reply
        return join_text(chosen.title, ()) if chosen else None
    if message.location is not None:
        where = f"{message.location.latitude}, {message.location.longitude}"
        return placeholder("location", message.location.name or where, where if message.location.name else None)
    if message.contacts is not None:
        names = [placeholder("contact", contact.name.formatted_name) for contact in message.contacts]
        return join_text(None, names)
    media = message.image or message.video or message.audio or message.document or message.sticker
    if media is None:
        return None
    return join_text(media.caption, [placeholder(message.type[:32], media.filename, media.mime_type)])
