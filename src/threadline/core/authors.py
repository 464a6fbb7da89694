"""Authors: who wrote a message of a thread that several people write in.

The author is stored in the message's metadata, under `author`: `id` is the user, `name` how they are called where they
wrote, `account` their account there. The agent is shown it in front of the text. The id comes first, because people
choose their names: a name cannot pass for another user's id.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from threadline.core.parts import Part, TextPart

AUTHOR = "author"
"""In the metadata of a user message."""
LONGEST_NAME = 80
_MARK = b'"author"'
_HEAD = re.compile(r"\S+ \([^()]+\): ")


class Author(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    name: str | None = None
    account: str | None = None


def author_metadata(author: Author) -> dict[str, Any]:
    """What is stored with the message."""
    found: dict[str, Any] = msgspec.to_builtins(author)
    return {AUTHOR: found}


def plain_name(name: str | None) -> str | None:
    """The name on one line, without what sets it off from the text; None if nothing is left."""
    kept = " ".join("".join(char if char.isprintable() and char not in "():" else " " for char in name or "").split())
    return kept[:LONGEST_NAME] or None


def read_author(metadata: dict[str, Any]) -> Author | None:
    """None for a message that names no author, or in another form: callers choose the metadata of what they append."""
    try:
        return msgspec.convert(metadata.get(AUTHOR), Author)
    except msgspec.ValidationError:
        return None


def with_author(role: str, parts: tuple[Part, ...], metadata_json: bytes | None) -> tuple[Part, ...]:
    """The parts of a stored message as an agent is shown them: a user's text begins with its author, if it names
    one."""
    if role != "user" or metadata_json is None or _MARK not in metadata_json:
        return parts
    metadata = msgspec.json.decode(metadata_json)
    author = read_author(metadata) if isinstance(metadata, dict) else None
    return parts if author is None else _named(parts, author)


def without_author(text: str) -> str:
    """The text without the named author in front, for agents that look for fixed words."""
    head = _HEAD.match(text)
    return text if head is None else text[head.end() :]


def _named(parts: Sequence[Part], author: Author) -> tuple[Part, ...]:
    who = " ".join(author.id.split())
    name = plain_name(author.name)
    head = f"{who} ({name}): " if name is not None and name != who else f"{who}: "
    for index, part in enumerate(parts):
        if isinstance(part, TextPart):
            named = msgspec.structs.replace(part, text=head + part.text)
            return (*parts[:index], named, *parts[index + 1 :])
    return (TextPart(head.rstrip()), *parts)
