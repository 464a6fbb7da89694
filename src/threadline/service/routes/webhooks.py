"""The webhook: platforms deliver here, and are answered as soon as what they brought is stored.

A body that its platform did not sign is answered with 401 and leaves no trace. What is signed and cannot be read as
JSON is 400, with an id to ask the operator about; whatever else is odd about a signed body is acknowledged and put
aside, because a platform sends a refused one again and again, and in the end stops sending.
"""

from __future__ import annotations

import hashlib
import logging
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from threadline.api_types import ApiStruct
from threadline.bootstrap import Threadline
from threadline.core import errors
from threadline.core.errors import InvalidJson, InvalidName, InvalidText, LimitExceeded, NotFound
from threadline.core.ids import check_tenant_id, new_id
from threadline.core.platform_messages import Delivery
from threadline.messaging.inbox import Decision
from threadline.ports import Channel
from threadline.service.operation import Body, ResponseSpec, operation
from threadline.service.problems import Problem
from threadline.service.responses import json_response

log = logging.getLogger("threadline.hooks")

_WEBHOOK = "/api/v1/tenants/{tenant}/channels/{platform}/webhook"


class Result(ApiStruct, frozen=True):
    """What became of one message."""

    decision: Decision
    turn_id: str | None = None


class Received(ApiStruct, frozen=True):
    """What became of a delivery, message by message; what was no message is not told."""

    correlation_id: str
    results: list[Result]


class HookRoutes:
    def __init__(self, threadline: Threadline) -> None:
        self._threadline = threadline
        self._messaging = threadline.messaging

    def routes(self) -> list[Route]:
        return [
            Route(_WEBHOOK, self.deliver, methods=["POST"]),
            Route(_WEBHOOK, self.greet, methods=["GET"]),
        ]

    @operation(
        "deliver",
        "Take what a platform delivers",
        ResponseSpec(
            200, "Stored; the answers follow through the platform. A platform's question is answered.", Received
        ),
        ResponseSpec(403, "Every message of it came from somebody who is not linked.", Received),
        tag="channels",
        description="Signed by the platform, in the platform's own form.",
        body=Body(dict[str, Any]),
        errors=(errors.NotFound, errors.SignatureInvalid, errors.InvalidText),
        needs=None,
    )
    async def deliver(self, request: Request) -> Response:
        tenant_id, channel = self._address(request)
        secrets = await self._messaging.credentials.open(tenant_id, channel.platform)
        body = await request.body()
        channel.verify(secrets, request.headers.items(), body, self._threadline.clock.now())
        correlation_id = new_id()
        try:
            delivery = channel.read(body)
        except (InvalidJson, InvalidText, LimitExceeded) as exc:
            return Problem(400, exc.code, str(exc)).response(correlationId=correlation_id)
        if delivery.challenge is not None:
            return PlainTextResponse(delivery.challenge)
        await self._put_aside(tenant_id, channel, delivery, body, correlation_id)
        for report in delivery.reports:
            await self._messaging.outbox.hear(tenant_id, report)
        # One after the other: they stand in the order in which they were written.
        receipts = [
            await self._threadline.inbox.receive(tenant_id, arrival, correlation_id) for arrival in delivery.arrivals
        ]
        strangers = bool(receipts) and all(receipt.decision == "denied_unverified" for receipt in receipts)
        results = [Result(receipt.decision, receipt.turn_id) for receipt in receipts]
        return json_response(Received(correlation_id, results), 403 if strangers else 200)

    async def _put_aside(
        self, tenant_id: str, channel: Channel, delivery: Delivery, body: bytes, correlation_id: str
    ) -> None:
        for number, ignored in enumerate(delivery.ignored):
            log.info(
                "delivery ignored",
                extra={"platform": channel.platform, "reason": ignored.reason, "correlation_id": correlation_id},
            )
            if ignored.reason == "broken":
                key = f"broken-{hashlib.sha256(body).hexdigest()}-{number}"
                await self._threadline.inbox.dead_letter(
                    tenant_id, channel.platform, key, ignored.detail, correlation_id
                )

    @operation(
        "greetPlatform",
        "Answer a platform that asks whether somebody is there",
        ResponseSpec(200, "What it asked for, as plain text.", str, media_types=("text/plain",)),
        tag="channels",
        errors=(errors.NotFound, errors.SignatureInvalid),
        needs=None,
    )
    async def greet(self, request: Request) -> Response:
        tenant_id, channel = self._address(request)
        secrets = await self._messaging.credentials.open(tenant_id, channel.platform)
        return PlainTextResponse(channel.greet(secrets, dict(request.query_params)))

    def _address(self, request: Request) -> tuple[str, Channel]:
        try:
            tenant_id = check_tenant_id(request.path_params["tenant"])
        except InvalidName:
            raise NotFound("tenant", request.path_params["tenant"]) from None
        return tenant_id, self._messaging.credentials.channel(request.path_params["platform"])
