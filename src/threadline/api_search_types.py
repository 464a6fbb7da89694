"""JSON types of searches: single messages, and threads with their best passages."""

from __future__ import annotations

from threadline.api_types import ApiStruct, Moment


class SearchHit(ApiStruct, frozen=True):
    """A message that matches a search."""

    thread_id: str
    state_key: str
    message_id: str
    seq: int
    role: str
    snippet: str
    created_at: Moment
    title: str | None = None


class SearchResponse(ApiStruct, frozen=True):
    hits: list[SearchHit]


class ThreadSearchHit(ApiStruct, frozen=True):
    """A thread that a search found: by its title, or by `hitCount` of its messages, of which `hits` are the best."""

    thread_id: str
    state_key: str
    updated_at: Moment
    title_match: bool
    hit_count: int
    hits: list[SearchHit]
    title: str | None = None


class ThreadSearchResponse(ApiStruct, frozen=True):
    threads: list[ThreadSearchHit]
    next_cursor: str | None = None
