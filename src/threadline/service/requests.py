"""Requests, read strictly: bodies are strict JSON of a known shape, every parameter of a query is known and given once.

An unknown key is refused, because a misspelt option that is silently ignored costs someone a day.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from threadline.core import jsontext
from threadline.core.errors import InvalidInput
from threadline.core.ids import check_id
from threadline.service.problems import Problem

T = TypeVar("T")
_HEADER_LENGTH = 256


class Shape(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What a body or a query may hold."""


async def read_object(request: Request) -> dict[str, Any]:
    value = jsontext.parse(await request.body())
    if not isinstance(value, dict):
        raise InvalidInput("the body is a JSON object")
    return value


async def read_body(request: Request, shape: type[T]) -> T:
    """The body in this shape; no body at all is an empty object."""
    value = await read_object(request) if await request.body() else {}
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as exc:
        raise InvalidInput(str(exc)) from exc


def read_query(request: Request, shape: type[T]) -> T:
    pairs = request.query_params.multi_items()
    given = dict(pairs)
    if len(given) != len(pairs):
        raise InvalidInput("a query parameter is given twice")
    try:
        return msgspec.convert(given, shape, strict=False)
    except msgspec.ValidationError as exc:
        raise InvalidInput(str(exc)) from exc


def header(request: Request, name: str, longest: int = _HEADER_LENGTH) -> str | None:
    values = request.headers.getlist(name)
    if len(values) > 1:
        raise InvalidInput(f"the header {name} is given twice")
    if values and len(values[0]) > longest:
        raise Problem(431, "header_too_large", f"{name} is limited to {longest} characters.")
    return values[0] if values else None


def idempotency_key(request: Request) -> str | None:
    key = header(request, "Idempotency-Key")
    return None if key is None else check_id("Idempotency-Key", key)
