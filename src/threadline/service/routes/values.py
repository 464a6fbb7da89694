"""The routes of values: state that a program keeps beside the log of a thread, of its user, or of the tenant."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import UNSET
from msgspec import UnsetType as Unset
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadline.api_types import Id
from threadline.api_value_types import ValueInfo, ValuesResponse, VersionsResponse
from threadline.core import errors
from threadline.core.errors import InvalidInput
from threadline.core.ids import check_id
from threadline.core.values import (
    KEY_LENGTH,
    NAMESPACE_LENGTH,
    DeleteValue,
    PutValue,
    StoredValue,
    ValueChange,
    ValueScope,
)
from threadline.service.context import ServiceContext
from threadline.service.http.request_context import scope_of
from threadline.service.http.requests import RequestStruct, read_body, read_query
from threadline.service.http.responses import json_response
from threadline.service.openapi.operation import Body, ResponseSpec, operation
from threadline.threads.values import LIST_LIMIT, Values

VALUES_PATH = "/api/v1/ai/values"
Namespace = Annotated[str, msgspec.Meta(min_length=1, max_length=NAMESPACE_LENGTH)]
ValueKey = Annotated[str, msgspec.Meta(min_length=1, max_length=KEY_LENGTH)]
Version = Annotated[int, msgspec.Meta(ge=0, description="0 means that there must be no value.")]
ThreadName = Annotated[Id, msgspec.Meta(description="The thread whose values these are, by its id.")]
_TENANT = "The values of the tenant, instead of those of a thread or of the user."


class ListValuesQuery(RequestStruct, frozen=True):
    namespace: Namespace = "default"
    thread: ThreadName | Unset = UNSET
    tenant: Annotated[bool, msgspec.Meta(description=_TENANT)] = False
    prefix: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=LIST_LIMIT)] = 100
    cursor: Annotated[ValueKey, msgspec.Meta(description="`nextCursor` of the previous page.")] | Unset = UNSET
    descending: bool = False
    key: Annotated[ValueKey, msgspec.Meta(description="Only the value under this key, with its data.")] | Unset = UNSET
    data: Annotated[bool, msgspec.Meta(description="With their data; a page then also ends at 8 MB.")] = False


class ReadValuesBody(RequestStruct, frozen=True):
    namespace: Namespace
    keys: Annotated[list[ValueKey], msgspec.Meta(max_length=1_000)]
    thread: ThreadName | None = None
    tenant: bool = False


class ValueChangeBody(RequestStruct, frozen=True):
    """`data` is base64. Without it the value is removed."""

    namespace: Namespace
    key: ValueKey
    data: bytes | None = None
    scope: ValueScope = "thread"
    expected_version: Version | None = None
    ttl_seconds: Annotated[float, msgspec.Meta(gt=0)] | None = None

    def change(self) -> ValueChange:
        if self.data is None:
            return DeleteValue(self.namespace, self.key, self.scope, self.expected_version)
        ttl = None if self.ttl_seconds is None else dt.timedelta(seconds=min(self.ttl_seconds, 1e10))
        return PutValue(self.namespace, self.key, self.data, self.scope, self.expected_version, ttl)


class WriteValuesBody(RequestStruct, frozen=True):
    changes: Annotated[list[ValueChangeBody], msgspec.Meta(min_length=1, max_length=1_000)]
    thread: ThreadName | None = None


class ValueRoutes:
    def __init__(self, context: ServiceContext) -> None:
        self._threadline = context.threadline

    def routes(self) -> list[Route]:
        return [
            Route(VALUES_PATH, self.list_values, methods=["GET"]),
            Route(VALUES_PATH, self.write_values, methods=["POST"]),
            Route(VALUES_PATH + "/read", self.read_values, methods=["POST"]),
        ]

    @operation(
        "listValues",
        "List values that programs keep beside the log",
        ResponseSpec(200, "In the order of their keys.", ValuesResponse),
        tag="threads",
        query=ListValuesQuery,
        errors=(errors.NotFound, errors.InvalidName),
    )
    async def list_values(self, request: Request) -> Response:
        query = read_query(request, ListValuesQuery)
        values = self._values(request, None if query.thread is UNSET else query.thread, is_tenants=query.tenant)
        if query.key is not UNSET:
            return json_response(
                ValuesResponse(_infos(list((await values.get_many(query.namespace, [query.key])).values())))
            )
        page = await values.list(
            query.namespace,
            prefix=query.prefix,
            limit=query.limit,
            cursor=None if query.cursor is UNSET else query.cursor,
            descending=query.descending,
            with_data=query.data,
        )
        return json_response(ValuesResponse(_infos(page.items), page.next_cursor))

    @operation(
        "readValues",
        "Read values by their keys",
        ResponseSpec(200, "Those that exist.", ValuesResponse),
        tag="threads",
        body=Body(ReadValuesBody, {"one": {"namespace": "app", "keys": ["state"]}}),
        errors=(errors.NotFound, errors.InvalidName),
    )
    async def read_values(self, request: Request) -> Response:
        body = await read_body(request, ReadValuesBody)
        found = await self._values(request, body.thread, is_tenants=body.tenant).get_many(body.namespace, body.keys)
        return json_response(ValuesResponse(_infos(list(found.values()))))

    @operation(
        "writeValues",
        "Store and remove values",
        ResponseSpec(200, "The versions.", VersionsResponse),
        tag="threads",
        description="All of the changes or none.",
        body=Body(
            WriteValuesBody,
            {"of the user": {"changes": [{"namespace": "app", "key": "state", "data": "e30=", "scope": "user"}]}},
        ),
        errors=(errors.NotFound, errors.InvalidName, errors.ValueChanged),
    )
    async def write_values(self, request: Request) -> Response:
        body = await read_body(request, WriteValuesBody)
        if body.thread is None and any(change.scope == "thread" for change in body.changes):
            raise InvalidInput("`thread` must name the thread for changes with scope thread, got none")
        values = self._values(request, body.thread)
        return json_response(VersionsResponse(await values.write(*[change.change() for change in body.changes])))

    def _values(self, request: Request, thread_id: str | None, *, is_tenants: bool = False) -> Values:
        scope = scope_of(request)
        if thread_id is not None and is_tenants:
            raise InvalidInput("`thread` cannot be combined with `tenant`: send one or the other")
        if thread_id is not None:
            return self._threadline.values(scope, "thread", check_id("thread", thread_id))
        if is_tenants:
            return self._threadline.values(scope, "tenant", "")
        return self._threadline.values(scope, "user", scope.user_id)


def _infos(values: Sequence[StoredValue]) -> list[ValueInfo]:
    return [ValueInfo(**msgspec.structs.asdict(value)) for value in values]
