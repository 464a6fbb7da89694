"""The searches of one user's threads: arguments are checked, then the store is asked."""

from __future__ import annotations

from typing import Unpack

from threadline.core.arguments import MOST_PASSAGES, check_int, check_query, check_str
from threadline.core.thread_filters import ThreadFilterFields, thread_filter
from threadline.core.threads import Hit, Page, ThreadHits
from threadline.ports import Transaction

LIST_LIMIT = 100


class ThreadSearch:
    session: Transaction

    async def search(
        self, query: str, *, limit: int = 20, offset: int = 0, **matching: Unpack[ThreadFilterFields]
    ) -> list[Hit]:
        check_query(query)
        check_int("limit", limit, 1, LIST_LIMIT)
        check_int("offset", offset, 0)
        return await self.session.search(query, limit=limit, offset=offset, matching=thread_filter(matching))

    async def search_threads(
        self,
        query: str,
        *,
        limit: int = 20,
        cursor: str | None = None,
        passages: int = 3,
        **matching: Unpack[ThreadFilterFields],
    ) -> Page[ThreadHits]:
        check_query(query)
        check_int("limit", limit, 1, LIST_LIMIT)
        check_int("passages", passages, 0, MOST_PASSAGES)
        if cursor is not None:
            check_str("cursor", cursor)
        return await self.session.search_threads(
            query, limit=limit, cursor=cursor, passages=passages, matching=thread_filter(matching)
        )
