"""What an operation takes and returns, declared beside its handler with `@operation("readThread", "Read a thread", …)`.

The OpenAPI document is generated from these declarations. Their types are the structs that the handler reads and
writes, so the document cannot differ from the code. Errors that all operations share (middleware, store,
authentication) are added by `document`; roles are in `auth/permissions.py`. Tests fail for a route without a
declaration, and send every declared example.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from threadline.core.errors import ThreadlineError

Handler = TypeVar("Handler", bound=Callable[..., Any])
Tag: TypeAlias = Literal[
    "chat", "openai", "mcp", "threads", "saves", "agents", "channels", "users", "administration", "operations"
]

Major: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": "^([5-9]|[1-9][0-9])$"})]


class Fault(NamedTuple):
    """The status and code of a `Problem`."""

    status: int
    code: str


class Body(msgspec.Struct, frozen=True):
    """The request body. A test sends each of `examples`, with the declared path values, and expects success."""

    type: Any
    examples: Mapping[str, Any] = {}
    media_types: tuple[str, ...] = ("application/json",)
    required: bool = True


class ResponseSpec(msgspec.Struct, frozen=True):
    """A response. `type` is a struct, a tuple of alternatives, a dict by media type, or None for no body. For a stream
    of events it is the type of one event."""

    status: int
    description: str
    type: Any = None
    media_types: tuple[str, ...] = ("application/json",)
    headers: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()


class Link(NamedTuple):
    """From a response to an operation that uses it: `parameters` are runtime expressions of OpenAPI."""

    operation_id: str
    parameters: Mapping[str, str] = {}
    body: Mapping[str, str] | None = None


class Operation(msgspec.Struct, frozen=True):
    id: str
    summary: str
    tag: Tag
    responses: tuple[ResponseSpec, ...]
    description: str = ""
    body: Body | None = None
    query: type[msgspec.Struct] | None = None
    headers: tuple[str, ...] = ()
    errors: tuple[type[ThreadlineError] | Fault, ...] = ()
    path: Mapping[str, str] = {}
    """Path values for the examples, where those of `document.PATH` do not fit."""


_declared: dict[Callable[..., Any], Operation] = {}


def operation(
    id: str,
    summary: str,
    *responses: ResponseSpec,
    tag: Tag,
    description: str = "",
    body: Body | None = None,
    query: type[msgspec.Struct] | None = None,
    headers: tuple[str, ...] = (),
    errors: tuple[type[ThreadlineError] | Fault, ...] = (),
    path: Mapping[str, str] | None = None,
) -> Callable[[Handler], Handler]:
    """Declares the handler below it. `headers` are names of `document.HEADERS`."""
    declared = Operation(id, summary, tag, responses, description, body, query, headers, errors, path or {})

    def declare(handler: Handler) -> Handler:
        _declared[handler] = declared
        return handler

    return declare


def operation_of(endpoint: Callable[..., Any]) -> Operation:
    """The declaration of a handler, which may be a bound method. KeyError if it has none."""
    return _declared[getattr(endpoint, "__func__", endpoint)]
