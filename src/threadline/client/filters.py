"""The filters of a list of threads as parameters of a query."""

from __future__ import annotations

from typing import Any

import msgspec

from threadline.core.thread_filters import ThreadFilterFields, thread_filter


def filter_query(archived: bool | None, deleted: bool, matching: ThreadFilterFields) -> dict[str, Any]:
    return {**condition_query(matching), "archived": "any" if archived is None else archived, "deleted": deleted}


def condition_query(matching: ThreadFilterFields) -> dict[str, Any]:
    """InvalidInput for a filter that cannot be compared, before anything is sent."""
    thread_filter(matching)
    given: dict[str, Any] = {**matching}
    if matching.get("where"):
        given["where"] = msgspec.json.encode(dict(matching["where"])).decode()
    for name in ("since", "until"):
        if (moment := given.get(name)) is not None:
            given[name] = moment.isoformat()
    return {name: value for name, value in given.items() if value not in (None, {})}
