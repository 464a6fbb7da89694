"""Powers: what a user may do in a room by themselves. The bot does no more for them with its own power."""

from __future__ import annotations

from urllib.parse import quote

from threadline.matrix.homeserver import Homeserver

# From this room version on, creators have more power than any level.
CREATORS_RULE = 12


async def may_set(homeserver: Homeserver, room_id: str, user_id: str, kind: str) -> bool:
    """Whether a user's own power is enough to set this state of a room."""
    path = f"/_matrix/client/v3/rooms/{quote(room_id, safe='')}/state/m.room.create?format=event"
    create = await homeserver.request("GET", path)
    content = create.get("content", create)
    version = str(content.get("room_version", "1"))
    creators = {create.get("sender"), *content.get("additional_creators", ())}
    if version.isdigit() and int(version) >= CREATORS_RULE and user_id in creators:
        return True
    powers = await homeserver.state(room_id, "m.room.power_levels") or {}
    has = powers.get("users", {}).get(user_id, powers.get("users_default", 0))
    return int(has) >= int(powers.get("events", {}).get(kind, powers.get("state_default", 50)))
