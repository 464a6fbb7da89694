"""The OpenAPI 3.1 document: the app's own routes, and what their handlers declare with `describing.operation`.

A route is added with its declaration and nothing else; a path value or header that is new here gets a line in `PATH` or
`HEADERS`. Errors that any operation of a kind may answer are added here, so that a declaration names only its own.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from starlette.routing import BaseRoute, Route

from threadline.api_types import ApiStruct, Id, Name, StateKey
from threadline.core import errors
from threadline.service.auth.impersonation import ON_BEHALF_OF, SURFACE, ActedFrom, is_for_others
from threadline.service.operation import Body, Fault, Link, Major, Operation, ResponseSpec, operation_of
from threadline.service.problems import STATUSES, TITLES
from threadline.version import __version__

_METHODS = ("get", "post", "put", "patch", "delete")
_WITH_BODY = frozenset(("post", "put", "patch"))
_PROBLEM = "application/problem+json"
_REFERENCE = "#/components/schemas/{name}"
_PATH_VALUE = re.compile(r"\{(\w+)(?::\w+)?\}")


class Value(NamedTuple):
    """A value that comes in a path or a header."""

    type: Any
    example: str
    description: str


PATH = {
    "state_key": Value(StateKey, "lisbon", "The thread's key."),
    "agent_id": Value(Id, "rehearsal", "The agent's id."),
    "token_id": Value(Id, "01jcq8tz", "The token's id, as the list shows it."),
    "tenant": Value(str, "local", "The tenant's id."),
    "platform": Value(str, "slack", "slack, telegram or whatsapp."),
    "outbox_id": Value(Id, "01jcq8zx-0", "The delivery's id."),
    "name": Value(Name, "before the trip", "The saved point's name; a slash may stand in it."),
}
HEADERS = {
    "Idempotency-Key": Value(Id, "01jcq8", "What comes again with the same key and the same body is done once."),
    "X-State-Key": Value(StateKey, "lisbon", "The thread's key, if the body does not name it; answers carry it."),
    "X-AI-SDK": Value(Major, "6", "The AI SDK's major version, 6 if not given. 5 is told nothing of approvals."),
    "Last-Event-ID": Value(str, "01jcq8zx:3", "The last event that was seen: only later ones are sent."),
    ON_BEHALF_OF: Value(str, "ada", "The user for whom it is done, percent-encoded; for tokens that act for users."),
    SURFACE: Value(ActedFrom, "matrix", f"With {ON_BEHALF_OF}: from where the user asks."),
}

TAGS = {
    "chat": "Turns, as the AI SDK has them.",
    "threads": "Threads: list, search, read, change, branch, go back, let out and in.",
    "saves": "Points of threads that a user gave a name.",
    "agents": "Agents, the context a user pinned for one, and messages without a thread.",
    "channels": "Messaging platforms: links, deliveries, credentials.",
    "administration": "What administrators do.",
    "operations": "Is it alive, is it ready, what is it doing.",
}

_INTRODUCTION = """Threadline keeps the conversations between people and AI agents, on the server.

Bodies are strict JSON in UTF-8: a key given twice, half a character or a number that no double holds is refused. An
unknown key of a query or of a body is refused as well, except in what AI SDK clients send. Errors are
`application/problem+json` with a stable `code`. What is unknown and what is someone else's get the same 404.

Each GET answers HEAD as well. No answer may be stored by a cache."""

_EVERYWHERE: tuple[type[errors.ThreadlineError] | Fault, ...] = (
    errors.InvalidInput,
    Fault(421, "host_refused"),
    Fault(429, "rate_limited"),
    Fault(500, "internal"),
    *(error for error, status in STATUSES.items() if issubclass(error, errors.StoreFailed) and status != 507),
)
_WRITING = (Fault(403, "origin_refused"),)
_TAKING_A_BODY = (
    Fault(413, "body_too_large"),
    Fault(415, "unsupported_media_type"),
    Fault(415, "unsupported_encoding"),
    errors.InvalidJson,
    errors.LimitExceeded,
    errors.StoreFull,
)
_SIGNED_IN = (
    Fault(401, "unauthenticated"),
    errors.TokenRefused,
    errors.ImpersonationRefused,
    Fault(431, "header_too_large"),
)
_BY_ROLE = (errors.RoleRefused,)


class Problem(ApiStruct, frozen=True):
    """What went wrong: `code` for programs, `detail` for people. Some codes bring more keys."""

    title: str
    status: int
    code: str
    detail: str
    current_count: int | None = None
    turn_id: str | None = None
    state_key: str | None = None
    limit: str | None = None
    allowed: int | None = None
    line: int | None = None
    correlation_id: str | None = None


def document(routes: Sequence[BaseRoute], *, server: str = "/", signed_in: bool = False) -> dict[str, Any]:
    """`signed_in` says that every caller has to prove who they are, and that some may act for others."""
    found = list(described(routes))
    schemas = _Schemas(operation for _, _, operation in found)
    paths: dict[str, dict[str, Any]] = defaultdict(dict)
    for template, method, operation in found:
        acting = (ON_BEHALF_OF, SURFACE) if signed_in and is_for_others(operation) else ()
        declared = msgspec.structs.replace(operation, headers=(*operation.headers, *acting))
        paths[spelt(template)][method] = _operation(template, method, declared, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Threadline",
            "version": __version__,
            "description": _INTRODUCTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": server}],
        "tags": [{"name": name, "description": text} for name, text in TAGS.items()],
        "paths": dict(paths),
        "components": {
            "schemas": schemas.components,
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API token or a JWT. A service without authentication answers only on loopback.",
                }
            },
        },
        "security": [{"bearer": []}] if signed_in else [{}, {"bearer": []}],
    }


def described(routes: Sequence[BaseRoute]) -> Iterator[tuple[str, str, Operation]]:
    """Each route and method with its declaration; those without one are left out, and a test names them."""
    for route in routes:
        operation = operation_of(route.endpoint) if isinstance(route, Route) else None
        if isinstance(route, Route) and operation is not None:
            for method in _METHODS:
                if method.upper() in (route.methods or {"GET"}):
                    yield route.path, method, operation


def spelt(template: str) -> str:
    """A route's path as the API spells it: `/{state_key}` is `/{stateKey}`."""
    return _PATH_VALUE.sub(lambda found: f"{{{camel(found[1])}}}", template)


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.title, rest))


class _Schemas:
    """The schemas of every type that the operations name, made in one pass so that they share their parts."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        types = [Problem, *(value.type for value in (*PATH.values(), *HEADERS.values()))]
        for each in operations:
            types += [] if each.body is None else _alternatives(each.body.type)
            types += [] if each.query is None else [each.query]
            for answer in each.answers:
                types += _alternatives(answer.type)
        made, self.components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
        self._made = dict(zip(map(repr, types), made, strict=True))
        for name in {shown.__name__ for shown in _subclasses(ApiStruct)} & self.components.keys():
            _leave_out_nulls(self.components[name])

    def of(self, type_: Any) -> dict[str, Any]:
        found = [self._made[repr(each)] for each in _alternatives(type_)]
        return found[0] if len(found) == 1 else {"anyOf": found}

    def fields(self, struct: type[msgspec.Struct]) -> Iterator[tuple[str, dict[str, Any], bool]]:
        """A struct's fields by name, with their schema, and whether each has to be given."""
        schema = self.components[struct.__name__]
        for name, field in schema["properties"].items():
            yield name, field, name in schema.get("required", ())


def _alternatives(type_: Any) -> list[Any]:
    if type_ is None:
        return []
    if isinstance(type_, dict):
        return list(type_.values())
    return list(type_) if isinstance(type_, tuple) else [type_]


def _subclasses(cls: type) -> Iterator[type]:
    below: list[type] = cls.__subclasses__()
    for each in below:
        yield each
        yield from _subclasses(each)


def _leave_out_nulls(schema: dict[str, Any]) -> None:
    """What an answer has no value for is left out of it, never null."""
    for name, field in schema.get("properties", {}).items():
        if "default" in field and field["default"] is None:
            [kept] = [each for each in field.get("anyOf", [{}]) if each.get("type") != "null"]
            more = {key: value for key, value in field.items() if key not in ("default", "anyOf")}
            schema["properties"][name] = {**more, **kept}


def _operation(template: str, method: str, operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": list(_parameters(template, operation, schemas)),
        "responses": {
            **{str(answer.status): _answer(answer, schemas) for answer in operation.answers},
            **_problems(method, operation),
        },
    }
    if operation.description:
        made["description"] = operation.description
    if operation.body is not None:
        made["requestBody"] = _body(operation.body, schemas)
    if operation.needs is None:
        made["security"] = []
    else:
        made["x-needs-role"] = operation.needs
    return made


def _parameters(template: str, operation: Operation, schemas: _Schemas) -> Iterator[dict[str, Any]]:
    for name in _PATH_VALUE.findall(template):
        value = PATH[name]
        yield {
            "name": camel(name),
            "in": "path",
            "required": True,
            "description": value.description,
            "schema": schemas.of(value.type),
            "example": operation.path.get(name, value.example),
        }
    if operation.query is not None:
        for name, schema, required in schemas.fields(operation.query):
            yield {"name": name, "in": "query", "required": required, "schema": _never_null(schema)}
    for name in operation.headers:
        value = HEADERS[name]
        schema = schemas.of(value.type)
        yield {"name": name, "in": "header", "required": False, "description": value.description, "schema": schema}


def _never_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A query has no null: a parameter is given, or it is not."""
    holder = {"properties": {"it": schema}}
    _leave_out_nulls(holder)
    return holder["properties"]["it"]


def _body(body: Body, schemas: _Schemas) -> dict[str, Any]:
    examples = {name: {"value": value} for name, value in body.examples.items()}
    content: dict[str, Any] = {"schema": schemas.of(body.type)}
    if examples:
        content["examples"] = examples
    return {"required": body.required, "content": dict.fromkeys(body.media_types, content)}


def _answer(answer: ResponseSpec, schemas: _Schemas) -> dict[str, Any]:
    made: dict[str, Any] = {"description": answer.description}
    if answer.type is not None:
        types = answer.type if isinstance(answer.type, dict) else dict.fromkeys(answer.media_types, answer.type)
        made["content"] = {media: {"schema": schemas.of(type_)} for media, type_ in types.items()}
    if answer.headers:
        made["headers"] = {
            name: {"description": HEADERS[name].description, "schema": schemas.of(HEADERS[name].type)}
            for name in answer.headers
        }
    if answer.links:
        made["links"] = {link.operation_id: _link(link) for link in answer.links}
    return made


def _link(link: Link) -> dict[str, Any]:
    made: dict[str, Any] = {"operationId": link.operation_id, "parameters": dict(link.parameters)}
    return made if link.body is None else {**made, "requestBody": dict(link.body)}


def _problems(method: str, operation: Operation) -> dict[str, Any]:
    codes: dict[int, set[str]] = defaultdict(set)
    for error in (*_shared(method, operation), *operation.errors):
        fault = error if isinstance(error, Fault) else Fault(STATUSES[error], error.code)
        codes[fault.status].add(fault.code)
    return {str(status): _problem(status, sorted(codes[status])) for status in sorted(codes)}


def _shared(method: str, operation: Operation) -> Iterator[type[errors.ThreadlineError] | Fault]:
    yield from _EVERYWHERE
    if method != "get":
        yield from _WRITING
    if method in _WITH_BODY:
        yield from _TAKING_A_BODY
    if operation.needs is not None:
        yield from _SIGNED_IN
    if operation.needs not in (None, "viewer"):
        yield from _BY_ROLE


def _problem(status: int, codes: list[str]) -> dict[str, Any]:
    schema: Mapping[str, Any] = {"$ref": _REFERENCE.format(name="Problem"), "properties": {"code": {"enum": codes}}}
    return {"description": f"{TITLES[status]}: {', '.join(codes)}.", "content": {_PROBLEM: {"schema": schema}}}
