"""`ThreadlineChatMessageHistory`: a chat history of LangChain, stored as a thread.

history = ThreadlineChatMessageHistory(tl.as_user("ada"), "trip")

Each message is a message of the thread. Where its parts alone would not give a message back as it was, an exact copy is
stored beside them. Messages that others add to the thread are read as LangChain's too.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from threadline.adapters.langchain_messages import Calls, to_langchain, to_parts
from threadline.adapters.loop_bridge import LoopBridge
from threadline.core.errors import InvalidInput, NotFound
from threadline.core.exact_copies import copy_in, with_copy
from threadline.core.messages import Message, NewMessage, Role
from threadline.core.parts import Part, TextPart
from threadline.ports import Gateway, GatewayThread
from threadline.sync_api import SyncGateway

# After the module above, which names the extra if the package is missing.
from langchain_core.chat_history import BaseChatMessageHistory  # isort: skip
from langchain_core.messages import BaseMessage, SystemMessage, message_to_dict, messages_from_dict  # isort: skip

__all__ = ["ThreadlineChatMessageHistory"]

T = TypeVar("T")
_COPY = "langchain"


class ThreadlineChatMessageHistory(BaseChatMessageHistory):
    """`session_id` is the state key of the thread, which is created when it is first needed."""

    def __init__(self, gateway: Gateway | SyncGateway, session_id: str) -> None:
        self._bridge = LoopBridge(gateway)
        self._session_id = session_id

    @property
    def messages(self) -> list[BaseMessage]:
        return self._wait(self._read())

    async def aget_messages(self) -> list[BaseMessage]:
        return await self._bridge.run(self._read())

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """All or none. InvalidInput for a message that is not plain JSON data, LimitExceeded for one that is too
        large."""
        self._wait(self._add(messages))

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        await self._bridge.run(self._add(messages))

    def clear(self) -> None:
        """The thread continues on a new, empty timeline; what was said is still on the one before."""
        self._wait(self._clear())

    async def aclear(self) -> None:
        await self._bridge.run(self._clear())

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self._bridge.wait(work)

    async def _find(self) -> GatewayThread | None:
        try:
            return await self._bridge.gateway.thread(self._session_id)
        except NotFound:
            return None

    async def _read(self) -> list[BaseMessage]:
        thread = await self._find()
        if thread is None:
            return []
        return [each async for message in thread.stream() for each in _to_langchain(message)]

    async def _add(self, messages: Sequence[BaseMessage]) -> None:
        if messages:
            thread = await self._bridge.gateway.open_thread(self._session_id)
            await thread.append(*await self._to_new(thread, messages))

    async def _to_new(self, thread: GatewayThread, messages: Sequence[BaseMessage]) -> list[NewMessage]:
        for message in messages:
            if not isinstance(message, BaseMessage):
                raise InvalidInput(f"each message must be a message of LangChain, got {type(message).__name__}")
        calls = Calls()
        if any(message.type == "tool" for message in messages):
            # A result names only the id of its call, which may have been added before.
            for stored in await thread.messages(newest=100):
                for each in _to_langchain(stored):
                    calls.add(each)
        found = []
        for message in messages:
            calls.add(message)
            found.append(_new_message(message, calls))
        return found

    async def _clear(self) -> None:
        thread = await self._find()
        if thread is not None and (await thread.refresh()).message_count:
            await thread.rewind(-1)


def _new_message(message: BaseMessage, calls: Calls) -> NewMessage:
    role, parts = _shown(message, calls)
    if to_langchain(role, parts) != [message]:
        parts = with_copy(parts, _COPY, [message_to_dict(message)])
    return NewMessage(role, parts)


def _shown(message: BaseMessage, calls: Calls) -> tuple[Role, tuple[Part, ...]]:
    if isinstance(message, SystemMessage):
        return "system", (TextPart(str(message.text)),)
    return to_parts(message, calls) or ("assistant", ())


def _to_langchain(message: Message) -> list[BaseMessage]:
    copies = copy_in(message.parts, _COPY)
    if copies is not None:
        try:
            return list(messages_from_dict(copies))
        except (KeyError, TypeError, ValueError):
            # Another program wrote the copy.
            pass
    return to_langchain(message.role, message.parts)
