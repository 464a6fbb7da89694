"""BotIdentities: who the bot is on a platform, so that it does not answer what is meant for others.

The platform is asked when it is first needed, and again after an hour, because bots can be renamed. While it cannot be
asked, the codec guesses: a message must not be lost because of it.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Mapping

from threadline.core.errors import SettingsInvalid
from threadline.core.platform_messages import Ambiguous, BotIdentity, HttpResponse, Permanent, Transient
from threadline.core.turns import Surface
from threadline.ports import Channel, Clock, Http

log = logging.getLogger("threadline.messaging")

_KNOWN_FOR = dt.timedelta(hours=1)
# Every message in a group asks: a platform that is down must not be asked for each.
_UNKNOWN_FOR = dt.timedelta(minutes=1)
# The platform that delivered the message waits for its answer; Slack for three seconds.
_ASK_SECONDS = 2.0


class BotIdentities:
    def __init__(self, http: Http, clock: Clock) -> None:
        self._http = http
        self._clock = clock
        self._found: dict[tuple[str, Surface], tuple[dt.datetime, BotIdentity | None]] = {}

    async def find(self, tenant_id: str, channel: Channel, secrets: Mapping[str, str]) -> BotIdentity | None:
        """None if the platform's deliveries say who the bot is, or if it cannot be known at the moment."""
        if not channel.must_know_bot:
            return None
        key, now = (tenant_id, channel.platform), self._clock.now()
        until, known = self._found.get(key, (now, None))
        if now < until:
            return known
        asked = await ask_identity(self._http, channel, secrets, seconds=_ASK_SECONDS)
        found = asked if isinstance(asked, BotIdentity) else None
        if found is None:
            log.warning("the bot's name is not known", extra={"platform": channel.platform, "tenant_id": tenant_id})
        self._found[key] = (now + (_KNOWN_FOR if found else _UNKNOWN_FOR), found)
        return found


async def ask_identity(
    http: Http, channel: Channel, secrets: Mapping[str, str], *, seconds: float
) -> BotIdentity | Transient | Permanent:
    """Asks the platform who the bot with these credentials is. Permanent if it does not accept them."""
    try:
        request = channel.build_identity_request(secrets)
    except SettingsInvalid as exc:
        return Permanent(str(exc))
    response = await http.send(request, seconds=seconds)
    match response:
        case HttpResponse():
            return channel.parse_identity(response)
        case Ambiguous(reason):
            return Transient(reason)
        case Transient():
            return response
