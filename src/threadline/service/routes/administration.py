"""The routes of administrators: the tenant's tokens, and the record of what was done.

A token's text is in the answer that made it and in no other.
"""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadline.administration.administration import ACTS_LIMIT, Administration
from threadline.api_types import ApiStruct, Id, Moment, Name, OkResponse
from threadline.bootstrap import Threadline
from threadline.core import errors
from threadline.core.access import Act, ApiToken, TokenRole
from threadline.service.auth.callers import WhoAsks
from threadline.service.operation import Body, Link, ResponseSpec, operation
from threadline.service.requests import Shape, read_body, read_query
from threadline.service.responses import json_response

_TOKENS = "/api/v1/tokens"


class NewTokenAsked(Shape, frozen=True):
    """A token for a user of the tenant, who need not be known yet. With `actsForUsers` it may also act for any other
    of them: it is as secret as an administrator's."""

    user: str
    name: Name = "unnamed"
    role: TokenRole = "member"
    expires_at: Annotated[dt.datetime, msgspec.Meta(tz=True)] | None = None
    acts_for_users: bool = False


class TokenShown(ApiStruct, frozen=True):
    """A token, without its text. `lastUsedAt` is right to the minute."""

    id: str
    user: str
    name: str
    role: TokenRole
    created_at: Moment
    expires_at: Moment | None = None
    last_used_at: Moment | None = None
    revoked_at: Moment | None = None
    acts_for_users: bool = False


class TokenMade(ApiStruct, frozen=True):
    """A new token and its text, which is not shown again."""

    text: str
    token: TokenShown


class TokenList(ApiStruct, frozen=True):
    tokens: list[TokenShown]


class ActsAsked(Shape, frozen=True):
    limit: Annotated[int, msgspec.Meta(ge=1, le=ACTS_LIMIT)] = 50
    before: Id | None = None


class ActShown(ApiStruct, frozen=True):
    """Something an administrator did."""

    id: str
    who: str
    act: str
    target: str
    details: dict[str, Any]
    at: Moment


class ActList(ApiStruct, frozen=True):
    acts: list[ActShown]


class AdministrationRoutes:
    def __init__(self, threadline: Threadline, who_asks: WhoAsks) -> None:
        self._threadline = threadline
        self._who_asks = who_asks

    def routes(self) -> list[Route]:
        return [
            Route(_TOKENS, self.list_tokens, methods=["GET"]),
            Route(_TOKENS, self.create_token, methods=["POST"]),
            Route(_TOKENS + "/{token_id}", self.revoke_token, methods=["DELETE"]),
            Route("/api/v1/audit", self.list_acts, methods=["GET"]),
        ]

    @operation(
        "listTokens",
        "List the tenant's tokens, newest first",
        ResponseSpec(200, "Those that no longer work as well.", TokenList),
        tag="administration",
        needs="admin",
    )
    async def list_tokens(self, request: Request) -> Response:
        administration = await self._administration(request)
        return json_response(TokenList([_token_shown(token) for token in await administration.tokens()]))

    @operation(
        "createToken",
        "Make a token",
        ResponseSpec(
            201,
            "The token. Its text is not shown again.",
            TokenMade,
            links=(Link("revokeToken", {"tokenId": "$response.body#/token/id"}),),
        ),
        tag="administration",
        body=Body(
            NewTokenAsked,
            {
                "for a script": {"user": "ada", "name": "nightly report", "role": "viewer"},
                "for a bot": {"user": "matrix-bot", "name": "Matrix", "actsForUsers": True},
            },
        ),
        errors=(errors.InvalidName,),
        needs="admin",
    )
    async def create_token(self, request: Request) -> Response:
        administration = await self._administration(request)
        asked = await read_body(request, NewTokenAsked)
        made = await administration.create_token(
            asked.user,
            name=asked.name,
            role=asked.role,
            expires_at=asked.expires_at,
            acts_for_users=asked.acts_for_users,
        )
        return json_response(TokenMade(made.text, _token_shown(made.token)), 201)

    @operation(
        "revokeToken",
        "End a token, from the next request on",
        ResponseSpec(200, "It works no more.", OkResponse),
        tag="administration",
        errors=(errors.NotFound, errors.InvalidName),
        needs="admin",
    )
    async def revoke_token(self, request: Request) -> Response:
        await (await self._administration(request)).revoke_token(request.path_params["token_id"])
        return json_response(OkResponse(True))

    @operation(
        "listActs",
        "Read what administrators did, newest first",
        ResponseSpec(200, "Acts; the next page is before the last of them.", ActList),
        tag="administration",
        query=ActsAsked,
        errors=(errors.InvalidName,),
        needs="admin",
    )
    async def list_acts(self, request: Request) -> Response:
        administration = await self._administration(request)
        asked = read_query(request, ActsAsked)
        acts = await administration.acts(limit=asked.limit, before=asked.before)
        return json_response(ActList([_act_shown(act) for act in acts]))

    async def _administration(self, request: Request) -> Administration:
        return self._threadline.administration(await self._who_asks(request))


def _token_shown(token: ApiToken) -> TokenShown:
    return TokenShown(
        token.id,
        token.owner_id,
        token.name,
        token.role,
        token.created_at,
        token.expires_at,
        token.last_used_at,
        token.revoked_at,
        token.acts_for_users,
    )


def _act_shown(act: Act) -> ActShown:
    return ActShown(act.id, act.actor_id, act.act, act.target, act.details, act.created_at)
