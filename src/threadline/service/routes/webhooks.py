"""The webhooks that platforms call. They are answered as soon as the messages are stored.

A body without a valid signature gets 401 and nothing is stored. A signed body that is not JSON gets 400 with a
correlation id. Any other unexpected content of a signed body is acknowledged and stored as a dead letter, because a
platform sends a refused delivery again and again and finally disables the webhook.
"""

from __future__ import annotations

import logging
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from threadline.api_types import ApiStruct
from threadline.core import errors
from threadline.core.errors import InvalidJson, InvalidName, InvalidText, LimitExceeded, NotFound
from threadline.core.ids import check_tenant_id, new_id
from threadline.messaging.delivery_intake import DeliveryIntake
from threadline.messaging.receipts import Decision
from threadline.observability.log_throttle import LogThrottle
from threadline.ports import Channel
from threadline.service.context import ServiceContext
from threadline.service.http.problems import Problem
from threadline.service.http.responses import json_response
from threadline.service.openapi.operation import Body, ResponseSpec, operation

log = logging.getLogger("threadline.hooks")

_RETRY_LATER = {"Retry-After": "5"}
_FORM = "application/x-www-form-urlencoded"
_WEBHOOK = "/api/v1/tenants/{tenant}/channels/{platform}/webhook"


class MessageResult(ApiStruct, frozen=True):
    """How one message was handled."""

    decision: Decision
    turn_id: str | None = None


class WebhookResponse(ApiStruct, frozen=True):
    """How each message of a delivery was handled. Content that is not a message is not listed."""

    correlation_id: str
    results: list[MessageResult]


class WebhookRoutes:
    def __init__(self, context: ServiceContext) -> None:
        self._threadline = context.threadline
        self._messaging = context.threadline.messaging
        self._intake = DeliveryIntake(context.threadline.inbox, context.threadline.messaging.outbox)
        self._throttle = LogThrottle(log)

    def routes(self) -> list[Route]:
        return [
            Route(_WEBHOOK, self.receive, methods=["POST"]),
            Route(_WEBHOOK, self.verify, methods=["GET"]),
        ]

    @operation(
        "receiveWebhook",
        "Receive a delivery of a platform",
        ResponseSpec(
            200,
            "The messages are stored; replies are sent through the platform. A challenge is answered.",
            WebhookResponse,
        ),
        tag="channels",
        description="In the platform's format, signed by the platform.",
        body=Body(dict[str, Any]),
        errors=(errors.NotFound, errors.SignatureInvalid),
    )
    async def receive(self, request: Request) -> Response:
        tenant_id, channel = self._find_channel(request)
        self._refuse_if_overloaded()
        secrets = await self._messaging.credentials.open(tenant_id, channel.platform)
        body = await request.body()
        channel.verify(secrets, request.headers.items(), body, self._threadline.clock.now())
        correlation_id = new_id()
        me = await self._messaging.identities.find(tenant_id, channel, secrets)
        try:
            delivery = channel.parse_webhook(body, me)
        except (InvalidJson, InvalidText, LimitExceeded) as exc:
            return Problem(400, exc.code, str(exc)).response(correlationId=correlation_id)
        if delivery.challenge is not None:
            return PlainTextResponse(delivery.challenge)
        receipts = await self._intake.take(tenant_id, channel.platform, delivery, body, correlation_id)
        if request.headers.get("content-type", "").startswith(_FORM):
            # Slack shows its user what a form is answered with; the reply follows through the outbox.
            return Response(status_code=200)
        results = [MessageResult(receipt.decision, receipt.turn_id) for receipt in receipts]
        # 200 whatever the decisions: platforms repeat refused deliveries and finally disable the webhook.
        return json_response(WebhookResponse(correlation_id, results))

    def _refuse_if_overloaded(self) -> None:
        """Platforms repeat what was refused, so a message is late and not lost; what was accepted is answered first.
        Accepting more would delay all answers, and the acknowledgements until platforms repeat those, too."""
        wait, limit = self._threadline.runner.channel_wait_seconds, self._messaging.settings.shed_seconds
        if wait > limit:
            self._throttle.warning("webhook refused: overloaded", "overloaded", wait_seconds=round(wait, 1))
            raise Problem(
                503, "overloaded", "messages wait to be processed: send it again in a few seconds", _RETRY_LATER
            )

    @operation(
        "verifyWebhook",
        "Answer a platform that verifies the webhook",
        ResponseSpec(200, "The challenge, as plain text.", str, media_types=("text/plain",)),
        tag="channels",
        errors=(errors.NotFound, errors.SignatureInvalid),
    )
    async def verify(self, request: Request) -> Response:
        tenant_id, channel = self._find_channel(request)
        secrets = await self._messaging.credentials.open(tenant_id, channel.platform)
        return PlainTextResponse(channel.answer_handshake(secrets, dict(request.query_params)))

    def _find_channel(self, request: Request) -> tuple[str, Channel]:
        try:
            tenant_id = check_tenant_id(request.path_params["tenant"])
        except InvalidName:
            # Invalid and unknown tenants get the same response.
            raise NotFound("tenant", request.path_params["tenant"]) from None
        return tenant_id, self._messaging.credentials.channel(request.path_params["platform"])
