"""A service as one user sees it: the user is the one that the token belongs to. The contract is `ports.Gateway`."""

from __future__ import annotations

import datetime as dt
from typing import Any, Literal, Self, Unpack
from urllib.parse import quote

from threadline import api_search_types as search_api
from threadline import api_types as api
from threadline.client.bridge import BridgeClient
from threadline.client.filters import condition_query, filter_query
from threadline.client.replies import RemoteReply, earlier_reply
from threadline.client.stored_values import RemoteValues
from threadline.client.threads import HOME, THREADS, RemoteThread, create, read_thread, thread_body
from threadline.client.transport import RetryPolicy, Transport
from threadline.client.values import (
    read,
    to_context,
    to_hit,
    to_saved_point,
    to_thread,
    to_thread_hits,
    to_turn,
    to_usage,
)
from threadline.core.arguments import check_query, check_str, new_thread
from threadline.core.channels import ContextSnapshot
from threadline.core.errors import DuplicateId, InvalidInput, NotFound
from threadline.core.ids import check_id, check_name, check_state_key, check_thread_key, check_user_id, is_id
from threadline.core.thread_filters import ThreadFilterFields
from threadline.core.threads import Hit, NamedThreadFields, Page, SavedPoint, Thread, ThreadFields, ThreadHits
from threadline.core.turns import Surface, TurnInfo
from threadline.core.usage import UsageFilter, UsageRow
from threadline.ports import Gateway, GatewayContexts

_SAVES = "/api/v1/ai/saves"
_SEARCH = "/api/v1/ai/search"
_LINKS = "/api/v1/channels/links"


def connect(url: str, *, token: str | None = None, retry: RetryPolicy | None = None) -> Client:
    """A client of the service at this address. Nothing is sent yet. Close it, or use it with `async with`."""
    return Client(Transport(url, token, retry or RetryPolicy()))


class Client(Gateway):
    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._contexts = RemoteContexts(transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.close()

    @property
    def contexts(self) -> RemoteContexts:
        return self._contexts

    @property
    def values(self) -> RemoteValues:
        return RemoteValues(self._transport, "user")

    @property
    def tenant_values(self) -> RemoteValues:
        return RemoteValues(self._transport, "tenant")

    def acting_for(self, user_id: str, surface: Literal["matrix"] | None = "matrix") -> Client:
        """The same service as this user sees it, on the same connection; its turns come from `surface`. For tokens that
        act for users: ImpersonationRefused, with the first request, for any other."""
        headers = {"x-on-behalf-of": quote(check_user_id(user_id), safe="@:/+=~")}
        return Client(self._transport.with_headers(headers if surface is None else {**headers, "x-surface": surface}))

    def bridge(self, platform: Surface) -> BridgeClient:
        """The calls of a bot that holds this platform's connection."""
        return BridgeClient(self._transport, platform)

    async def create_thread(self, **fields: Unpack[ThreadFields]) -> RemoteThread:
        body = thread_body(new_thread(fields))
        return await create(self._transport, THREADS, body, is_new_id=fields.get("id") is None)

    async def open_thread(self, key: str, **fields: Unpack[NamedThreadFields]) -> RemoteThread:
        new = new_thread({**fields, "state_key": check_state_key(key)})
        try:
            return await self.thread(key)
        except NotFound:
            pass
        try:
            is_new_id = fields.get("id") is None
            return await create(self._transport, THREADS, thread_body(new), is_new_id=is_new_id)
        except DuplicateId:
            # Another caller created it since it was looked up.
            return await self.thread(key)

    async def thread(self, thread_id: str) -> RemoteThread:
        if not is_id(check_thread_key(thread_id)):
            # Keys with other characters exist in the library; over HTTP such a thread is reached by its id.
            raise NotFound("thread", thread_id)
        return RemoteThread(self._transport, await read_thread(self._transport, thread_id))

    async def home_thread(self) -> RemoteThread | None:
        home = read(await self._transport.call("GET", HOME), api.HomeResponse).thread
        return None if home is None else RemoteThread(self._transport, to_thread(home))

    async def threads(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        offset: int = 0,
        archived: bool | None = False,
        deleted: bool = False,
        **matching: Unpack[ThreadFilterFields],
    ) -> Page[Thread]:
        query = {"limit": limit, "cursor": cursor, "offset": offset, **filter_query(archived, deleted, matching)}
        return await self._page(THREADS, query)

    async def all_threads(
        self,
        *,
        user: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
        archived: bool | None = False,
        deleted: bool = False,
        **matching: Unpack[ThreadFilterFields],
    ) -> Page[Thread]:
        query = {"limit": limit, "cursor": cursor, "user": user, **filter_query(archived, deleted, matching)}
        return await self._page("/api/v1/threads", query)

    async def _page(self, path: str, query: dict[str, Any]) -> Page[Thread]:
        found = read(await self._transport.call("GET", path, query=query), api.ThreadsResponse)
        return Page(tuple(to_thread(each) for each in found.threads), found.next_cursor)

    async def restore_thread(self, thread_id: str) -> RemoteThread:
        body = {"id": check_id("thread", thread_id)}
        answer = await self._transport.call("POST", f"{THREADS}/restore", body)
        return RemoteThread(self._transport, to_thread(read(answer, api.ThreadInfo)))

    async def prune(self, *, older_than: dt.timedelta = dt.timedelta(0)) -> int:
        body = {"olderThanSeconds": older_than.total_seconds()}
        return read(await self._transport.call("POST", f"{THREADS}/prune", body), api.PruneResponse).removed

    async def search(
        self, query: str, *, limit: int = 20, offset: int = 0, **matching: Unpack[ThreadFilterFields]
    ) -> list[Hit]:
        wanted = {"q": check_query(query), "limit": limit, "offset": offset, **condition_query(matching)}
        answer = await self._transport.call("GET", THREADS, query=wanted)
        return [to_hit(hit) for hit in read(answer, search_api.SearchResponse).hits]

    async def search_threads(
        self,
        query: str,
        *,
        limit: int = 20,
        cursor: str | None = None,
        passages: int = 3,
        **matching: Unpack[ThreadFilterFields],
    ) -> Page[ThreadHits]:
        wanted = {"q": check_query(query), "limit": limit, "cursor": cursor, "passages": passages}
        answer = await self._transport.call("GET", _SEARCH, query={**wanted, **condition_query(matching)})
        found = read(answer, search_api.ThreadSearchResponse)
        return Page(tuple(to_thread_hits(each) for each in found.threads), found.next_cursor)

    async def saved_points(self) -> list[SavedPoint]:
        found = read(await self._transport.call("GET", _SAVES), api.SavedPointsResponse)
        return [to_saved_point(each) for each in found.saves]

    async def forget_saved_point(self, name: str) -> bool:
        path = f"{_SAVES}/{quote(check_name('saved point', name), safe='')}"
        return read(await self._transport.call("DELETE", path), api.ForgetResponse).forgotten

    async def usage(self, **query: Unpack[UsageFilter]) -> list[UsageRow]:
        by = ",".join(check_str("by", group) for group in query.get("by") or ())
        given = {"by": by or None, "user": query.get("user"), "agent": query.get("agent")}
        for name in ("since", "until"):
            if (day := query.get(name)) is not None and type(day) is not dt.date:
                raise InvalidInput(f"`{name}` must be a date, got {type(day).__name__}")
            given[name] = None if day is None else str(day)
        found = read(await self._transport.call("GET", "/api/v1/usage", query=given), api.UsageResponse)
        return [to_usage(entry) for entry in found.usage]

    async def import_threads(self, lines: bytes) -> list[Thread]:
        if not isinstance(lines, bytes):
            raise InvalidInput(f"`lines` must be bytes, got {type(lines).__name__}")
        headers = {"content-type": "application/x-ndjson"}
        answer = await self._transport.call("POST", f"{THREADS}/import", headers=headers, content=lines)
        return [to_thread(each) for each in read(answer, api.ImportResponse).threads]

    async def turn(self, turn_id: str) -> TurnInfo:
        path = f"/api/v1/ai/turns/{check_id('turn', turn_id)}"
        return to_turn(read(await self._transport.call("GET", path), api.TurnInfo))

    def reply(self, turn_id: str) -> RemoteReply:
        return earlier_reply(self._transport, turn_id)

    async def me(self) -> api.MeResponse:
        """Who the service takes the caller for."""
        return read(await self._transport.call("GET", "/api/v1/me"), api.MeResponse)

    async def agents(self) -> api.AgentsResponse:
        return read(await self._transport.call("GET", "/api/v1/agents"), api.AgentsResponse)

    async def link_of(self, platform: str, platform_user_id: str) -> api.LinkInfo | None:
        """The link of an account: the user's own; any account's for a token that acts for users."""
        which = {"platform": platform, "platformUserId": platform_user_id}
        found = read(await self._transport.call("GET", _LINKS, query=which), api.LinksResponse).links
        return found[0] if found else None

    async def redeem_link(self, platform: str, platform_user_id: str, code: str) -> str:
        """Links the account that sent the code; returns the user's id. LinkRefused, LinkLimited. Not repeated if the
        response is lost: `link_of` says whether it worked. For a token that acts for users, on its own account."""
        given = {"platform": platform, "platformUserId": platform_user_id, "code": code}
        answer = await self._transport.call("POST", f"{_LINKS}/redeem", given, again=False)
        return read(answer, api.RedeemedLinkResponse).user_id

    async def unlink(self, platform: str, platform_user_id: str) -> None:
        """Removes the user's link with the account, if there is one."""
        which = {"platform": platform, "platformUserId": platform_user_id}
        await self._transport.call("DELETE", _LINKS, query=which)


class RemoteContexts(GatewayContexts):
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def set(self, agent_id: str, context: str) -> ContextSnapshot:
        await self._transport.call("POST", _context(agent_id), {"context": context})
        return await self.get(agent_id)

    async def get(self, agent_id: str) -> ContextSnapshot:
        return to_context(read(await self._transport.call("GET", _context(agent_id)), api.PinnedContext))

    async def clear(self, agent_id: str) -> bool:
        try:
            await self.get(agent_id)
        except NotFound:
            return False
        await self._transport.call("DELETE", _context(agent_id))
        return True


def _context(agent_id: str) -> str:
    return f"/api/v1/agents/{check_id('agent', agent_id)}/context"
