"""The state of ADK's sessions as values: those of a thread, of a user, and (for an app) of the tenant.

Each key of a state is a value of its own, so that an event writes only what it changes, and processes that change
different keys do not meet.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from google.adk.sessions.state import State
from pydantic_core import to_jsonable_python

from threadline.core.values import PutValue, ValueScope
from threadline.ports import GatewayValues

_NAMESPACE = "adk.state"
# So that every key of a state, also an empty one, is a key of a value, and those of an app are a range.
_SEPARATOR = "/"
_PAGE = 1_000


def changes(app_name: str, delta: Mapping[str, Any]) -> list[PutValue]:
    """`temp:` keys are not stored."""
    return [_change(app_name, key, value) for key, value in delta.items() if not key.startswith(State.TEMP_PREFIX)]


def _change(app_name: str, key: str, value: Any) -> PutValue:
    scope, prefix, name = _place(app_name, key)
    # What JSON cannot express is stored as its text, as ADK's own services do.
    data = json.dumps(to_jsonable_python(value, fallback=str)).encode()
    return PutValue(_NAMESPACE, f"{prefix}{_SEPARATOR}{name}", data, scope=scope)


def _place(app_name: str, key: str) -> tuple[ValueScope, str, str]:
    if key.startswith(State.APP_PREFIX):
        return "tenant", escaped(app_name), key.removeprefix(State.APP_PREFIX)
    if key.startswith(State.USER_PREFIX):
        return "user", escaped(app_name), key.removeprefix(State.USER_PREFIX)
    return "thread", "", key


def escaped(app_name: str) -> str:
    """Without the separator, so that what is before the first one is the name of the app."""
    return app_name.replace("%", "%25").replace(_SEPARATOR, "%2F")


async def read_session_state(values: GatewayValues) -> dict[str, Any]:
    return await _read(values, "")


async def read_app_state(values: GatewayValues, app_name: str) -> dict[str, Any]:
    """`values` are those of the tenant, or of a user for the user's state. Keys are without `app:` or `user:`."""
    return await _read(values, escaped(app_name))


async def _read(values: GatewayValues, prefix: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    cursor: str | None = None
    prefix += _SEPARATOR
    while True:
        page = await values.list(_NAMESPACE, prefix=prefix, limit=_PAGE, cursor=cursor, with_data=True)
        found |= {value.key.removeprefix(prefix): json.loads(value.data or b"null") for value in page}
        cursor = page.next_cursor
        if cursor is None:
            return found


def merged(session: Mapping[str, Any], user: Mapping[str, Any], app: Mapping[str, Any]) -> dict[str, Any]:
    """One dictionary, as sessions have it."""
    return {
        **session,
        **{f"{State.USER_PREFIX}{key}": value for key, value in user.items()},
        **{f"{State.APP_PREFIX}{key}": value for key, value in app.items()},
    }
