"""The routes for messaging platforms: links of accounts, deliveries and credentials.

Users see their own links, administrators those of the tenant. Credentials can be written but not read.
"""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadline.api_types import ApiStruct, LinkInfo, LinksResponse, Moment, OkResponse, RedeemedLinkResponse
from threadline.core import errors
from threadline.core.channels import Link, OutboxRow, OutboxStatus
from threadline.core.errors import InvalidInput
from threadline.core.turns import Surface
from threadline.service.auth.impersonation import BotSurface
from threadline.service.context import ServiceContext
from threadline.service.http.request_context import caller_of, scope_of
from threadline.service.http.requests import RequestStruct, read_body, read_query
from threadline.service.http.responses import json_response
from threadline.service.openapi.operation import Body, ResponseSpec, operation

_LINKS = "/api/v1/channels/links"
_OUTBOX = "/api/v1/channels/outbox"
_CREDENTIALS = "/api/v1/channels/credentials"


class PutLinkBody(RequestStruct, frozen=True):
    """Links an account to a user; with `revoked`, blocks it."""

    platform: str
    platform_user_id: str
    user_id: str
    revoked: bool = False


class RemoveLinkQuery(RequestStruct, frozen=True):
    platform: str
    platform_user_id: str


class ListLinksQuery(RequestStruct, frozen=True):
    """All links, or that of one account."""

    platform: str | msgspec.UnsetType = msgspec.UNSET
    platform_user_id: str | msgspec.UnsetType = msgspec.UNSET


class RedeemCodeBody(RequestStruct, frozen=True):
    """A code, and the account that it was sent from."""

    platform: BotSurface
    platform_user_id: str
    code: Annotated[str, msgspec.Meta(max_length=100)]


class LinkCodeBody(RequestStruct, frozen=True):
    """For one platform, or for any by default."""

    platform: str | None = None


class LinkCodeResponse(ApiStruct, frozen=True):
    code: str
    expires_at: Moment


class DeliveriesQuery(RequestStruct, frozen=True):
    status: OutboxStatus | msgspec.UnsetType = msgspec.UNSET
    platform: str | msgspec.UnsetType = msgspec.UNSET
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 100


class DeliveryInfo(ApiStruct, frozen=True):
    """A delivery without its text, which is private to the recipient."""

    id: str
    platform: Surface
    user_id: str
    recipient: str
    status: OutboxStatus
    attempts: int
    next_attempt_at: Moment
    created_at: Moment
    turn_id: str | None = None
    last_error: str | None = None
    sent_at: Moment | None = None


class BacklogInfo(ApiStruct, frozen=True):
    """Deliveries to a platform that are not sent: how many, since when, and the error of the oldest that has one."""

    platform: Surface
    status: OutboxStatus
    count: int
    oldest_at: Moment
    last_error: str | None = None


class DeliveriesResponse(ApiStruct, frozen=True):
    deliveries: list[DeliveryInfo]
    backlog: list[BacklogInfo]


class RequeueBody(RequestStruct, frozen=True):
    """Which deliveries: dead and window-closed ones by default, for every platform, of any age."""

    status: Literal["dead", "window_closed"] | None = None
    platform: str | None = None
    since: Annotated[dt.datetime, msgspec.Meta(tz=True)] | None = None


class RequeuedResponse(ApiStruct, frozen=True):
    requeued: int


class CredentialsBody(RequestStruct, frozen=True):
    secrets: dict[str, str]


class CredentialsInfo(ApiStruct, frozen=True):
    """Which key the credentials are encrypted with, and when they were set."""

    platform: Surface
    key_id: str
    updated_at: Moment


class CredentialsResponse(ApiStruct, frozen=True):
    credentials: list[CredentialsInfo]


class ChannelRoutes:
    def __init__(self, context: ServiceContext) -> None:
        self._messaging = context.threadline.messaging

    def routes(self) -> list[Route]:
        return [
            Route(_LINKS, self.list_links, methods=["GET"]),
            Route(_LINKS, self.put_link, methods=["POST"]),
            Route(_LINKS, self.remove_link, methods=["DELETE"]),
            Route(_LINKS + "/code", self.create_link_code, methods=["POST"]),
            Route(_LINKS + "/redeem", self.redeem_link_code, methods=["POST"]),
            Route(_OUTBOX, self.list_deliveries, methods=["GET"]),
            Route(_OUTBOX + "/requeue", self.requeue_deliveries, methods=["POST"]),
            Route(_OUTBOX + "/{outbox_id}/requeue", self.requeue_delivery, methods=["POST"]),
            Route(_CREDENTIALS, self.list_credentials, methods=["GET"]),
            Route("/api/v1/channels/{platform}/credentials", self.put_credentials, methods=["PUT"]),
            Route("/api/v1/channels/{platform}/credentials", self.delete_credentials, methods=["DELETE"]),
        ]

    @operation(
        "listLinks",
        "List links to accounts on platforms",
        ResponseSpec(200, "The user's links; for an administrator, the tenant's.", LinksResponse),
        tag="channels",
        description="With both parameters, the link of one account. A token that acts for users sees every account's.",
        query=ListLinksQuery,
        errors=(errors.InvalidName,),
    )
    async def list_links(self, request: Request) -> Response:
        scope = scope_of(request)
        query = read_query(request, ListLinksQuery)
        match query.platform, query.platform_user_id:
            case str(platform), str(sender):
                one = await self._messaging.links.find(
                    scope, platform, sender, anyones=caller_of(request).can_impersonate
                )
                found = [] if one is None else [one]
            case msgspec.UNSET, msgspec.UNSET:
                found = await self._messaging.links.listed(scope)
            case _:
                raise InvalidInput("`platform` and `platformUserId` must be given together: send both or neither")
        return json_response(LinksResponse([_link_info(each) for each in found]))

    @operation(
        "putLink",
        "Link an account to a user, or block it",
        ResponseSpec(200, "The link.", LinkInfo),
        tag="channels",
        description="Without a code, so only for administrators. Users link their own accounts with a code.",
        body=Body(PutLinkBody, {"Slack": {"platform": "slack", "platformUserId": "U024BE7LH", "userId": "ada"}}),
        errors=(errors.InvalidName,),
    )
    async def put_link(self, request: Request) -> Response:
        scope = scope_of(request)
        body = await read_body(request, PutLinkBody)
        link = await self._messaging.links.put(
            scope, body.platform, body.platform_user_id, body.user_id, revoked=body.revoked
        )
        return json_response(_link_info(link))

    @operation(
        "removeLink",
        "Unlink an account",
        ResponseSpec(200, "The account is not linked.", OkResponse),
        tag="channels",
        query=RemoveLinkQuery,
    )
    async def remove_link(self, request: Request) -> Response:
        scope = scope_of(request)
        query = read_query(request, RemoveLinkQuery)
        await self._messaging.links.remove(scope, query.platform, query.platform_user_id)
        return json_response(OkResponse(True))

    @operation(
        "createLinkCode",
        "Create a code that links an account",
        ResponseSpec(201, "The code. It works once, until it expires, and cannot be read again.", LinkCodeResponse),
        tag="channels",
        body=Body(LinkCodeBody, {"any platform": {}, "Telegram": {"platform": "telegram"}}, required=False),
    )
    async def create_link_code(self, request: Request) -> Response:
        scope = scope_of(request)
        body = await read_body(request, LinkCodeBody)
        created = await self._messaging.links.new_code(scope, body.platform)
        return json_response(LinkCodeResponse(created.code, created.expires_at), 201)

    @operation(
        "redeemLinkCode",
        "Redeem a code: link the account that sent it",
        ResponseSpec(
            200, "The account is linked to the user that created the code. The code is used up.", RedeemedLinkResponse
        ),
        tag="channels",
        description="For a bot that received the code: with a token that acts for users, without X-On-Behalf-Of.",
        body=Body(RedeemCodeBody, {"Matrix": {"platform": "matrix", "platformUserId": "@ada:example", "code": "K3Y0"}}),
        errors=(errors.InvalidName, errors.LinkRefused, errors.LinkLimited),
    )
    async def redeem_link_code(self, request: Request) -> Response:
        scope = scope_of(request)
        body = await read_body(request, RedeemCodeBody)
        user_id = await self._messaging.links.redeem(scope, body.platform, body.platform_user_id, body.code)
        return json_response(RedeemedLinkResponse(user_id))

    @operation(
        "listDeliveries",
        "List deliveries to platforms",
        ResponseSpec(
            200, "The tenant's deliveries, newest first, and a count of those that are not sent.", DeliveriesResponse
        ),
        tag="channels",
        query=DeliveriesQuery,
    )
    async def list_deliveries(self, request: Request) -> Response:
        scope = scope_of(request)
        query = read_query(request, DeliveriesQuery)
        found = await self._messaging.outbox.list_rows(
            scope, status=query.status or None, platform=query.platform or None, limit=query.limit
        )
        backlog = [
            BacklogInfo(each.platform, each.status, each.count, each.oldest_at, each.last_error)
            for each in await self._messaging.outbox.backlog(scope)
        ]
        return json_response(DeliveriesResponse([_delivery_info(row) for row in found], backlog))

    @operation(
        "requeueDeliveries",
        "Requeue all undelivered messages, or those of a platform or since a time",
        ResponseSpec(200, "How many deliveries are pending again, with their attempts reset.", RequeuedResponse),
        tag="channels",
        description="In their old order: earlier messages of a conversation are sent before later ones.",
        body=Body(
            RequeueBody,
            {"all": {}, "an outage": {"platform": "slack", "since": "2026-11-16T12:00:00Z", "status": "dead"}},
            required=False,
        ),
    )
    async def requeue_deliveries(self, request: Request) -> Response:
        scope = scope_of(request)
        body = await read_body(request, RequeueBody)
        count = await self._messaging.outbox.requeue_all(
            scope, status=body.status, platform=body.platform, since=body.since
        )
        return json_response(RequeuedResponse(count))

    @operation(
        "requeueDelivery",
        "Requeue a dead or window-closed delivery",
        ResponseSpec(200, "The delivery, pending again with its attempts reset.", DeliveryInfo),
        tag="channels",
        errors=(errors.NotFound, errors.Conflict),
    )
    async def requeue_delivery(self, request: Request) -> Response:
        row = await self._messaging.outbox.requeue(scope_of(request), request.path_params["outbox_id"])
        return json_response(_delivery_info(row))

    @operation(
        "listCredentials",
        "List the platforms that have credentials",
        ResponseSpec(200, "By platform, without the credentials themselves.", CredentialsResponse),
        tag="channels",
    )
    async def list_credentials(self, request: Request) -> Response:
        found = await self._messaging.credentials.listed(scope_of(request))
        return json_response(
            CredentialsResponse([CredentialsInfo(each.platform, each.key_id, each.updated_at) for each in found])
        )

    @operation(
        "putCredentials",
        "Set a platform's credentials",
        ResponseSpec(200, "The credentials are stored encrypted.", CredentialsInfo),
        tag="channels",
        body=Body(CredentialsBody),
        errors=(errors.NotFound, errors.SettingsInvalid, errors.ExtraMissing),
    )
    async def put_credentials(self, request: Request) -> Response:
        scope = scope_of(request)
        body = await read_body(request, CredentialsBody)
        stored = await self._messaging.credentials.put(scope, request.path_params["platform"], body.secrets)
        return json_response(CredentialsInfo(stored.platform, stored.key_id, stored.updated_at))

    @operation(
        "deleteCredentials",
        "Delete a platform's credentials",
        ResponseSpec(200, "The platform has no credentials.", OkResponse),
        tag="channels",
        errors=(errors.NotFound,),
    )
    async def delete_credentials(self, request: Request) -> Response:
        scope = scope_of(request)
        await self._messaging.credentials.delete(scope, request.path_params["platform"])
        return json_response(OkResponse(True))


def _link_info(link: Link) -> LinkInfo:
    return LinkInfo(link.platform, link.platform_user_id, link.owner_id, link.state, link.created_at, link.updated_at)


def _delivery_info(row: OutboxRow) -> DeliveryInfo:
    return DeliveryInfo(
        id=row.id,
        platform=row.platform,
        user_id=row.owner_id,
        recipient=row.recipient,
        status=row.status,
        attempts=row.attempts,
        next_attempt_at=row.next_attempt_at,
        created_at=row.created_at,
        turn_id=row.turn_id,
        last_error=row.last_error,
        sent_at=row.sent_at,
    )
