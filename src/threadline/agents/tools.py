"""Tools: typed Python functions that a model may call.

The function's type hints become the JSON Schema that the model sees, and the same hints check what it sends, so a tool
body never meets a wrong type. Its docstring describes it; a description of one parameter comes from `Annotated[int,
"how many"]` or from an `Args:` section. A tool is unrepeatable unless it says otherwise: after a crash it is not run
a second time. Nothing a tool does escapes as an exception: `run` gives plain JSON or raises `ToolFailed`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, get_args, get_origin, overload

import msgspec

from threadline.agents.models import ToolSpec
from threadline.agents.outputs import ToolFailed, plain
from threadline.agents.tool_execution import run_bounded
from threadline.core.errors import InvalidInput

TIMEOUT_SECONDS = 60.0
OUTPUT_BYTES = 50_000

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)
_PARAMETER_LINE = re.compile(r"(\w+)\s*(?:\([^)]*\))?:\s+(\S.*)")
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Tool(msgspec.Struct, frozen=True):
    """One tool. `schema` describes an object with a property per parameter; `arguments` checks such an object."""

    name: str
    description: str
    schema: dict[str, Any]
    function: Callable[..., Any]
    arguments: type[msgspec.Struct]
    repeatable: bool = False
    needs_approval: bool = False
    timeout: float = TIMEOUT_SECONDS
    output_bytes: int = OUTPUT_BYTES

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
        """InvalidInput if the name does not suit the providers or a parameter cannot be described as JSON."""
        name = name or str(getattr(function, "__name__", ""))
        if not _NAME.fullmatch(name):
            raise InvalidInput(f"a tool's name is 1 to 64 of A-Z, a-z, 0-9, '_' and '-', not {name!r}")
        if timeout <= 0 or output_bytes <= 0:
            raise InvalidInput(f"tool {name}: timeout and output_bytes are greater than 0")
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

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, self.schema)

    def check(self, given: Any) -> dict[str, Any]:
        """The function's keyword arguments from what the model sent; ToolFailed says what is wrong with it."""
        if not isinstance(given, dict):
            raise ToolFailed(f"the arguments of {self.name} are not a JSON object: {str(given)[:200]!r}")
        try:
            checked = msgspec.convert(given, self.arguments)
        except msgspec.ValidationError as exc:
            raise ToolFailed(f"bad arguments for {self.name}: {exc}") from exc
        except RecursionError:
            raise ToolFailed(f"bad arguments for {self.name}: nested too deeply") from None
        return {field: getattr(checked, field) for field in self.arguments.__struct_fields__}

    async def run(self, keywords: dict[str, Any], *, at_most: float | None = None) -> Any:
        """Calls the function and makes plain JSON of what it returns, within the tool's limits."""
        seconds = self.timeout if at_most is None else min(self.timeout, at_most)
        value = await run_bounded(partial(self.function, **keywords), seconds)
        return plain(value, self.output_bytes)


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
    """`@tool` or `@tool(repeatable=True, …)` above a function makes it a Tool."""
    if function is not None:
        return Tool.from_function(function)
    return lambda decorated: Tool.from_function(decorated, **options)


def _arguments(name: str, function: Callable[..., Any], described: dict[str, str]) -> type[msgspec.Struct]:
    try:
        parameters = inspect.signature(function, eval_str=True).parameters.values()
    except (TypeError, ValueError, NameError) as exc:
        raise InvalidInput(f"tool {name}: its signature cannot be read: {exc}") from exc
    fields: list[Any] = []
    for parameter in parameters:
        if parameter.kind not in _BY_NAME:
            raise InvalidInput(f"tool {name}: {parameter} cannot be given by name; tools take named parameters only")
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
    if isinstance(value, (list, dict, set, bytearray)):
        return msgspec.field(default_factory=lambda: value)
    return msgspec.field(default=value)


def _schema(name: str, arguments: type[msgspec.Struct]) -> dict[str, Any]:
    try:
        (top,), components = msgspec.json.schema_components([arguments], ref_template="#/$defs/{name}")
    except TypeError as exc:
        reason = str(exc).strip().splitlines()[-1]
        raise InvalidInput(f"tool {name}: a parameter's type cannot be described as JSON: {reason}") from exc
    schema = dict(components.pop(top["$ref"].removeprefix("#/$defs/")))
    del schema["title"]
    return {**schema, "$defs": components} if components else schema


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The description, and what an `Args:` section says of each parameter."""
    about, _, rest = text.partition("\nArgs:\n")
    described: dict[str, str] = {}
    for line in rest.splitlines():
        if line and not line[0].isspace():
            break
        if found := _PARAMETER_LINE.match(line.strip()):
            described[found[1]] = found[2]
    return about.strip(), described
