"""The filters of lists of threads and of searches, as parameters of a query."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Literal

import msgspec

from threadline.api_types import Id
from threadline.core import jsontext
from threadline.core.thread_filters import ThreadFilterFields
from threadline.core.turns import Surface
from threadline.service.http.requests import RequestStruct

_Time = Annotated[dt.datetime, msgspec.Meta(tz=True)]


class ThreadFilterQuery(RequestStruct, frozen=True, kw_only=True):
    where: (
        Annotated[str, msgspec.Meta(description='Metadata, as a JSON object: `{"project":"lisbon","draft":true}`.')]
        | None
    ) = None
    tag: Annotated[str, msgspec.Meta(description="One of the list `tags` of the metadata.")] | None = None
    agent: Id | None = None
    surface: Annotated[Surface, msgspec.Meta(description="A surface that a turn of the thread came from.")] | None = (
        None
    )
    since: Annotated[_Time, msgspec.Meta(description="Last activity at this time or later.")] | None = None
    until: Annotated[_Time, msgspec.Meta(description="Last activity before this time.")] | None = None

    def fields(self) -> ThreadFilterFields:
        return ThreadFilterFields(
            where={} if self.where is None else jsontext.parse_object(self.where, "`where`"),
            tag=self.tag,
            agent=self.agent,
            surface=self.surface,
            since=self.since,
            until=self.until,
        )


class ThreadListQuery(ThreadFilterQuery, frozen=True, kw_only=True):
    archived: Annotated[Literal["true", "false", "any"], msgspec.Meta(description="`any` lists both.")] = "false"
    deleted: Annotated[bool, msgspec.Meta(description="List the deleted threads instead.")] = False

    @property
    def is_archived(self) -> bool | None:
        return {"true": True, "false": False, "any": None}[self.archived]
