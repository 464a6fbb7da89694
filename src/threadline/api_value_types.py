"""JSON types of the routes for values. `data` is base64."""

from __future__ import annotations

from threadline.api_types import ApiStruct, Moment


class ValueInfo(ApiStruct, frozen=True):
    """`size` is the length of the data in bytes, also where a list leaves the data out."""

    namespace: str
    key: str
    version: int
    size: int
    updated_at: Moment
    expires_at: Moment | None = None
    data: bytes | None = None


class ValuesResponse(ApiStruct, frozen=True):
    values: list[ValueInfo]
    next_cursor: str | None = None


class VersionsResponse(ApiStruct, frozen=True):
    """One version for each change: the new one, or that of the removed value; 0 if there was none to remove."""

    versions: list[int]
