"""A service as one user sees it: whose token it is, is who asks."""

from __future__ import annotations

from typing import Literal, Self
from urllib.parse import quote

from threadline.api_types import (
    AgentsResponse,
    ImportResponse,
    LinkInfo,
    LinksResponse,
    PinnedContext,
    RedeemedLinkResponse,
    SavedPointsResponse,
    SearchHit,
    SearchResponse,
    ThreadInfo,
    ThreadsResponse,
)
from threadline.client.conversion import to_saved_point
from threadline.client.threads import THREADS, RemoteThread
from threadline.client.transport import RetryPolicy, Transport
from threadline.client.values import read
from threadline.core.errors import NotFound
from threadline.core.ids import check_id, check_user_id, new_state_key
from threadline.core.threads import Page, SavedPoint

_SAVES = "/api/v1/ai/saves"
_LINKS = "/api/v1/channels/links"


def connect(url: str, *, token: str | None = None, patience: RetryPolicy | None = None) -> Client:
    """A client of the service at this address. Nothing is sent yet. Close it, or use it with `async with`."""
    return Client(Transport(url, token, patience or RetryPolicy()))


class Client:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.contexts = RemoteContexts(transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.close()

    def acting_for(self, user_id: str, surface: Literal["matrix"] | None = "matrix") -> Client:
        """The same service as this user sees it, on the same connection; its turns come from `surface`. For tokens that
        act for users: ImpersonationRefused, with the first request, for any other."""
        headers = {"x-on-behalf-of": quote(check_user_id(user_id), safe="@:/+=~")}
        return Client(self._transport.with_headers(headers if surface is None else {**headers, "x-surface": surface}))

    def create_thread(self, *, state_key: str | None = None, agent_id: str | None = None) -> RemoteThread:
        """A thread that begins with its first question."""
        return RemoteThread(self._transport, state_key or new_state_key(), agent_id=agent_id)

    async def thread(self, state_key: str) -> RemoteThread:
        """NotFound."""
        return await RemoteThread(self._transport, state_key).found()

    async def threads(
        self, *, limit: int = 50, cursor: str | None = None, offset: int = 0, archived: bool = False
    ) -> Page[ThreadInfo]:
        """Latest activity first."""
        query = {"limit": limit, "cursor": cursor, "offset": offset, "archived": archived}
        found = read(await self._transport.call("GET", THREADS, query=query), ThreadsResponse)
        return Page(tuple(found.threads), found.next_cursor)

    async def search(self, query: str, *, limit: int = 20, offset: int = 0) -> list[SearchHit]:
        """Messages that hold all the words."""
        asked = {"q": query, "limit": limit, "offset": offset}
        return read(await self._transport.call("GET", THREADS, query=asked), SearchResponse).hits

    async def saved_points(self) -> list[SavedPoint]:
        found = read(await self._transport.call("GET", _SAVES), SavedPointsResponse)
        return [to_saved_point(each) for each in found.saves]

    async def forget_saved_point(self, name: str) -> None:
        await self._transport.call("DELETE", f"{_SAVES}/{quote(name, safe='')}")

    async def agents(self) -> AgentsResponse:
        return read(await self._transport.call("GET", "/api/v1/agents"), AgentsResponse)

    async def link_of(self, platform: str, platform_user_id: str) -> LinkInfo | None:
        """Whose account it is, and whether it is barred: the user's own; anyone's for a token that acts for users."""
        which = {"platform": platform, "platformUserId": platform_user_id}
        found = read(await self._transport.call("GET", _LINKS, query=which), LinksResponse).links
        return found[0] if found else None

    async def redeem_link(self, platform: str, platform_user_id: str, code: str) -> str:
        """Links the account that sent the code; with whom. LinkRefused, LinkLimited. Not repeated if the answer is
        lost: `link_of` tells what came of it. For a token that acts for users, on its own account."""
        given = {"platform": platform, "platformUserId": platform_user_id, "code": code}
        answer = await self._transport.call("POST", f"{_LINKS}/redeem", given, again=False)
        return read(answer, RedeemedLinkResponse).user_id

    async def unlink(self, platform: str, platform_user_id: str) -> None:
        """The account is the user's no longer, if it was."""
        which = {"platform": platform, "platformUserId": platform_user_id}
        await self._transport.call("DELETE", _LINKS, query=which)

    async def import_threads(self, lines: bytes) -> list[ThreadInfo]:
        """Threads that were exported as `jsonl`: all of them or none. Not repeated if the answer is lost."""
        headers = {"content-type": "application/x-ndjson"}
        answer = await self._transport.call("POST", f"{THREADS}/import", headers=headers, content=lines, again=False)
        return read(answer, ImportResponse).threads


class RemoteContexts:
    """What the user pinned for agents."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def set(self, agent_id: str, context: str) -> None:
        await self._transport.call("POST", _context(agent_id), {"context": context})

    async def get(self, agent_id: str) -> PinnedContext:
        """NotFound if nothing is pinned."""
        return read(await self._transport.call("GET", _context(agent_id)), PinnedContext)

    async def clear(self, agent_id: str) -> bool:
        """False if nothing was pinned."""
        try:
            await self.get(agent_id)
        except NotFound:
            return False
        await self._transport.call("DELETE", _context(agent_id))
        return True


def _context(agent_id: str) -> str:
    return f"/api/v1/agents/{check_id('agent', agent_id)}/context"
