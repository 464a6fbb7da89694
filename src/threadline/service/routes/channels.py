"""The routes around messaging platforms: a user's links, and what administrators look after.

Credentials go in and never come out. Links and codes are the user's own; administrators see the tenant's.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadline.api_types import ApiStruct, LinkInfo, LinksResponse, Moment, OkResponse, RedeemedLinkResponse
from threadline.bootstrap import Threadline
from threadline.core import errors
from threadline.core.channels import Link, OutboxRow, OutboxStatus
from threadline.core.errors import InvalidInput
from threadline.core.turns import Surface
from threadline.service.auth.callers import WhoAsks
from threadline.service.auth.impersonation import ActedFrom, may_act
from threadline.service.operation import Body, ResponseSpec, operation
from threadline.service.requests import Shape, read_body, read_query
from threadline.service.responses import json_response

_LINKS = "/api/v1/channels/links"
_OUTBOX = "/api/v1/channels/outbox"
_CREDENTIALS = "/api/v1/channels/credentials"


class NewLink(Shape, frozen=True):
    """What an administrator says of a sender."""

    platform: str
    platform_user_id: str
    user_id: str
    revoked: bool = False


class WhichLink(Shape, frozen=True):
    platform: str
    platform_user_id: str


class LinksAsked(Shape, frozen=True):
    """All of them, or that of one account."""

    platform: str | msgspec.UnsetType = msgspec.UNSET
    platform_user_id: str | msgspec.UnsetType = msgspec.UNSET


class Redeeming(Shape, frozen=True):
    """A code that somebody sent from their account."""

    platform: ActedFrom
    platform_user_id: str
    code: Annotated[str, msgspec.Meta(max_length=100)]


class Coding(Shape, frozen=True):
    """For one platform, or for any."""

    platform: str | None = None


class CodeShown(ApiStruct, frozen=True):
    code: str
    expires_at: Moment


class OutboxQuery(Shape, frozen=True):
    status: OutboxStatus | msgspec.UnsetType = msgspec.UNSET
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 100


class OutboxRowShown(ApiStruct, frozen=True):
    """A delivery, without what it says: that is its recipient's."""

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


class OutboxShown(ApiStruct, frozen=True):
    deliveries: list[OutboxRowShown]


class CredentialsGiven(Shape, frozen=True):
    secrets: dict[str, str]


class CredentialsShown(ApiStruct, frozen=True):
    """That there are some, and under which key they are sealed."""

    platform: Surface
    key_id: str
    updated_at: Moment


class CredentialsListed(ApiStruct, frozen=True):
    credentials: list[CredentialsShown]


class ChannelRoutes:
    def __init__(self, threadline: Threadline, who_asks: WhoAsks) -> None:
        self._messaging = threadline.messaging
        self._who_asks = who_asks

    def routes(self) -> list[Route]:
        return [
            Route(_LINKS, self.list_links, methods=["GET"]),
            Route(_LINKS, self.put_link, methods=["POST"]),
            Route(_LINKS, self.remove_link, methods=["DELETE"]),
            Route(_LINKS + "/code", self.make_code, methods=["POST"]),
            Route(_LINKS + "/redeem", self.redeem, methods=["POST"]),
            Route(_OUTBOX, self.list_outbox, methods=["GET"]),
            Route(_OUTBOX + "/{outbox_id}/requeue", self.requeue, methods=["POST"]),
            Route(_CREDENTIALS, self.list_credentials, methods=["GET"]),
            Route("/api/v1/channels/{platform}/credentials", self.put_credentials, methods=["PUT"]),
            Route("/api/v1/channels/{platform}/credentials", self.delete_credentials, methods=["DELETE"]),
        ]

    @operation(
        "listLinks",
        "List links to accounts on platforms",
        ResponseSpec(200, "The user's own; for an administrator, the tenant's.", LinksResponse),
        tag="channels",
        description="Of one account, if both are given: then a token that acts for users sees anyone's in the tenant.",
        query=LinksAsked,
        errors=(errors.InvalidName,),
        for_others=True,
    )
    async def list_links(self, request: Request) -> Response:
        scope = await self._who_asks(request)
        asked = read_query(request, LinksAsked)
        match asked.platform, asked.platform_user_id:
            case str(platform), str(sender):
                one = await self._messaging.links.find(scope, platform, sender, anyones=may_act(request))
                found = [] if one is None else [one]
            case msgspec.UNSET, msgspec.UNSET:
                found = await self._messaging.links.listed(scope)
            case _:
                raise InvalidInput("give platform and platformUserId, or neither")
        return json_response(LinksResponse([_link(each) for each in found]))

    @operation(
        "putLink",
        "Link an account, or bar it",
        ResponseSpec(200, "The link as it is now.", LinkInfo),
        tag="channels",
        description="Without a code, so for administrators only; users link themselves with a code.",
        body=Body(NewLink, {"a new account": {"platform": "slack", "platformUserId": "U024BE7LH", "userId": "ada"}}),
        errors=(errors.InvalidName, errors.InvalidText),
        needs="admin",
    )
    async def put_link(self, request: Request) -> Response:
        scope = await self._who_asks(request)
        scope.require("admin")
        asked = await read_body(request, NewLink)
        link = await self._messaging.links.put(
            scope, asked.platform, asked.platform_user_id, asked.user_id, revoked=asked.revoked
        )
        return json_response(_link(link))

    @operation(
        "removeLink",
        "Unlink an account",
        ResponseSpec(200, "It is not linked, or was not.", OkResponse),
        tag="channels",
        query=WhichLink,
        needs="member",
        for_others=True,
    )
    async def remove_link(self, request: Request) -> Response:
        scope = await self._who_asks(request)
        asked = read_query(request, WhichLink)
        await self._messaging.links.remove(scope, asked.platform, asked.platform_user_id)
        return json_response(OkResponse(True))

    @operation(
        "makeLinkCode",
        "Make a code that links an account",
        ResponseSpec(201, "The code: it works once, and until it expires. It is not shown again.", CodeShown),
        tag="channels",
        body=Body(Coding, {"any platform": {}, "Telegram": {"platform": "telegram"}}, required=False),
        errors=(errors.InvalidText,),
        needs="member",
    )
    async def make_code(self, request: Request) -> Response:
        scope = await self._who_asks(request)
        asked = await read_body(request, Coding)
        made = await self._messaging.links.new_code(scope, asked.platform)
        return json_response(CodeShown(made.code, made.expires_at), 201)

    @operation(
        "redeemLinkCode",
        "Link the account that sent a code",
        ResponseSpec(200, "It is linked with whoever made the code, which is used up.", RedeemedLinkResponse),
        tag="channels",
        description="For the bot that was sent the code: a token that acts for users, on its own account.",
        body=Body(Redeeming, {"from a room": {"platform": "matrix", "platformUserId": "@ada:example", "code": "K3Y0"}}),
        errors=(errors.InvalidName, errors.LinkRefused, errors.LinkLimited),
        needs="admin",
        for_bots=True,
    )
    async def redeem(self, request: Request) -> Response:
        scope = await self._who_asks(request)
        asked = await read_body(request, Redeeming)
        links = self._messaging.links
        return json_response(
            RedeemedLinkResponse(await links.redeem(scope, asked.platform, asked.platform_user_id, asked.code))
        )

    @operation(
        "listDeliveries",
        "List deliveries to platforms",
        ResponseSpec(200, "The tenant's, newest first.", OutboxShown),
        tag="channels",
        query=OutboxQuery,
        needs="admin",
    )
    async def list_outbox(self, request: Request) -> Response:
        scope = await self._who_asks(request)
        asked = read_query(request, OutboxQuery)
        found = await self._messaging.outbox.listed(scope, status=asked.status or None, limit=asked.limit)
        return json_response(OutboxShown([_outbox_row(row) for row in found]))

    @operation(
        "requeueDelivery",
        "Try a dead delivery again",
        ResponseSpec(200, "It waits again, its attempts reset.", OutboxRowShown),
        tag="channels",
        errors=(errors.NotFound, errors.Conflict),
        needs="admin",
    )
    async def requeue(self, request: Request) -> Response:
        scope = await self._who_asks(request)
        return json_response(_outbox_row(await self._messaging.outbox.requeue(scope, request.path_params["outbox_id"])))

    @operation(
        "listCredentials",
        "List which platforms have credentials",
        ResponseSpec(200, "By platform. The credentials themselves are never shown.", CredentialsListed),
        tag="channels",
        needs="admin",
    )
    async def list_credentials(self, request: Request) -> Response:
        found = await self._messaging.credentials.listed(await self._who_asks(request))
        return json_response(
            CredentialsListed([CredentialsShown(each.platform, each.key_id, each.updated_at) for each in found])
        )

    @operation(
        "putCredentials",
        "Set a platform's credentials",
        ResponseSpec(200, "They are kept, sealed.", CredentialsShown),
        tag="channels",
        body=Body(CredentialsGiven),
        errors=(errors.NotFound, errors.InvalidText, errors.SettingsInvalid, errors.ExtraMissing),
        needs="admin",
    )
    async def put_credentials(self, request: Request) -> Response:
        scope = await self._who_asks(request)
        scope.require("admin")
        asked = await read_body(request, CredentialsGiven)
        kept = await self._messaging.credentials.put(scope, request.path_params["platform"], asked.secrets)
        return json_response(CredentialsShown(kept.platform, kept.key_id, kept.updated_at))

    @operation(
        "deleteCredentials",
        "Remove a platform's credentials",
        ResponseSpec(200, "There are none, or were none.", OkResponse),
        tag="channels",
        errors=(errors.NotFound,),
        needs="admin",
    )
    async def delete_credentials(self, request: Request) -> Response:
        scope = await self._who_asks(request)
        await self._messaging.credentials.delete(scope, request.path_params["platform"])
        return json_response(OkResponse(True))


def _link(link: Link) -> LinkInfo:
    return LinkInfo(link.platform, link.platform_user_id, link.owner_id, link.state, link.created_at, link.updated_at)


def _outbox_row(row: OutboxRow) -> OutboxRowShown:
    return OutboxRowShown(
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
