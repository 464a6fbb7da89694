"""What the codecs for plain message lists share: one stored message for each group of foreign ones, and back.

Where the parts of a message alone would not give the foreign messages back as they came, a copy is stored too (see
`threadline.core.exact_copies`); so a list that was stored is read back equal, but for secrets, which are masked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from threadline.core import parts as parts_
from threadline.core.exact_copies import copy_in, with_copy
from threadline.core.messages import Message, NewMessage
from threadline.core.prompts import PromptMessage

StoredMessage = Message | NewMessage | PromptMessage
Group = Sequence[Mapping[str, Any]]


def plain(value: Any) -> Any:
    """The objects of a provider's SDK as plain JSON data."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", exclude_unset=True, warnings=False)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def to_new_messages(
    groups: Iterable[Group],
    format: str,
    read: Callable[[Group], Sequence[PromptMessage]],
    write: Callable[[Sequence[PromptMessage]], list[dict[str, Any]]],
) -> list[NewMessage]:
    """The copy of a group that becomes several messages goes with the first; the others have an empty one."""
    found: list[NewMessage] = []
    for group in groups:
        # A result without its call is no message, but must be kept.
        messages = read(group) or [PromptMessage("assistant", ())]
        if write(messages) == list(group):
            found.extend(NewMessage(each.role, each.parts) for each in messages)
            continue
        for number, each in enumerate(messages):
            found.append(NewMessage(each.role, with_copy(each.parts, format, group if number == 0 else ())))
    return found


def from_stored(
    messages: Iterable[StoredMessage],
    format: str,
    write: Callable[[Sequence[PromptMessage]], list[dict[str, Any]]],
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    others: list[PromptMessage] = []
    for message in messages:
        prompt = as_prompt(message)
        copies = copy_in(prompt.parts, format)
        if copies is None:
            others.append(prompt)
            continue
        found.extend(write(others))
        found.extend(copies)
        others.clear()
    return [*found, *write(others)]


def as_prompt(message: StoredMessage) -> PromptMessage:
    parts = parts_.decode(message.parts) if isinstance(message.parts, bytes) else tuple(message.parts)
    return PromptMessage(message.role, parts)
