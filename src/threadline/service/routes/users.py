"""The routes of administrators for users: names, roles, access and erasure; and of callers for themselves."""

from __future__ import annotations

from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from threadline.administration.user_archive import UserArchive
from threadline.administration.users import USERS_LIMIT, UserAdministration
from threadline.api_types import ApiStruct, MeResponse, Moment
from threadline.core import errors
from threadline.core.access import TokenRole
from threadline.core.channels import User
from threadline.core.receipts import ErasureReceipt
from threadline.service.context import ServiceContext
from threadline.service.http.request_context import scope_of
from threadline.service.http.requests import RequestStruct, read_body, read_query
from threadline.service.http.responses import json_response
from threadline.service.openapi.operation import Body, ResponseSpec, operation

_USERS = "/api/v1/users"
# A user id may contain a slash.
_USER = _USERS + "/{user_id:path}"
_ARCHIVES = "/api/v1/archives"
_ARCHIVE = ResponseSpec(
    200,
    "JSON Lines: a part about the user (pinned texts, links, places, tokens and sign-ins without their secrets, usage, "
    "values), then all threads, also archived and deleted ones, as an export in the format `jsonl` writes them.",
    {"application/jsonl": str},
)


class UserInfo(ApiStruct, frozen=True):
    """A user of the tenant. `role` counts on messaging platforms; a token and a JWT have their own."""

    id: str
    role: TokenRole
    display_name: str | None = None
    disabled_at: Moment | None = None


class UsersQuery(RequestStruct, frozen=True):
    limit: Annotated[int, msgspec.Meta(ge=1, le=USERS_LIMIT)] = USERS_LIMIT
    after: str | None = None


class UsersResponse(ApiStruct, frozen=True):
    users: list[UserInfo]


class CreateUserBody(RequestStruct, frozen=True):
    id: str
    display_name: str | None = None
    role: TokenRole = "member"


class ChangeUserBody(RequestStruct, frozen=True):
    """What is left out stays. An empty `displayName` removes it. A lower `role` also limits the user's tokens.
    `disabled` true revokes tokens and links and stops turns; false gives access again, with new tokens and links."""

    display_name: str | None = None
    role: TokenRole | None = None
    disabled: bool | None = None


class EraseMeQuery(RequestStruct, frozen=True):
    """`confirm` is the caller's own user id."""

    confirm: str


class UserRoutes:
    def __init__(self, context: ServiceContext) -> None:
        self._threadline = context.threadline

    def routes(self) -> list[Route]:
        return [
            Route("/api/v1/me", self.read_me, methods=["GET"]),
            Route("/api/v1/me/archive", self.export_me, methods=["GET"]),
            Route(_USERS, self.list_users, methods=["GET"]),
            Route(_USERS, self.create_user, methods=["POST"]),
            Route(_USER, self.read_user, methods=["GET"]),
            Route(_USER, self.change_user, methods=["PATCH"]),
            Route(_ARCHIVES + "/{user_id:path}", self.export_user, methods=["GET"]),
            Route("/api/v1/me", self.erase_me, methods=["DELETE"]),
            Route(_USER, self.erase_user, methods=["DELETE"]),
        ]

    @operation("readMe", "Read who the caller is", ResponseSpec(200, "The caller.", MeResponse), tag="users")
    async def read_me(self, request: Request) -> Response:
        scope = scope_of(request)
        user = await self._threadline.store.scoped(scope).user(scope.user_id)
        name = None if user is None else user.display_name
        return json_response(MeResponse(scope.tenant_id, scope.user_id, scope.role, name))

    @operation(
        "listUsers",
        "List the tenant's users, by id",
        ResponseSpec(200, "Users, also disabled ones. For the next page, send the last id as `after`.", UsersResponse),
        tag="users",
        query=UsersQuery,
        errors=(errors.InvalidName,),
    )
    async def list_users(self, request: Request) -> Response:
        users, query = self._users(request), read_query(request, UsersQuery)
        found = await users.list(after_id=query.after, limit=query.limit)
        return json_response(UsersResponse([_user_info(user) for user in found]))

    @operation(
        "createUser",
        "Create a user",
        ResponseSpec(201, "The user.", UserInfo),
        tag="users",
        body=Body(CreateUserBody, {"a reader": {"id": "grace", "displayName": "Grace Hopper", "role": "viewer"}}),
        errors=(errors.InvalidName, errors.DuplicateId, errors.InvalidText),
    )
    async def create_user(self, request: Request) -> Response:
        users, body = self._users(request), await read_body(request, CreateUserBody)
        created = await users.create(body.id, display_name=body.display_name, role=body.role)
        return json_response(_user_info(created), 201)

    @operation(
        "readUser",
        "Read a user",
        ResponseSpec(200, "The user.", UserInfo),
        tag="users",
        errors=(errors.NotFound, errors.InvalidName),
    )
    async def read_user(self, request: Request) -> Response:
        return json_response(_user_info(await self._users(request).find(request.path_params["user_id"])))

    @operation(
        "changeUser",
        "Change a user's name, role or access",
        ResponseSpec(200, "The user. The change counts from the next request and message on.", UserInfo),
        tag="users",
        body=Body(ChangeUserBody, {"a new role": {"role": "viewer"}, "no access": {"disabled": True}}, required=False),
        errors=(errors.NotFound, errors.InvalidName, errors.InvalidText),
    )
    async def change_user(self, request: Request) -> Response:
        users, user_id = self._users(request), request.path_params["user_id"]
        body = await read_body(request, ChangeUserBody)
        user = await users.find(user_id)
        if body.display_name is not None or body.role is not None:
            user = await users.change(user_id, display_name=body.display_name, role=body.role)
        if body.disabled is not None:
            user = await (users.disable(user_id) if body.disabled else users.enable(user_id))
        return json_response(_user_info(user))

    @operation(
        "eraseUser",
        "Erase a user and everything of theirs, permanently",
        ResponseSpec(200, "The receipt. It is not stored: keep it.", ErasureReceipt),
        tag="users",
        description="Threads, saved points, pinned texts, tokens, links, usage. The audit log keeps that it happened.",
        errors=(errors.NotFound, errors.InvalidName, errors.UnderLegalHold),
    )
    async def erase_user(self, request: Request) -> Response:
        administration = self._threadline.administration(scope_of(request))
        return json_response(await administration.erasure.erase_user(request.path_params["user_id"]))

    @operation(
        "eraseMe",
        "Erase the caller and everything of theirs, permanently",
        ResponseSpec(200, "The receipt. It is not stored: keep it.", ErasureReceipt),
        tag="users",
        query=EraseMeQuery,
        errors=(errors.NotFound, errors.InvalidName, errors.UnderLegalHold),
    )
    async def erase_me(self, request: Request) -> Response:
        administration = self._threadline.administration(scope_of(request))
        query = read_query(request, EraseMeQuery)
        return json_response(await administration.erasure.erase_oneself(query.confirm))

    @operation(
        "exportMe",
        "Export everything of the caller",
        _ARCHIVE,
        tag="users",
        description="Of your own account only. `importThreads` takes the file.",
        errors=(errors.NotFound, errors.InvalidName),
    )
    async def export_me(self, request: Request) -> Response:
        return await self._archive(request, scope_of(request).user_id)

    @operation(
        "exportUser",
        "Export everything of a user",
        _ARCHIVE,
        tag="users",
        description="The audit log names who did it.",
        errors=(errors.NotFound, errors.InvalidName),
    )
    async def export_user(self, request: Request) -> Response:
        return await self._archive(request, request.path_params["user_id"])

    async def _archive(self, request: Request, user_id: str) -> Response:
        tl = self._threadline
        lines = await UserArchive(tl.store, tl.sealer, tl.clock, tl.value_encoder, scope_of(request)).export(user_id)
        headers = {"content-disposition": 'attachment; filename="threadline-archive.jsonl"'}
        return StreamingResponse(lines, media_type="application/jsonl", headers=headers)

    def _users(self, request: Request) -> UserAdministration:
        return self._threadline.administration(scope_of(request)).users


def _user_info(user: User) -> UserInfo:
    return UserInfo(user.id, user.role, user.display_name, user.disabled_at)
