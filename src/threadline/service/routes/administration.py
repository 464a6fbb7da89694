"""The routes of administrators: the tenant's tokens, the threads of its users and the audit log.

A token's text is only in the response that created it.
"""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadline.administration.administration import AUDIT_LIMIT, Administration
from threadline.api_types import ApiStruct, Id, ListedThread, Moment, Name, OkResponse, ThreadsResponse
from threadline.core import errors
from threadline.core.access import ApiToken, TokenRole
from threadline.core.access import AuditEntry as StoredEntry
from threadline.service.context import ServiceContext
from threadline.service.http.request_context import scope_of
from threadline.service.http.requests import RequestStruct, read_body, read_query
from threadline.service.http.responses import json_response, thread_fields
from threadline.service.http.thread_filters import ThreadListQuery
from threadline.service.openapi.operation import Body, Link, ResponseSpec, operation
from threadline.threads.search_calls import LIST_LIMIT

_TOKENS = "/api/v1/tokens"


class CreateTokenBody(RequestStruct, frozen=True):
    """A token for a user of the tenant, who need not exist yet. With `actsForUsers` it may act for every user of the
    tenant: protect it like an administrator's. Without `expiresAt` it expires after 90 days; null is never."""

    user: str
    name: Name = "unnamed"
    role: TokenRole = "member"
    expires_at: Annotated[dt.datetime, msgspec.Meta(tz=True)] | UnsetType | None = UNSET
    acts_for_users: bool = False


class TokenInfo(ApiStruct, frozen=True):
    """A token without its text. `lastUsedAt` is accurate to the minute."""

    id: str
    user: str
    name: str
    role: TokenRole
    created_at: Moment
    expires_at: Moment | None = None
    last_used_at: Moment | None = None
    revoked_at: Moment | None = None
    acts_for_users: bool = False


class NewTokenResponse(ApiStruct, frozen=True):
    """A new token with its text, which cannot be read again."""

    text: str
    token: TokenInfo


class TokensResponse(ApiStruct, frozen=True):
    tokens: list[TokenInfo]


class AuditQuery(RequestStruct, frozen=True):
    limit: Annotated[int, msgspec.Meta(ge=1, le=AUDIT_LIMIT)] = 50
    before: Id | None = None


class AuditEntry(ApiStruct, frozen=True):
    """An action of an administrator."""

    id: str
    who: str
    act: str
    target: str
    details: dict[str, Any]
    at: Moment


class AuditResponse(ApiStruct, frozen=True):
    acts: list[AuditEntry]


class AllThreadsQuery(ThreadListQuery, frozen=True, kw_only=True):
    limit: Annotated[int, msgspec.Meta(ge=1, le=LIST_LIMIT)] = 50
    cursor: Annotated[str, msgspec.Meta(description="`nextCursor` of the previous page.")] | None = None
    user: Annotated[str, msgspec.Meta(description="Only threads of this user, latest activity first.")] | None = None


class AdministrationRoutes:
    def __init__(self, context: ServiceContext) -> None:
        self._threadline = context.threadline

    def routes(self) -> list[Route]:
        return [
            Route(_TOKENS, self.list_tokens, methods=["GET"]),
            Route(_TOKENS, self.create_token, methods=["POST"]),
            Route(_TOKENS + "/{token_id}", self.revoke_token, methods=["DELETE"]),
            Route("/api/v1/threads", self.list_all_threads, methods=["GET"]),
            Route("/api/v1/audit", self.read_audit_log, methods=["GET"]),
        ]

    @operation(
        "listTokens",
        "List tokens, newest first",
        ResponseSpec(200, "The tenant's tokens, expired and revoked ones included.", TokensResponse),
        tag="administration",
    )
    async def list_tokens(self, request: Request) -> Response:
        administration = self._administration(request)
        return json_response(TokensResponse([_token_info(token) for token in await administration.tokens()]))

    @operation(
        "listAllThreads",
        "List the threads of all users, newest first",
        ResponseSpec(200, "A page of threads, without their messages.", ThreadsResponse),
        tag="administration",
        query=AllThreadsQuery,
        description="The audit log records who listed whose threads.",
        errors=(errors.InvalidCursor, errors.InvalidJson, errors.InvalidName, errors.LimitExceeded),
    )
    async def list_all_threads(self, request: Request) -> Response:
        query = read_query(request, AllThreadsQuery)
        page = await self._threadline.threads(scope_of(request)).page_of_all(
            user=query.user,
            limit=query.limit,
            cursor=query.cursor,
            archived=query.is_archived,
            deleted=query.deleted,
            **query.fields(),
        )
        listed = [ListedThread(**thread_fields(thread)) for thread in page.items]
        return json_response(ThreadsResponse(listed, page.next_cursor))

    @operation(
        "createToken",
        "Create a token",
        ResponseSpec(
            201,
            "The token. Its text cannot be read again.",
            NewTokenResponse,
            links=(Link("revokeToken", {"tokenId": "$response.body#/token/id"}),),
        ),
        tag="administration",
        body=Body(
            CreateTokenBody,
            {
                "for a script": {"user": "ada", "name": "nightly report", "role": "viewer"},
                "for a bot": {"user": "matrix-bot", "name": "Matrix", "actsForUsers": True},
            },
        ),
        errors=(errors.InvalidName, errors.Conflict),
    )
    async def create_token(self, request: Request) -> Response:
        administration = self._administration(request)
        body = await read_body(request, CreateTokenBody)
        created = await administration.create_token(
            body.user,
            name=body.name,
            role=body.role,
            expires_at=body.expires_at,
            acts_for_users=body.acts_for_users,
        )
        return json_response(NewTokenResponse(created.text, _token_info(created.token)), 201)

    @operation(
        "revokeToken",
        "Revoke a token",
        ResponseSpec(200, "The token is refused from the next request on.", OkResponse),
        tag="administration",
        errors=(errors.NotFound, errors.InvalidName),
    )
    async def revoke_token(self, request: Request) -> Response:
        await self._administration(request).revoke_token(request.path_params["token_id"])
        return json_response(OkResponse(True))

    @operation(
        "listAuditEntries",
        "Read the audit log, newest first",
        ResponseSpec(200, "Actions of administrators. For the next page, send the last id as `before`.", AuditResponse),
        tag="administration",
        query=AuditQuery,
        errors=(errors.InvalidName,),
    )
    async def read_audit_log(self, request: Request) -> Response:
        administration = self._administration(request)
        query = read_query(request, AuditQuery)
        acts = await administration.acts(limit=query.limit, before=query.before)
        return json_response(AuditResponse([_audit_entry(act) for act in acts]))

    def _administration(self, request: Request) -> Administration:
        return self._threadline.administration(scope_of(request))


def _token_info(token: ApiToken) -> TokenInfo:
    return TokenInfo(
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


def _audit_entry(act: StoredEntry) -> AuditEntry:
    return AuditEntry(act.id, act.actor_id, act.act, act.target, act.details, act.created_at)
