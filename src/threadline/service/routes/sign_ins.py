"""Sign-ins: everyone lists and ends their own, administrators those of every user, and they create links."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadline.administration.sign_ins import SignInAdministration
from threadline.api_types import ApiStruct, Moment
from threadline.core import errors
from threadline.core.access import TokenRole
from threadline.core.sign_ins import SignIn, link_url
from threadline.service.context import ServiceContext
from threadline.service.http.request_context import caller_of, scope_of
from threadline.service.http.requests import RequestStruct, read_body, read_query
from threadline.service.http.responses import json_response
from threadline.service.openapi.operation import Body, ResponseSpec, operation

_SIGN_INS = "/api/v1/sign-ins"
_LINK_MINUTES = 43_200


class SignInInfo(ApiStruct, frozen=True):
    """A session in a browser, or a link that was not used: then without `openedAt`. `method` is `link` or the name of
    the identity provider. `isCurrent` says that this request came with it. `lastSeenAt` is accurate to the minute."""

    id: str
    role: TokenRole
    method: str
    created_at: Moment
    expires_at: Moment
    opened_at: Moment | None = None
    last_seen_at: Moment | None = None
    device: str | None = None
    is_current: bool = False


class SignInsResponse(ApiStruct, frozen=True):
    sign_ins: list[SignInInfo]


class OfUserQuery(RequestStruct, frozen=True):
    """`user` is for administrators. Without it, the caller's own."""

    user: str | None = None


class CreateLinkBody(RequestStruct, frozen=True):
    """`minutes` is how long the link may be used, at most 30 days; without it, the setting `sign_in.link_minutes`."""

    user: str
    minutes: Annotated[float, msgspec.Meta(gt=0, le=_LINK_MINUTES)] | None = None


class SignInLinkResponse(ApiStruct, frozen=True):
    """A link that signs its user in once. `url` is a secret and is not shown again."""

    id: str
    user: str
    url: str
    expires_at: Moment


class RevokedResponse(ApiStruct, frozen=True):
    revoked: int


class UserSignInRoutes:
    def __init__(self, context: ServiceContext) -> None:
        self._threadline = context.threadline

    def routes(self) -> list[Route]:
        return [
            Route(_SIGN_INS + "/links", self.create_link, methods=["POST"]),
            Route(_SIGN_INS + "/{sign_in_id}", self.revoke, methods=["DELETE"]),
            Route(_SIGN_INS, self.list_all, methods=["GET"]),
            Route(_SIGN_INS, self.revoke_all, methods=["DELETE"]),
        ]

    @operation(
        "listSignIns",
        "List where a user is signed in",
        ResponseSpec(200, "Sessions and unused links, newest first.", SignInsResponse),
        tag="users",
        query=OfUserQuery,
        errors=(errors.InvalidName,),
    )
    async def list_all(self, request: Request) -> Response:
        found = await self._sign_ins(request).list(_user(request))
        return json_response(SignInsResponse([_info(each, caller_of(request).session_id) for each in found]))

    @operation(
        "createSignInLink",
        "Create a link that signs a user in once",
        ResponseSpec(201, "The link. Send it to its user only.", SignInLinkResponse),
        tag="users",
        body=Body(CreateLinkBody, {"for an hour": {"user": "ada", "minutes": 60}}),
        errors=(errors.NotFound, errors.InvalidName, errors.Conflict),
    )
    async def create_link(self, request: Request) -> Response:
        body, settings = await read_body(request, CreateLinkBody), self._threadline.settings.sign_in
        lifetime = settings.link_lifetime if body.minutes is None else dt.timedelta(minutes=body.minutes)
        created = await self._sign_ins(request).create_link(body.user, lifetime)
        url = link_url(settings.url or str(request.base_url), created.secret)
        sign_in = created.sign_in
        return json_response(SignInLinkResponse(sign_in.id, sign_in.owner_id, url, sign_in.expires_at), 201)

    @operation(
        "revokeSignIn",
        "Sign a user out on one device, or end a link",
        ResponseSpec(204, "The next request of the device is refused, and its streams end."),
        tag="users",
        query=OfUserQuery,
        errors=(errors.NotFound, errors.InvalidName),
    )
    async def revoke(self, request: Request) -> Response:
        await self._sign_ins(request).revoke(_user(request), request.path_params["sign_in_id"])
        return Response(status_code=204)

    @operation(
        "revokeSignIns",
        "Sign a user out on all devices",
        ResponseSpec(200, "How many sessions and links ended.", RevokedResponse),
        tag="users",
        query=OfUserQuery,
        errors=(errors.InvalidName,),
    )
    async def revoke_all(self, request: Request) -> Response:
        return json_response(RevokedResponse(await self._sign_ins(request).revoke_all(_user(request))))

    def _sign_ins(self, request: Request) -> SignInAdministration:
        return self._threadline.administration(scope_of(request)).sign_ins


def _user(request: Request) -> str:
    return read_query(request, OfUserQuery).user or scope_of(request).user_id


def _info(sign_in: SignIn, current_id: str | None) -> SignInInfo:
    return SignInInfo(
        sign_in.id,
        sign_in.role,
        sign_in.method,
        sign_in.created_at,
        sign_in.expires_at,
        sign_in.opened_at,
        sign_in.last_seen_at,
        sign_in.device,
        is_current=sign_in.id == current_id,
    )
