"""Tools: typed Python functions that a model may call.

The type hints become the JSON Schema that the model gets, and the same hints validate its arguments. The docstring is
the description; a parameter is described by `Annotated[int, "how many"]` or by an `Args:` section. A tool is not
repeatable unless declared so: after a crash it is not run a second time. `run` returns plain JSON or raises ToolFailed,
whatever the function does.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, Protocol, get_args, get_origin, overload

import msgspec

from threadline.agents.models import ToolSpec
from threadline.agents.tool_execution import ToolFailed, run_bounded, to_json_data
from threadline.core.client_tools import TOOL_NAME, ClientTool, check_client_tools
from threadline.core.errors import InvalidInput, quote

TIMEOUT_SECONDS = 60.0
OUTPUT_BYTES = 50_000

_PARAMETER_LINE = re.compile(r"(\w+)\s*(?:\([^)]*\))?:\s+(\S.*)")
_BYTOOL_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class _AnyInput(msgspec.Struct, frozen=True):
    """The input of a client tool, which checks it itself."""


def _run_elsewhere() -> None:
    raise ToolFailed("this tool is run by the client")


class Tool(msgspec.Struct, frozen=True):
    """A tool. `schema` describes an object with one property per parameter; `arguments` validates such an object. One
    that runs on the client is run by the caller, who sends its output: its function is never called. One of an MCP
    server gets its input as it is."""

    name: str
    description: str
    schema: dict[str, Any]
    function: Callable[..., Any]
    arguments: type[msgspec.Struct]
    repeatable: bool = False
    needs_approval: bool = False
    timeout: float = TIMEOUT_SECONDS
    output_bytes: int = OUTPUT_BYTES
    runs_on: Literal["server", "mcp", "client"] = "server"

    @classmethod
    def from_function(
        cls,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        repeatable: bool = False,
        needs_approval: bool = False,
        timeout: float = TIMEOUT_SECONDS,
        output_bytes: int = OUTPUT_BYTES,
    ) -> Tool:
        """InvalidInput if providers would reject the name, or if a parameter's type has no JSON Schema."""
        name = name or str(getattr(function, "__name__", ""))
        if not TOOL_NAME.fullmatch(name):
            raise InvalidInput(f"tool name must match {TOOL_NAME.pattern}, got {quote(name)}")
        if timeout <= 0:
            raise InvalidInput(f"`timeout` of tool {name} must be greater than 0, got {timeout}")
        if output_bytes <= 0:
            raise InvalidInput(f"`output_bytes` of tool {name} must be greater than 0, got {output_bytes}")
        about, described = _read_docstring(inspect.getdoc(function) or "")
        arguments = _arguments(name, function, described)
        return cls(
            name=name,
            description=description or about,
            schema=_schema(name, arguments),
            function=function,
            arguments=arguments,
            repeatable=repeatable,
            needs_approval=needs_approval,
            timeout=timeout,
            output_bytes=output_bytes,
        )

    @classmethod
    def on_client(cls, name: str, description: str = "", schema: dict[str, Any] | None = None) -> Tool:
        """A tool that the caller runs: see `pending` and `respond`. `schema` is the JSON Schema of an object. A model
        is offered it where a caller can run tools. InvalidInput, LimitExceeded."""
        declared = ClientTool(name, description) if schema is None else ClientTool(name, description, schema)
        check_client_tools((declared,))
        return cls.from_declared(declared)

    @classmethod
    def from_declared(cls, declared: ClientTool) -> Tool:
        return cls(declared.name, declared.description, declared.schema, _run_elsewhere, _AnyInput, runs_on="client")

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, self.schema)

    def check(self, given: Any) -> dict[str, Any]:
        """The keyword arguments for the function. ToolFailed, with the reason, if the model's input is not valid."""
        if not isinstance(given, dict):
            raise ToolFailed(f"arguments of {self.name} must be a JSON object, got {quote(given)}")
        if self.runs_on != "server":
            return given
        try:
            checked = msgspec.convert(given, self.arguments)
        except msgspec.ValidationError as exc:
            raise ToolFailed(f"arguments of {self.name} are not valid: {exc}") from exc
        except RecursionError:
            raise ToolFailed(f"arguments of {self.name} are nested too deeply") from None
        return {field: getattr(checked, field) for field in self.arguments.__struct_fields__}

    async def run(self, keywords: dict[str, Any], *, at_most: float | None = None) -> Any:
        """Calls the function within the tool's limits and converts its result to plain JSON."""
        seconds = self.timeout if at_most is None else min(self.timeout, at_most)
        value = await run_bounded(partial(self.function, **keywords), seconds)
        return to_json_data(value, self.output_bytes)


class Toolset(NamedTuple):
    """What a source offers for one turn. `warnings` tell the user what is missing, such as a server that is down."""

    tools: tuple[Tool, ...] = ()
    warnings: tuple[str, ...] = ()


class ToolSource(Protocol):
    """Tools that may change between turns."""

    async def offer(self) -> Toolset:
        """Asked once at the start of each turn. Bounded in time; never raises."""
        ...


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    repeatable: bool = False,
    needs_approval: bool = False,
    timeout: float = TIMEOUT_SECONDS,
    output_bytes: int = OUTPUT_BYTES,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Decorator: `@tool` or `@tool(repeatable=True, …)` makes a function a Tool."""
    if function is not None:
        return Tool.from_function(function)
    return lambda decorated: Tool.from_function(decorated, **options)


def _arguments(name: str, function: Callable[..., Any], described: dict[str, str]) -> type[msgspec.Struct]:
    try:
        parameters = inspect.signature(function, eval_str=True).parameters.values()
    except (TypeError, ValueError, NameError) as exc:
        raise InvalidInput(f"signature of tool {name} cannot be read: {exc}") from exc
    fields: list[Any] = []
    for parameter in parameters:
        if parameter.kind not in _BYTOOL_NAME:
            raise InvalidInput(f"parameters of tool {name} must have names, got {quote(parameter)}")
        hint = _hint(parameter, described.get(parameter.name))
        if parameter.default is inspect.Parameter.empty:
            fields.append((parameter.name, hint))
        else:
            fields.append((parameter.name, hint, _default(parameter.default)))
    return msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)


def _hint(parameter: inspect.Parameter, described: str | None) -> Any:
    hint = Any if parameter.annotation is inspect.Parameter.empty else parameter.annotation
    if get_origin(hint) is Annotated:
        bare, *notes = get_args(hint)
        words = [note for note in notes if isinstance(note, str)]
        described = words[0] if words else described
        for note in notes:
            if isinstance(note, msgspec.Meta):
                bare = Annotated[bare, note]
        hint = bare
    return Annotated[hint, msgspec.Meta(description=described)] if described else hint


def _default(value: Any) -> Any:
    # msgspec rejects a mutable default; the factory returns the same object, as Python does for a function.
    if isinstance(value, (list, dict, set, bytearray)):
        return msgspec.field(default_factory=lambda: value)
    return msgspec.field(default=value)


def _schema(name: str, arguments: type[msgspec.Struct]) -> dict[str, Any]:
    try:
        (top,), components = msgspec.json.schema_components([arguments], ref_template="#/$defs/{name}")
    except TypeError as exc:
        reason = str(exc).strip().splitlines()[-1]
        raise InvalidInput(f"parameter types of tool {name} must have a JSON Schema: {reason}") from exc
    schema = dict(components.pop(top["$ref"].removeprefix("#/$defs/")))
    del schema["title"]
    return {**schema, "$defs": components} if components else schema


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The description, and the descriptions of parameters from an `Args:` section."""
    about, _, rest = text.partition("\nArgs:\n")
    described: dict[str, str] = {}
    for line in rest.splitlines():
        if line and not line[0].isspace():
            break
        if found := _PARAMETER_LINE.match(line.strip()):
            described[found[1]] = found[2]
    return about.strip(), described
