"""Items of conversations: the messages of a thread as OpenAI's items, page by page, and single items by their ids."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from threadline.core.client_tools import offered_to
from threadline.core.errors import InvalidInput, NotFound
from threadline.core.messages import Message
from threadline.core.parts import ToolPart
from threadline.core.threads import Thread
from threadline.core.turns import Turn
from threadline.ports import StoreSession
from threadline.service.openai_api.api_bodies import ItemList, PageQuery
from threadline.service.openai_api.object_ids import read_item_id
from threadline.service.openai_api.output_items import message_items, numbered_parts

_READ_AT_A_TIME = 50


class FoundItem(NamedTuple):
    item: dict[str, Any]
    message: Message
    part: int | None
    """None if the item is the whole message."""

    @property
    def call_id(self) -> str | None:
        """The id that the agent gave to this call."""
        for number, part in numbered_parts(self.message.parts, self.message.hidden):
            if number == self.part and isinstance(part, ToolPart):
                return part.call_id
        return None


class ConversationItems:
    """Of one request: the turns that it needs are read once."""

    def __init__(self, session: StoreSession) -> None:
        self._session = session
        self._tool_names: dict[str, list[str]] = {}

    async def of(self, message: Message) -> list[dict[str, Any]]:
        return message_items(message, await self._names(message))

    async def _names(self, message: Message) -> list[str]:
        """The tools whose calls the caller runs. Calls that a client appended are all the client's."""
        called = [part.name for part in message.parts if isinstance(part, ToolPart)]
        if not called or message.turn_id is None:
            return called
        if message.turn_id not in self._tool_names:
            turn = await self._session.turn(message.turn_id)
            self._tool_names[message.turn_id] = [] if turn is None else tool_names(turn)
        return self._tool_names[message.turn_id]

    async def page(self, thread: Thread, query: PageQuery) -> ItemList:
        """InvalidInput if `after` is no item of the thread."""
        after = None if query.after is None else await self.find(thread, query.after, "after")
        step = 1 if query.order == "asc" else -1
        seq = after.message.seq if after is not None else 0 if step == 1 else thread.message_count - 1
        found: list[dict[str, Any]] = []
        is_past = after is None
        while 0 <= seq < thread.message_count and len(found) <= query.limit:
            for message in await self._read(thread, seq, query.order):
                items = await self.of(message)
                for item in items if step == 1 else reversed(items):
                    if is_past:
                        found.append(item)
                    is_past = is_past or item["id"] == query.after
            seq += step * _READ_AT_A_TIME
        return as_page(found, query.limit)

    async def _read(self, thread: Thread, seq: int, order: Literal["asc", "desc"]) -> list[Message]:
        if order == "asc":
            return await self._session.messages(thread.id, first=seq, last=seq + _READ_AT_A_TIME - 1)
        found = await self._session.messages(thread.id, first=max(0, seq - _READ_AT_A_TIME + 1), last=seq)
        return found[::-1]

    async def find(self, thread: Thread, item_id: str, parameter: str | None = None) -> FoundItem:
        """NotFound; InvalidInput if the id is the value of a parameter."""
        named = read_item_id(item_id)
        if named is not None:
            message = await self._session.message(thread.id, named.message_id)
            candidates = [] if message is None else [message]
        else:
            # A request for approval has the id of the approval; only the last reply can have open ones.
            last = thread.message_count - 1
            candidates = await self._session.messages(thread.id, first=max(0, last), last=last) if last >= 0 else []
        for message in candidates:
            for item in await self.of(message):
                if item_id in (item["id"], item.get("call_id")):
                    part = None if message.role != "assistant" or named is None else named.part
                    return FoundItem(item, message, part)
        if parameter is not None:
            raise InvalidInput(f"`{parameter}` must be the id of an item of this conversation, got {item_id!r}")
        raise NotFound("item", item_id)

    async def find_in_replies(self, item_id: str) -> FoundItem | None:
        """An item of a reply, in the present history of the thread that the reply was written in."""
        named = read_item_id(item_id)
        turn = None if named is None or named.turn_id is None else await self._session.turn(named.turn_id)
        thread = None if turn is None else await self._session.thread(turn.thread_id)
        if thread is None:
            return None
        try:
            return await self.find(thread, item_id)
        except NotFound:
            return None


def as_page(found: list[dict[str, Any]], limit: int) -> ItemList:
    page = found[:limit]
    first, last = (page[0]["id"], page[-1]["id"]) if page else (None, None)
    return ItemList(page, first, last, len(found) > limit)


def tool_names(turn: Turn) -> list[str]:
    return [tool.name for tool in offered_to(turn.surface, turn.seen) or ()]
