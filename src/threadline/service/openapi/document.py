"""The OpenAPI 3.1 document, generated from the app's routes and what their handlers declare with `@operation`.

A new path value or header gets a line in `PATH` or `HEADERS`. Errors that every operation of a kind may return are
added here, so that a declaration names only its own.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
from starlette.routing import BaseRoute, Route

from threadline.api_types import ApiStruct, Id, Name, StateKey
from threadline.core import errors
from threadline.service.auth.impersonation import ON_BEHALF_OF, SURFACE, BotSurface
from threadline.service.auth.permissions import PERMISSIONS
from threadline.service.auth.session_cookies import SESSION_COOKIE
from threadline.service.http.problems import OPENAI_PATH, STATUSES, TITLES
from threadline.service.openapi.operation import Body, Fault, Link, Major, Operation, ResponseSpec, operation_of
from threadline.version import __version__

# HEAD is left out: every GET route answers it.
_METHODS = ("get", "post", "put", "patch", "delete")
_WITH_BODY = frozenset(("post", "put", "patch"))
_PROBLEM = "application/problem+json"
_REFERENCE = "#/components/schemas/{name}"
_PATH_VALUE = re.compile(r"\{(\w+)(?::\w+)?\}")


class Value(NamedTuple):
    """A path value or a header."""

    type: Any
    example: str
    description: str


PATH = {
    "state_key": Value(Id, "lisbon", "The thread's key or id."),
    "message_id": Value(Id, "01jcq8mm", "The message's id."),
    "turn_id": Value(Id, "01jcq8tt", "The turn's id."),
    "response_id": Value(Id, "resp_01jcq8tt", "The response's id: `resp_` and the turn's id."),
    "conversation_id": Value(Id, "conv_01jcq8cv", "The conversation's id: `conv_` and the thread's id or key."),
    "item_id": Value(Id, "msg_01jcq8it_0", "The item's id."),
    "agent_id": Value(Id, "rehearsal", "The agent's id."),
    "token_id": Value(Id, "01jcq8tz", "The token's id."),
    "sign_in_id": Value(Id, "01jcq8ss", "The sign-in's id."),
    "hold_id": Value(Id, "01jcq8hh", "The hold's id."),
    "user_id": Value(str, "grace", "The user's id. It may contain slashes."),
    "tenant": Value(str, "local", "The tenant's id."),
    "platform": Value(str, "slack", "slack, telegram or whatsapp."),
    "outbox_id": Value(Id, "01jcq8zx-0", "The delivery's id."),
    "name": Value(Name, "before the trip", "The saved point's name. It may contain slashes."),
}
HEADERS = {
    "Idempotency-Key": Value(Id, "01jcq8", "A request repeated with the same key and body is carried out once."),
    "X-State-Key": Value(StateKey, "lisbon", "The thread's key, if it is not in the body. Responses contain it too."),
    "X-AI-SDK": Value(
        Major, "6", "Major version of the AI SDK. 5 gets no approval requests, 6 and 7 get finish reasons."
    ),
    "X-Stream-Format": Value(Literal["events"], "events", "Send Threadline's own events instead of AI SDK chunks."),
    "Last-Event-ID": Value(str, "01jcq8zx:3", "The id of the last event that was received: only later ones are sent."),
    ON_BEHALF_OF: Value(str, "ada", "The user to act for, percent-encoded. Only for tokens that act for users."),
    SURFACE: Value(BotSurface, "matrix", f"With {ON_BEHALF_OF}: the surface the user writes on."),
}

TAGS = {
    "chat": "Turns, in the AI SDK's protocol.",
    "openai": "OpenAI's API: responses, chat completions and models, for OpenAI's clients.",
    "mcp": "The service as an MCP server, for MCP clients.",
    "threads": "List, search, read, change, branch, undo, export and import threads.",
    "saves": "Named points of threads.",
    "agents": "Agents, the context that a user pinned for one, and messages without a thread.",
    "channels": "Messaging platforms: webhooks, links, deliveries, credentials.",
    "users": "Users of the tenant, their roles, access and sign-ins, and who the caller is.",
    "administration": "Tokens and the audit log.",
    "operations": "Health, metrics and documentation.",
}

_INTRODUCTION = """Threadline stores conversations between people and AI agents.

Bodies must be JSON in UTF-8. Duplicate keys, lone surrogates and numbers outside the range of a double are refused, and
so are unknown keys of a query or a body, except in what AI SDK clients send. Errors are `application/problem+json` with
a stable `code`. Objects that do not exist and objects of other users get the same 404.

Each GET route answers HEAD too. Responses must not be cached."""

_EVERYWHERE: tuple[type[errors.ThreadlineError] | Fault, ...] = (
    errors.InvalidInput,
    Fault(408, "request_timeout"),
    Fault(414, "url_too_long"),
    Fault(421, "host_refused"),
    Fault(429, "rate_limited"),
    Fault(429, "too_many_connections"),
    Fault(431, "head_too_large"),
    Fault(431, "too_many_headers"),
    Fault(503, "overloaded"),
    Fault(500, "internal"),
    *(error for error, status in STATUSES.items() if issubclass(error, errors.StoreFailed) and status != 507),
)
# Characters are checked in every text of a request, wherever it is: in its path, its query or its body.
_WITH_TEXT = (errors.InvalidText,)
_WRITES = (Fault(403, "origin_refused"),)
_WITH_BODY_ERRORS = (
    Fault(413, "body_too_large"),
    Fault(415, "unsupported_media_type"),
    Fault(415, "unsupported_encoding"),
    errors.InvalidJson,
    errors.LimitExceeded,
    errors.StoreFull,
)
_AUTHENTICATED = (
    Fault(401, "unauthenticated"),
    Fault(401, "session_ended"),
    errors.TokenRefused,
    errors.ImpersonationRefused,
    Fault(431, "header_too_large"),
)
_ROLE_CHECKED = (errors.RoleRefused,)


class Problem(ApiStruct, frozen=True):
    """An error: `code` for programs, `detail` for people. Some codes come with more keys."""

    title: str
    status: int
    code: str
    detail: str
    current_count: int | None = None
    current_version: int | None = None
    turn_id: str | None = None
    state_key: str | None = None
    limit: str | None = None
    allowed: int | None = None
    line: int | None = None
    correlation_id: str | None = None


class OpenAIFault(msgspec.Struct, frozen=True):
    message: str
    type: str
    param: str | None
    code: str


class OpenAIError(msgspec.Struct, frozen=True):
    """An error of the routes under `/v1`, as OpenAI's clients expect it."""

    error: OpenAIFault


def build_document(routes: Sequence[BaseRoute], *, server: str = "/", is_authenticated: bool = False) -> dict[str, Any]:
    """`is_authenticated` means that callers need a token, and that some tokens may act for other users."""
    found = list(declared_operations(routes))
    schemas = _Schemas(operation for _, _, operation in found)
    paths: dict[str, dict[str, Any]] = defaultdict(dict)
    for template, method, operation in found:
        on_behalf = is_authenticated and PERMISSIONS[operation.id].on_behalf
        headers = (ON_BEHALF_OF, SURFACE) if on_behalf else ()
        declared = msgspec.structs.replace(operation, headers=(*operation.headers, *headers))
        paths[public_path(template)][method] = _operation(template, method, declared, schemas)
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
                    "description": "An API token or a JWT. A service without authentication is on loopback only.",
                },
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": SESSION_COOKIE,
                    "description": "The session of a person who signed in. Only for the service's own page.",
                },
            },
        },
        "security": [{"bearer": []}, {"session": []}] if is_authenticated else [{}, {"bearer": []}],
    }


def declared_operations(routes: Sequence[BaseRoute]) -> Iterator[tuple[str, str, Operation]]:
    """Path template, method and declaration of each route. Mounts are static files, not part of the API."""
    for route in routes:
        if isinstance(route, Route):
            for method in _METHODS:
                if method.upper() in (route.methods or {"GET"}):
                    yield route.path, method, operation_of(route.endpoint)


def public_path(template: str) -> str:
    """A route's path in camelCase: `/{state_key}` becomes `/{stateKey}`."""
    return _PATH_VALUE.sub(lambda found: f"{{{camel(found[1])}}}", template)


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.title, rest))


class _Schemas:
    """The schemas of every type that the operations use, generated in one pass so that they share components."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        types = [Problem, OpenAIError, *(value.type for value in (*PATH.values(), *HEADERS.values()))]
        for each in operations:
            types += [] if each.body is None else _alternatives(each.body.type)
            types += [] if each.query is None else [each.query]
            for response in each.responses:
                types += _alternatives(response.type)
        schemas, self.components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
        self._by_type = dict(zip(map(repr, types), schemas, strict=True))
        for name in {each.__name__ for each in _subclasses(ApiStruct)} & self.components.keys():
            _remove_nulls(self.components[name])

    def of(self, type_: Any) -> dict[str, Any]:
        found = [self._by_type[repr(each)] for each in _alternatives(type_)]
        return found[0] if len(found) == 1 else {"anyOf": found}

    def fields(self, struct: type[msgspec.Struct]) -> Iterator[tuple[str, dict[str, Any], bool]]:
        """Name, schema and whether it is required, of each field."""
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


def _remove_nulls(schema: dict[str, Any]) -> None:
    """Responses leave out keys without a value, so their schemas do not allow null."""
    for name, field in schema.get("properties", {}).items():
        if "default" in field and field["default"] is None:
            [type_] = [each for each in field.get("anyOf", [{}]) if each.get("type") != "null"]
            rest = {key: value for key, value in field.items() if key not in ("default", "anyOf")}
            schema["properties"][name] = {**rest, **type_}


def _operation(template: str, method: str, operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": list(_parameters(template, operation, schemas)),
        "responses": {
            **{str(each.status): _response(each, schemas) for each in operation.responses},
            **_problems(template, method, operation),
        },
    }
    if operation.description:
        described["description"] = operation.description
    if operation.body is not None:
        described["requestBody"] = _body(operation.body, schemas)
    role = PERMISSIONS[operation.id].role
    if role is None:
        described["security"] = []
    else:
        described["x-needs-role"] = role
    return described


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
            yield {"name": name, "in": "query", "required": required, "schema": _without_null(schema)}
    for name in operation.headers:
        value = HEADERS[name]
        schema = schemas.of(value.type)
        yield {"name": name, "in": "header", "required": False, "description": value.description, "schema": schema}


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A query has no null: a parameter is given or absent."""
    holder = {"properties": {"it": schema}}
    _remove_nulls(holder)
    return holder["properties"]["it"]


def _body(body: Body, schemas: _Schemas) -> dict[str, Any]:
    examples = {name: {"value": value} for name, value in body.examples.items()}
    content: dict[str, Any] = {"schema": schemas.of(body.type)}
    if examples:
        content["examples"] = examples
    return {"required": body.required, "content": dict.fromkeys(body.media_types, content)}


def _response(response: ResponseSpec, schemas: _Schemas) -> dict[str, Any]:
    described: dict[str, Any] = {"description": response.description}
    if response.type is not None:
        types = response.type
        if not isinstance(types, dict):
            types = dict.fromkeys(response.media_types, response.type)
        described["content"] = {media: {"schema": schemas.of(type_)} for media, type_ in types.items()}
    if response.headers:
        described["headers"] = {
            name: {"description": HEADERS[name].description, "schema": schemas.of(HEADERS[name].type)}
            for name in response.headers
        }
    if response.links:
        described["links"] = {link.operation_id: _link(link) for link in response.links}
    return described


def _link(link: Link) -> dict[str, Any]:
    described: dict[str, Any] = {"operationId": link.operation_id, "parameters": dict(link.parameters)}
    return described if link.body is None else {**described, "requestBody": dict(link.body)}


def _problems(template: str, method: str, operation: Operation) -> dict[str, Any]:
    codes: dict[int, set[str]] = defaultdict(set)
    for error in (*_shared(template, method, operation), *operation.errors):
        fault = error if isinstance(error, Fault) else Fault(STATUSES[error], error.code)
        codes[fault.status].add(fault.code)
    describe = _openai_error if template.startswith(OPENAI_PATH) else _problem
    return {str(status): describe(status, sorted(codes[status])) for status in sorted(codes)}


def _shared(template: str, method: str, operation: Operation) -> Iterator[type[errors.ThreadlineError] | Fault]:
    yield from _EVERYWHERE
    if method in _WITH_BODY or operation.query is not None or _PATH_VALUE.search(template):
        yield from _WITH_TEXT
    if method != "get":
        yield from _WRITES
    if method in _WITH_BODY:
        yield from _WITH_BODY_ERRORS
    role = PERMISSIONS[operation.id].role
    if role is not None:
        yield from _AUTHENTICATED
    if role not in (None, "viewer"):
        yield from _ROLE_CHECKED


def _openai_error(status: int, codes: list[str]) -> dict[str, Any]:
    schema = {"$ref": _REFERENCE.format(name="OpenAIError")}
    return {
        "description": f"{TITLES[status]}: {', '.join(codes)}.",
        "content": {"application/json": {"schema": schema}},
    }


def _problem(status: int, codes: list[str]) -> dict[str, Any]:
    schema: Mapping[str, Any] = {"$ref": _REFERENCE.format(name="Problem"), "properties": {"code": {"enum": codes}}}
    return {"description": f"{TITLES[status]}: {', '.join(codes)}.", "content": {_PROBLEM: {"schema": schema}}}
