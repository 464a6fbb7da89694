"""Request bodies, queries and headers, read strictly.

A body must be a JSON object of a declared shape, and every query parameter must be known and given once. Unknown keys
are refused: a misspelt option that is silently ignored is hard to find.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from threadline.core import jsontext
from threadline.core.errors import InvalidInput
from threadline.core.ids import check_id
from threadline.service.http.faults import describe_fault, find_inexact_value, json_type
from threadline.service.http.problems import Problem

T = TypeVar("T")
WEBHOOK_PATH = re.compile(r"/api/v1/tenants/[^/]+/channels/[^/]+/webhook")
"""Paths that platforms send their messages to, with limits of their own."""
# Longer than every id and key that a header can contain.
_HEADER_LENGTH = 256


class RequestStruct(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Base of request bodies and queries."""


async def read_object(request: Request) -> dict[str, Any]:
    return parse_object(await request.body())


def parse_object(body: bytes) -> dict[str, Any]:
    value = jsontext.parse(body)
    if not isinstance(value, dict):
        raise InvalidInput(f"body must be a JSON object, got {json_type(value)}")
    return value


async def read_body(request: Request, shape: type[T]) -> T:
    """An absent body counts as an empty object."""
    value = await read_object(request) if await request.body() else {}
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as exc:
        raise InvalidInput(describe_fault(exc, value, shape)) from exc


def read_query(request: Request, shape: type[T], *, ignored: tuple[str, ...] = ()) -> T:
    pairs = [(name, value) for name, value in request.query_params.multi_items() if name not in ignored]
    given = dict(pairs)
    if len(given) != len(pairs):
        raise InvalidInput("a query parameter is given twice: send each one once")
    # Values of a query are text, so the conversion is not strict; that would also read `1e2` as an integer and `null`
    # as no value.
    if (fault := find_inexact_value(given, shape)) is not None:
        raise InvalidInput(fault)
    try:
        return msgspec.convert(given, shape, strict=False)
    except msgspec.ValidationError as exc:
        raise InvalidInput(describe_fault(exc, given, shape)) from exc


def read_header(request: Request, name: str, max_length: int = _HEADER_LENGTH) -> str | None:
    values = request.headers.getlist(name)
    if len(values) > 1:
        raise InvalidInput(f"header {name} is given twice: send it once")
    if values and len(values[0]) > max_length:
        raise Problem(
            431, "header_too_large", f"header {name} must have at most {max_length} characters, got {len(values[0])}"
        )
    return values[0] if values else None


def idempotency_key(request: Request) -> str | None:
    key = read_header(request, "Idempotency-Key")
    return None if key is None else check_id("Idempotency-Key", key)


def host_name(host: str) -> str:
    """The name of a Host header, without its port; an IPv6 address without its brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()
