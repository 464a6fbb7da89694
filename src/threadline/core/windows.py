"""Windows: the turns of a history, and which of them are shown.

A turn is a user message and the replies to it, also where a queued message came in between. A window contains whole
turns, the newest that fit, and never begins inside one. Messages are decoded only as far back as the window reaches, so
the cost depends on the window and not on the length of the history.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from itertools import pairwise

import msgspec

from threadline.core.authors import with_author
from threadline.core.errors import SettingsInvalid
from threadline.core.messages import Message
from threadline.core.parts import FilePart, Part, TextPart
from threadline.core.prompts import PromptMessage, say
from threadline.core.repair import repair
from threadline.core.steered_messages import STEERED, split_at_steered, steered_message_ids
from threadline.core.tokens import CountTokens, total_tokens
from threadline.core.turns import CHANNELS, SURFACES, Surface, root_turn_id

REFUSED_TEXT = "[This message was refused and is not shown.]"
_REFUSED = b"denied_sentinel"
# Looked for in the stored bytes: decoding every message of the history would cost more than the whole prompt.
_MARKER = STEERED.encode()


class Window(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much of the history is shown: a number of turns, a number of tokens for the whole prompt, or both.

    With a `step` above 1 the window's beginning moves only every `step` turns, so that a provider's prompt cache stays
    valid between. The window is never larger because of it."""

    turns: int | None = None
    tokens: int | None = None
    step: int = 1

    def __post_init__(self) -> None:
        least = {"turns": 0, "tokens": 1, "step": 1}
        for name, lowest in least.items():
            value = getattr(self, name)
            if value is not None and value < lowest:
                raise SettingsInvalid(f"a window's `{name}` must be at least {lowest}, got {value}")

    def narrowed(self, turns: int | None) -> Window:
        """With at most this many turns; never larger."""
        if turns is None or (self.turns is not None and turns >= self.turns):
            return self
        return msgspec.structs.replace(self, turns=turns)


CHANNEL_WINDOW = Window(turns=12)
# Half of the smallest context the larger providers sell: the rest is for tools, the reply and the estimate's error.
READING_WINDOW = Window(tokens=64_000, step=8)


def windows(reading: Window = READING_WINDOW, channels: Window = CHANNEL_WINDOW) -> dict[Surface, Window]:
    """Which window each surface gets: one where people read long threads, one on messaging channels."""
    return {surface: channels if surface in CHANNELS else reading for surface in SURFACES}


class PastTurn:
    """A turn of the history. The first may have no request, in a thread that begins with an assistant message."""

    def __init__(self, message: Message, refused: Collection[str] = ()) -> None:
        self.messages = [message]
        self.first_seq = message.seq
        self.last_seq = message.seq
        self.steered: dict[str, tuple[Part, ...]] = {}
        self._tokens: int | None = None
        self._is_refused = message.role == "user" and message.turn_id in refused

    def add(self, message: Message) -> None:
        self.messages.append(message)
        self.last_seq = max(self.last_seq, message.seq)

    @property
    def splits(self) -> int:
        """How many messages more are shown than are stored: a reply that took messages in is shown in several."""
        if not self.steered:
            return 0
        replies = sum(message.role == "assistant" for message in self.shown)
        return max(replies - (len(self.messages) - 1), 0)

    def take_in(self, message: Message) -> None:
        """A message that the reply of this turn took in."""
        self.steered[message.id] = shown_message(message).parts
        self.last_seq = max(self.last_seq, message.seq)

    @cached_property
    def shown(self) -> tuple[PromptMessage, ...]:
        """Empty if the request was blank: a reply without a question would mislead the model."""
        said = [shown_message(message) for message in self.messages]
        if self._is_refused:
            said[0] = say("user", REFUSED_TEXT)
        first = said[0]
        if first.role == "user" and not _says_something(first):
            return ()
        if self.steered:
            said = [first, *(each for reply in said[1:] for each in split_at_steered(reply, self.steered))]
        return repair(said)

    def tokens(self, count: CountTokens) -> int:
        """What `shown` costs, counted once."""
        if self._tokens is None:
            self._tokens = total_tokens(self.shown, count)
        return self._tokens


def shown_message(message: Message) -> PromptMessage:
    """A stored message as an agent is shown it."""
    return PromptMessage(message.role, with_author(message.role, message.parts, message.metadata_json))


def _says_something(message: PromptMessage) -> bool:
    # A loop and not a generator in `any`: it runs for every message of the history.
    for part in message.parts:
        if bool(part.text.strip()) if isinstance(part, TextPart) else isinstance(part, FilePart):
            return True
    return False


def refused_turns(history: Sequence[Message]) -> set[str]:
    """Turns whose request a guard refused: agents are not shown its text."""
    return {
        message.turn_id
        for message in history
        if message.turn_id is not None
        and message.metadata_json is not None
        and _REFUSED in message.metadata_json
        and message.metadata.get("status") == "denied_sentinel"
    }


def past_turns(
    history: Sequence[Message], request: Message | None = None, refused: Collection[str] = ()
) -> list[PastTurn]:
    """The turns before the request. Of later messages, only replies to earlier turns count, and the messages that those
    took in. If the history was not read from its beginning, a reply whose request was not read is left out."""
    turns: list[PastTurn] = []
    by_id: dict[str | None, PastTurn] = {}
    is_whole = bool(history) and history[0].seq == 0
    taken = _taken_in(history, request)
    taken_ids = {message.id for messages in taken.values() for message in messages}
    for message in history:
        if message.id in taken_ids:
            continue
        came_after = request is not None and message.seq >= request.seq
        turn_id = None if message.turn_id is None else root_turn_id(message.turn_id)
        owner = by_id.get(turn_id)
        if message.role != "user" and owner is not None:
            owner.add(message)
            for steered in taken.get(message.id, ()):
                owner.take_in(steered)
        elif came_after:
            continue
        elif message.role == "user" or (is_whole and not turns):
            turns.append(PastTurn(message, refused))
            if turn_id is not None:
                by_id[turn_id] = turns[-1]
        elif turns and (is_whole or message.turn_id is None):
            turns[-1].add(message)
    return turns


def _taken_in(history: Sequence[Message], request: Message | None) -> dict[str, list[Message]]:
    """By the id of a reply, the user's messages that it took in and answers. One that was answered on its own after
    all, or is being answered now, is a turn of its own."""
    marked = [each for each in history if each.role != "user" and _MARKER in each.parts_json]
    if not marked:
        return {}
    answered = {root_turn_id(each.turn_id) for each in history if each.role != "user" and each.turn_id is not None}
    steered = {each.id: each for each in history if each.role == "user" and each.turn_id not in answered}
    if request is not None:
        steered.pop(request.id, None)
    found = {reply.id: steered_message_ids(reply.parts) for reply in marked}
    return {reply_id: [steered[id] for id in ids if id in steered] for reply_id, ids in found.items()}


def newest_turns(
    turns: Sequence[PastTurn], window: Window, budget: int | None, count: CountTokens, *, first_seq: int
) -> list[PastTurn]:
    """The newest turns that fit the window and the budget (tokens for the turns alone), oldest first. `first_seq` is
    the first message that may be shown. All turns that were read, if the window has room for more."""
    fitting: list[PastTurn] = []
    spent = 0
    for turn in reversed(turns):
        if not turn.shown:
            continue
        if len(fitting) == window.turns:
            break
        spent += turn.tokens(count)
        if budget is not None and spent > budget:
            break
        fitting.append(turn)
    else:
        # All that was read fits. What comes before is not known unless the window is full: a beginning that was moved
        # to the step would make a window look full that is not.
        if not turns or turns[0].first_seq <= first_seq or len(fitting) != window.turns:
            return fitting[::-1]
    return _from_anchor(fitting[::-1], turns, window.step)


def _from_anchor(fitting: list[PastTurn], turns: Sequence[PastTurn], step: int) -> list[PastTurn]:
    """The window from its first anchor on. Anchors depend on seq alone, so they are the same in every turn: the first
    turn in each run of `2 * step` messages, because a turn usually has two."""
    if step == 1:
        return fitting
    stride = 2 * step
    anchors = {turn.first_seq for turn in turns if turn.first_seq % stride == 0}
    anchors |= {
        turn.first_seq for before, turn in pairwise(turns) if before.first_seq // stride != turn.first_seq // stride
    }
    for index, turn in enumerate(fitting):
        if turn.first_seq in anchors:
            return fitting[index:]
    return fitting
