"""The routes of a bot that holds a platform's connection in another process: arrivals, deliveries and places.

The bot's token acts for users; administrators may call them as well.
"""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadline.api_types import (
    ArrivalResponse,
    BridgeDelivery,
    ClaimedResponse,
    PlaceInfo,
    PlacesResponse,
    RestoredResponse,
    SettledResponse,
)
from threadline.core import errors
from threadline.core.errors import InvalidInput
from threadline.core.ids import check_user_id, new_id
from threadline.core.platform_messages import (
    Ambiguous,
    Arrival,
    ArrivalKind,
    Opened,
    Outcome,
    Permanent,
    Released,
    Sent,
    Transient,
)
from threadline.messaging.bridges import Room
from threadline.service.context import ServiceContext
from threadline.service.http.request_context import scope_of
from threadline.service.http.requests import RequestStruct, read_body
from threadline.service.http.responses import json_response
from threadline.service.openapi.operation import Body, ResponseSpec, operation

_CHANNEL = "/api/v1/channels/{platform}"
_PATH = {"platform": "matrix"}

PlatformId = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
Worker = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]


class NewArrivalBody(RequestStruct, frozen=True):
    """An event of the platform, as the bot read it. `target` is the message that an edit, a retraction or a reaction is
    about. An answer to a message that asks for an approval has the kind `answer` and the text `yes:TOKEN` or
    `no:TOKEN`, with the token of that message's delivery. `senderName` is what the sender is called in the place;
    `isByModerator` says that they may change its settings."""

    key: PlatformId
    sender: str
    place: PlatformId
    recipient: Annotated[str, msgspec.Meta(min_length=1, max_length=2_000)]
    text: str
    sent_at: Annotated[dt.datetime, msgspec.Meta(tz=True)]
    is_shared: bool = False
    kind: ArrivalKind = "message"
    target: PlatformId | None = None
    is_addressed: bool = True
    sender_name: Annotated[str, msgspec.Meta(max_length=1_000)] | None = None
    is_by_moderator: bool = False
    auto_link: bool = False


class ClaimBody(RequestStruct, frozen=True):
    """Who claims, how many deliveries, for how long, and how long to wait for the first. `holding` are the deliveries
    that the worker has: with it, what the same worker claimed otherwise is claimed again, because an earlier process
    claimed it, or the response was lost."""

    worker: Worker
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 10
    claim_seconds: Annotated[float, msgspec.Meta(ge=0.1, le=300)] = 15.0
    wait_seconds: Annotated[float, msgspec.Meta(ge=0, le=5)] = 0.0
    holding: Annotated[list[PlatformId], msgspec.Meta(max_length=1_000)] | None = None


class SettleBody(RequestStruct, frozen=True):
    """`place` and `link` are the room that was opened, `space` the space if one was opened with it. `released` gives
    the claim back: the delivery was not sent, or `mayBeSent`. `messageId` is the platform's id of what was sent, or
    several with spaces between them."""

    worker: Worker
    outcome: Literal["sent", "opened", "transient", "ambiguous", "permanent", "released"]
    reason: Annotated[str, msgspec.Meta(max_length=2_000)] = ""
    retry_after: Annotated[float, msgspec.Meta(ge=0, le=3_600)] | None = None
    place: PlatformId | None = None
    link: Annotated[str, msgspec.Meta(max_length=1_000)] = ""
    space: PlatformId | None = None
    may_be_sent: bool = False
    message_id: Annotated[str, msgspec.Meta(max_length=4_000)] | None = None


class RestoreBody(RequestStruct, frozen=True):
    place: PlatformId
    sender: str
    thread_id: str
    label: Annotated[str, msgspec.Meta(max_length=64)] | None = None
    is_space: bool = False
    is_shared: bool = False
    auto_link: bool = False


class BridgeRoutes:
    def __init__(self, context: ServiceContext) -> None:
        self._bridges = context.threadline.bridges
        self._stopping = context.shutdown.started

    def routes(self) -> list[Route]:
        return [
            Route(_CHANNEL + "/arrivals", self.receive, methods=["POST"]),
            Route(_CHANNEL + "/outbox/claim", self.claim, methods=["POST"]),
            Route(_CHANNEL + "/outbox/{outbox_id}/settle", self.settle, methods=["POST"]),
            Route(_CHANNEL + "/places", self.list_rooms, methods=["GET"]),
            Route(_CHANNEL + "/places", self.restore_room, methods=["PUT"]),
        ]

    @operation(
        "deliverArrival",
        "Deliver an event of a platform",
        ResponseSpec(200, "The decision, and the turn that it began, if any.", ArrivalResponse),
        tag="channels",
        description=(
            "For a bot that holds the platform's connection. The key is claimed once, together with what the event "
            "causes: repeat the request until it is answered. With `autoLink`, an account without a link becomes a "
            "user under its own id."
        ),
        body=Body(
            NewArrivalBody,
            {
                "a message": {
                    "key": "$event",
                    "sender": "@ada:example.org",
                    "place": "!room:example.org",
                    "recipient": "!room:example.org",
                    "text": "Hello",
                    "sentAt": "2026-11-16T12:00:00Z",
                }
            },
        ),
        errors=(errors.NotFound, errors.InvalidName),
        path=_PATH,
    )
    async def receive(self, request: Request) -> Response:
        scope = scope_of(request)
        platform = self._bridges.platform(request.path_params["platform"])
        body = await read_body(request, NewArrivalBody)
        arrival = Arrival(
            platform=platform,
            key=body.key,
            sender=check_user_id(body.sender),
            place=body.place,
            recipient=body.recipient,
            text=body.text,
            sent_at=body.sent_at,
            shared=body.is_shared,
            kind=body.kind,
            target=body.target,
            is_addressed=body.is_addressed,
            sender_name=body.sender_name,
            is_by_moderator=body.is_by_moderator,
        )
        receipt = await self._bridges.receive(scope.tenant_id, arrival, new_id(), auto_link=body.auto_link)
        return json_response(ArrivalResponse(receipt.decision, receipt.user_id, receipt.turn_id))

    @operation(
        "claimDeliveries",
        "Claim deliveries for a platform",
        ResponseSpec(200, "The claimed deliveries, oldest first.", ClaimedResponse),
        tag="channels",
        description=(
            "For a bot that holds the platform's connection. Settle each delivery before its claim ends; after that it "
            "is claimed again. Deliveries to one recipient are claimed one after the other."
        ),
        body=Body(ClaimBody, {"a few": {"worker": "bot-1", "limit": 10}}),
        errors=(errors.NotFound,),
        path=_PATH,
    )
    async def claim(self, request: Request) -> Response:
        scope = scope_of(request)
        platform = self._bridges.platform(request.path_params["platform"])
        body = await read_body(request, ClaimBody)
        rows = await self._bridges.claim(
            scope.tenant_id,
            platform,
            body.worker,
            limit=body.limit,
            claim_seconds=body.claim_seconds,
            wait_seconds=body.wait_seconds,
            holding=body.holding,
            stopping=self._stopping,
            is_gone=request.is_disconnected,
        )
        deliveries = [BridgeDelivery(row.id, row.recipient, row.payload, row.attempts, row.turn_id) for row in rows]
        return json_response(ClaimedResponse(deliveries))

    @operation(
        "settleDelivery",
        "Report the outcome of a delivery",
        ResponseSpec(200, "Whether the claim was still this worker's.", SettledResponse),
        tag="channels",
        description="A delivery that asks for a room is `opened` with the room, or `permanent` if it was refused.",
        body=Body(SettleBody, {"sent": {"worker": "bot-1", "outcome": "sent"}}),
        errors=(errors.NotFound, errors.InvalidName),
        path=_PATH,
    )
    async def settle(self, request: Request) -> Response:
        scope = scope_of(request)
        platform = self._bridges.platform(request.path_params["platform"])
        body = await read_body(request, SettleBody)
        settled = await self._bridges.settle(
            scope.tenant_id, platform, body.worker, request.path_params["outbox_id"], _read_outcome(body)
        )
        return json_response(SettledResponse(settled))

    @operation(
        "listRooms",
        "List the rooms of a platform",
        ResponseSpec(200, "Every room and space that is bound, with its thread.", PlacesResponse),
        tag="channels",
        errors=(errors.NotFound,),
        path=_PATH,
    )
    async def list_rooms(self, request: Request) -> Response:
        scope = scope_of(request)
        rooms = await self._bridges.rooms(scope.tenant_id, self._bridges.platform(request.path_params["platform"]))
        places = [
            PlaceInfo(
                room.place, room.sender, room.user_id or "", room.thread_id, room.label, room.is_space, room.is_shared
            )
            for room in rooms
        ]
        return json_response(PlacesResponse(places))

    @operation(
        "restoreRoom",
        "Bind a room again",
        ResponseSpec(200, "Whether it was bound.", RestoredResponse),
        tag="channels",
        description="For a bot whose room names a thread that the service does not know, after data was lost.",
        body=Body(
            RestoreBody,
            {"a room": {"place": "!room:example.org", "sender": "@ada:example.org", "threadId": "01J0Z3"}},
        ),
        errors=(errors.NotFound, errors.InvalidName),
        path=_PATH,
    )
    async def restore_room(self, request: Request) -> Response:
        scope = scope_of(request)
        platform = self._bridges.platform(request.path_params["platform"])
        body = await read_body(request, RestoreBody)
        room = Room(
            body.place, check_user_id(body.sender), body.thread_id, body.label, body.is_space, is_shared=body.is_shared
        )
        restored = await self._bridges.restore(scope.tenant_id, platform, room, auto_link=body.auto_link)
        return json_response(RestoredResponse(restored))


def _read_outcome(body: SettleBody) -> Outcome:
    match body.outcome:
        case "sent":
            return Sent(body.message_id)
        case "opened":
            if body.place is None:
                raise InvalidInput("`place` is missing: an opened room must be named")
            return Opened(body.place, body.link, body.space)
        case "transient":
            return Transient(body.reason, body.retry_after)
        case "ambiguous":
            return Ambiguous(body.reason)
        case "permanent":
            return Permanent(body.reason)
        case "released":
            return Released(body.may_be_sent)
