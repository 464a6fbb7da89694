"""What is said: sealed messages in one word, turns that ask, and histories as plain lists to compare."""

from __future__ import annotations

from collections.abc import Iterable

from threadline.core import messages
from threadline.core.messages import Message, NewMessage
from threadline.core.sealing import CleanJson, CleanText, Sealed, Sealer
from threadline.core.threads import NewThread, Thread
from threadline.core.turn_commits import Accepted, TurnAcceptance
from threadline.core.turns import Surface, Turn, TurnStatus
from threadline.ports import Transaction

_SEALER = Sealer()


def seal(new: NewMessage) -> Sealed:
    return _SEALER.message(new)


def user_message(text: str, id: str | None = None) -> Sealed:
    return seal(messages.user(text, id=id))


def assistant_message(text: str, id: str | None = None) -> Sealed:
    return seal(messages.assistant(text, id=id))


def exchange(*texts: str) -> list[Sealed]:
    """A user asks, the assistant answers, and so on."""
    return [assistant_message(text) if index % 2 else user_message(text) for index, text in enumerate(texts)]


def clean_text(text: str) -> CleanText:
    return _SEALER.text(text)


def clean_json(value: dict[str, object]) -> CleanJson:
    return _SEALER.json(value)


def texts(found: Iterable[Message]) -> list[str]:
    return [message.text for message in found]


async def history(tx: Transaction, thread_id: str) -> list[str]:
    return texts(await tx.messages(thread_id))


async def create_thread_with(tx: Transaction, *said: str, new: NewThread | None = None) -> Thread:
    """A thread that holds this exchange, as it stands after it."""
    thread = await tx.create_thread(new or NewThread())
    if said:
        await tx.append(thread.id, exchange(*said))
    stored = await tx.thread(thread.id)
    assert stored is not None
    return stored


async def add_turn(
    tx: Transaction,
    turn_id: str,
    thread_id: str,
    surface: Surface = "web",
    *,
    key: str | None = None,
    request_hash: bytes | None = None,
    status: TurnStatus = "accepted",
    model: str | None = None,
) -> Turn:
    """A turn of the thread that no process has leased, with the message that it answers."""
    new = TurnAcceptance(
        turn_id=turn_id,
        surface=surface,
        message=user_message("Is it far?"),
        thread_id=thread_id,
        key=key,
        request_hash=request_hash,
        status=status,
        model=model,
    )
    outcome = await tx.accept_turn(new)
    assert isinstance(outcome, Accepted)
    return outcome.turn
