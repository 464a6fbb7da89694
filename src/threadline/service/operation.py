"""What an operation takes and answers, declared beside its handler. The OpenAPI document is made from nothing else.

A handler that a route leads to carries `@operation("readThread", "Read a thread.", …)`. Its types are the structs that
the handler reads and writes with, so the document cannot say something else than the code does. What every operation
shares (errors of the gates, of the store, of signing in) is added by the document itself: see `openapi`. A test fails
for a route without a declaration, and runs each declared example.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from threadline.core.errors import ThreadlineError
from threadline.core.threads import UserRole

Handler = TypeVar("Handler", bound=Callable[..., Any])
Tag: TypeAlias = Literal["chat", "threads", "saves", "agents", "channels", "administration", "operations"]

Major: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": "^([5-9]|[1-9][0-9])$"})]


class Fault(NamedTuple):
    """An error that the service itself answers with, before the house has looked."""

    status: int
    code: str


class Body(msgspec.Struct, frozen=True):
    """What comes in. `examples` are sent by a test, each with the declared path values, and must be taken."""

    type: Any
    examples: Mapping[str, Any] = {}
    media_types: tuple[str, ...] = ("application/json",)
    required: bool = True


class ResponseSpec(msgspec.Struct, frozen=True):
    """What goes out. `type` is a struct, several of them if it may be either, a table of them by media
    type, or None for no body. Of a stream of events it is one event."""

    status: int
    description: str
    type: Any = None
    media_types: tuple[str, ...] = ("application/json",)
    headers: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()


class Link(NamedTuple):
    """From an answer to an operation that goes on with it: `parameters` are runtime expressions of OpenAPI."""

    operation_id: str
    parameters: Mapping[str, str] = {}
    body: Mapping[str, str] | None = None


class Operation(msgspec.Struct, frozen=True):
    id: str
    summary: str
    tag: Tag
    answers: tuple[ResponseSpec, ...]
    description: str = ""
    body: Body | None = None
    query: type[msgspec.Struct] | None = None
    headers: tuple[str, ...] = ()
    errors: tuple[type[ThreadlineError] | Fault, ...] = ()
    needs: UserRole | None = "viewer"
    """The role; None for what anyone may ask."""
    for_others: bool = False
    """Whether a token may do it on behalf of a user, beside what every user does with their own threads."""
    for_bots: bool = False
    """Whether a token that acts for users may do it on its own account, beside those whose role allows it."""
    path: Mapping[str, str] = {}
    """Values of the path for the examples, where those of `openapi.PATH` will not do."""


_declared: dict[Callable[..., Any], Operation] = {}


def operation(
    id: str,
    summary: str,
    *answers: ResponseSpec,
    tag: Tag,
    description: str = "",
    body: Body | None = None,
    query: type[msgspec.Struct] | None = None,
    headers: tuple[str, ...] = (),
    errors: tuple[type[ThreadlineError] | Fault, ...] = (),
    needs: UserRole | None = "viewer",
    for_others: bool = False,
    for_bots: bool = False,
    path: Mapping[str, str] | None = None,
) -> Callable[[Handler], Handler]:
    """Declares the handler below it. `headers` are names of `openapi.HEADERS`."""
    described = Operation(
        id, summary, tag, answers, description, body, query, headers, errors, needs, for_others, for_bots, path or {}
    )

    def declare(handler: Handler) -> Handler:
        _declared[handler] = described
        return handler

    return declare


def operation_of(endpoint: Callable[..., Any]) -> Operation | None:
    return _declared.get(getattr(endpoint, "__func__", endpoint))
