"""The chat's threads for the shared command handlers: the place is the terminal, its thread is the session's."""

from __future__ import annotations

from collections.abc import Sequence

from threadline.cli.chat.session import ChatSession
from threadline.cli.chat.thread_choice import open_thread
from threadline.core.errors import InvalidInput, NotFound
from threadline.core.open_questions import OpenQuestion
from threadline.core.threads import SavedPoint
from threadline.messaging.command_executor import ChatInfo, CurrentChat
from threadline.ports.gateway import GatewayThread

_SEARCHED_TITLES = 100


class TerminalThreads:
    """`CommandThreads` for the chat's session: the place is the terminal, its thread is the session's."""

    def __init__(self, session: ChatSession) -> None:
        self._session = session
        self._created: GatewayThread | None = None
        self.question: OpenQuestion | None = None

    def require(self) -> GatewayThread:
        if self._session.thread is None:
            raise InvalidInput("no chat yet: send a message first, or open one with /open")
        return self._session.thread

    async def current(self) -> CurrentChat:
        return CurrentChat(await self.require().refresh())

    async def create(self, title: str | None) -> ChatInfo:
        self._created = await self._session.create_thread(title)
        return self._created

    async def branch(self, title: str | None) -> ChatInfo:
        self._created = await self.require().branch(title=title)
        return self._created

    async def open_place(self, thread: ChatInfo, reply: str) -> str | None:
        await self.continue_here(thread)
        return reply

    async def continue_here(self, thread: ChatInfo) -> None:
        created, self._created = self._created, None
        is_created = created is not None and created.id == thread.id
        self._session.thread = created if is_created else await self._session.gateway.thread(thread.id)

    async def find(self, name: str) -> Sequence[ChatInfo]:
        recent = await self._session.gateway.threads(limit=_SEARCHED_TITLES, archived=None)
        if titled := [each for each in recent.items if (each.title or "").casefold() == name.casefold()]:
            return titled
        try:
            return [await open_thread(self._session.gateway, name)]
        except NotFound:
            return []

    async def recent(self, limit: int) -> Sequence[CurrentChat]:
        return [CurrentChat(each) for each in (await self._session.gateway.threads(limit=limit)).items]

    async def saved_points(self) -> Sequence[SavedPoint]:
        return await self._session.gateway.saved_points()

    async def save(self, name: str) -> SavedPoint:
        return await self.require().save(name)

    async def load(self, name: str) -> ChatInfo:
        thread = await self._session.begin_thread()
        await thread.load(name)
        return thread

    async def undo(self) -> ChatInfo:
        thread = self.require()
        await thread.undo()
        return thread

    async def rename(self, title: str) -> ChatInfo:
        thread = await self._session.begin_thread()
        await thread.update(title=title)
        return thread

    async def archive(self) -> None:
        await self.require().update(archived=True)

    async def home(self) -> ChatInfo | None:
        return await self._session.gateway.home_thread()

    async def make_home(self) -> ChatInfo:
        thread = self.require()
        await thread.make_home()
        return thread

    async def ask(self, question: OpenQuestion | None) -> None:
        self.question = question
