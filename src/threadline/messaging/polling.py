"""Polling: asks a platform for updates, for a machine that webhooks cannot reach.

Updates are stored before they are confirmed: the next request names the last number seen. After a crash the platform
sends the same updates again, and the inbox recognises them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from threadline.core.errors import SettingsInvalid, StoreFailed
from threadline.core.ids import new_id
from threadline.core.platform_messages import Ambiguous, Permanent, Polled, Transient
from threadline.messaging.credentials import Credentials
from threadline.messaging.delivery_intake import DeliveryIntake
from threadline.messaging.identities import BotIdentities
from threadline.ports import Http, PolledChannel

log = logging.getLogger("threadline.polling")

# Below the usual idle timeout of proxies (30 s).
_HELD_SECONDS = 25
# Added to the time the platform may hold the request, before the connection counts as dead.
_ANSWER_SECONDS = 15.0
# After an outage of hours, messages arrive within a minute.
_LONGEST_PAUSE = 60.0


class Polling:
    def __init__(
        self,
        channel: PolledChannel,
        intake: DeliveryIntake,
        credentials: Credentials,
        identities: BotIdentities,
        http: Http,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._channel = channel
        self._intake = intake
        self._credentials = credentials
        self._identities = identities
        self._http = http
        self._sleep = sleep

    async def run(self, tenant_id: str) -> None:
        """Until cancelled. SettingsInvalid if the platform refuses permanently."""
        after, pause = 0, 1.0
        while True:
            got = await self.poll(tenant_id, after)
            if isinstance(got, Transient):
                log.warning("poll failed", extra={"platform": self._channel.platform, "reason": got.reason})
                await self._sleep(max(pause, got.retry_after or 0.0))
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                after, pause = got, 1.0

    async def poll(self, tenant_id: str, after: int, held_seconds: int = _HELD_SECONDS) -> int | Transient:
        """Requests the updates after `after` once and stores them; the last number seen."""
        secrets = await self._credentials.open(tenant_id, self._channel.platform)
        request = self._channel.build_poll_request(secrets, after, held_seconds)
        answered = await self._http.send(request, seconds=held_seconds + _ANSWER_SECONDS)
        if isinstance(answered, Transient | Ambiguous):
            return Transient(answered.reason)
        me = await self._identities.find(tenant_id, self._channel, secrets)
        found = self._channel.parse_poll_response(answered, me)
        match found:
            case Permanent(reason):
                raise SettingsInvalid(f"{self._channel.platform} refused to send updates: {reason}")
            case Transient():
                return found
        try:
            await self._store(tenant_id, found)
        except StoreFailed:
            return Transient("updates could not be stored")
        return after if found.last is None else found.last

    async def _store(self, tenant_id: str, found: Polled) -> None:
        for number, delivery in enumerate(found.deliveries):
            # What was read has no bytes of its own; the same updates have the same numbers when they come again.
            content = f"{found.last} {number}".encode()
            await self._intake.take(tenant_id, self._channel.platform, delivery, content, new_id())
