"""Builds an agent from its configuration row. The provider's name selects the adapter, which validates the settings.

Adapters are imported when they are selected, so that unused clients cost no start-up time and a missing extra is
reported by name. Agents that a tenant configured are not trusted: they may not use the operator's environment
variables, servers on the operator's network, or Python code.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from threadline.agents.framework_objects import is_framework_object
from threadline.agents.limits import RunLimits
from threadline.agents.loop import LoopAgent
from threadline.agents.mcp.servers import McpServers
from threadline.agents.tool_loader import load_object, load_tools
from threadline.agents.tools import Tool, ToolSource
from threadline.core.channels import Agent as AgentRow
from threadline.core.client_tools import ClientTool, check_client_tools
from threadline.core.config_errors import explain
from threadline.core.errors import InvalidInput, SettingsInvalid, quote
from threadline.ports import Agent

if TYPE_CHECKING:
    from threadline.net.retry import Retrier

S = TypeVar("S", bound=msgspec.Struct)


class _AnySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`models` may be chosen by a request or a thread, beside the agent's own model; without it, any model may be."""

    models: tuple[str, ...] = ()


class _ToolSettings(_AnySettings, frozen=True, forbid_unknown_fields=True):
    """`tools` name Python functions that the model may call, as `module:name`; `mcp` names MCP servers of the settings;
    `client_tools` are offered to the model and run by the client."""

    tools: tuple[str, ...] = ()
    mcp: tuple[str, ...] = ()
    client_tools: tuple[ClientTool, ...] = ()


class _RehearsalSettings(_ToolSettings, frozen=True, forbid_unknown_fields=True):
    pace: float = 0.0


class _ModelSettings(_ToolSettings, frozen=True, forbid_unknown_fields=True):
    """`api_key_env` names the environment variable with the key; `options` are added to each request unchanged."""

    api_key: str | None = None
    api_key_env: str | None = None
    base_url: str | None = None
    silence_seconds: float = 120.0
    attempts: int = 4
    options: dict[str, Any] = {}
    limits: RunLimits = RunLimits()


class _OpenAISettings(_ModelSettings, frozen=True, forbid_unknown_fields=True):
    with_usage: bool = True
    alternating: bool = False


class _AnthropicSettings(_ModelSettings, frozen=True, forbid_unknown_fields=True):
    max_tokens: int = 8_192


class _RemoteSettings(_AnySettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    url: str
    token: str | None = None
    token_env: str | None = None
    silence_seconds: float = 120.0
    attempts: int = 4
    limits: RunLimits = RunLimits()


class _LocalSettings(_ToolSettings, frozen=True, forbid_unknown_fields=True):
    model_path: str | None = None
    context_tokens: int = 2_048
    options: dict[str, Any] = {}
    limits: RunLimits = RunLimits()


class _FunctionSettings(_AnySettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    function: str
    tools: tuple[str, ...] = ()
    mcp: tuple[str, ...] = ()


class Inputs(NamedTuple):
    """What an agent gets beside its row: tools of the process, the MCP servers, and whether it is the operator's."""

    tools: tuple[Tool, ...]
    servers: McpServers
    trusted: bool


def build_agent(
    row: AgentRow, *, tools: Sequence[Tool] = (), servers: McpServers | None = None, trusted: bool = True
) -> Agent:
    """SettingsInvalid if the row is not valid, ExtraMissing if the provider's package is not installed. `tools` are
    for providers that run no tools themselves, beside those that the row names. `servers` are the MCP servers that it
    may name; those that it names are started. `trusted` is False for agents that a tenant configured."""
    make = _PROVIDERS.get(row.provider)
    if make is None:
        known = ", ".join(sorted(_PROVIDERS))
        near = difflib.get_close_matches(row.provider, _PROVIDERS, n=1)
        hint = f", did you mean {near[0]!r}?" if near else ""
        raise SettingsInvalid(f"agent {row.id!r}: `provider` must be one of {known}, got {quote(row.provider)}{hint}")
    return make(row, Inputs(tuple(tools), servers or McpServers({}), trusted))


def _rehearsal(row: AgentRow, given: Inputs) -> Agent:
    from threadline.agents.rehearsal import OWN_TOOLS, RehearsalAgent  # noqa: PLC0415 - chosen at run time

    chosen = _settings(row, _RehearsalSettings)
    return RehearsalAgent(
        pace=chosen.pace, tools=_all_tools(row, given, chosen, OWN_TOOLS), sources=_sources(row, given, chosen)
    )


def _openai(row: AgentRow, given: Inputs) -> Agent:
    from threadline.agents.openai import OpenAIModel  # noqa: PLC0415 - an extra

    chosen = _settings(row, _OpenAISettings)
    common = _model_options(row, chosen, given.trusted)
    model = OpenAIModel(row.model, with_usage=chosen.with_usage, alternating=chosen.alternating, **common)
    return LoopAgent(model, _all_tools(row, given, chosen), limits=chosen.limits, sources=_sources(row, given, chosen))


def _anthropic(row: AgentRow, given: Inputs) -> Agent:
    from threadline.agents.anthropic import AnthropicModel  # noqa: PLC0415 - an extra

    chosen = _settings(row, _AnthropicSettings)
    model = AnthropicModel(row.model, max_tokens=chosen.max_tokens, **_model_options(row, chosen, given.trusted))
    return LoopAgent(model, _all_tools(row, given, chosen), limits=chosen.limits, sources=_sources(row, given, chosen))


def _remote(row: AgentRow, given: Inputs) -> Agent:
    from threadline.agents.remote import RemoteAgent  # noqa: PLC0415 - an extra

    if key := next((key for key in ("tools", "mcp") if row.settings.get(key)), None):
        raise SettingsInvalid(f"agent {row.id!r}: an agent behind HTTP runs its own tools: remove `{key}`")
    chosen = _settings(row, _RemoteSettings)
    return RemoteAgent(
        chosen.url,
        token=_secret(row, chosen.token, chosen.token_env, given.trusted),
        silence_seconds=chosen.silence_seconds,
        public_only=not given.trusted,
        limits=chosen.limits,
        retrier=_retrier(chosen.attempts),
    )


def _local(row: AgentRow, given: Inputs) -> Agent:
    from threadline.agents.local import LocalModel  # noqa: PLC0415 - an extra

    _require_trust(row, given.trusted, "a local model")
    chosen = _settings(row, _LocalSettings)
    model = LocalModel(chosen.model_path, context_tokens=chosen.context_tokens, options=chosen.options)
    return LoopAgent(model, _all_tools(row, given, chosen), limits=chosen.limits, sources=_sources(row, given, chosen))


def _function(row: AgentRow, given: Inputs) -> Agent:
    from threadline.agents.function import FunctionAgent, as_agent  # noqa: PLC0415 - chosen at run time

    _require_trust(row, given.trusted, "a function")
    chosen = _settings(row, _FunctionSettings)
    where = f"agent {row.id!r}: `function` {quote(chosen.function)}"
    found = load_object(where, chosen.function)
    if isinstance(found, LoopAgent):
        taken = [*found.tool_names, *_names(given.tools)]
        return found.with_tools((*given.tools, *load_tools(row.id, chosen.tools, taken)), _sources(row, given, chosen))
    tools = load_tools(row.id, chosen.tools, _names(given.tools))
    if (tools or chosen.mcp) and (is_framework_object(found) or hasattr(found, "run")):
        raise SettingsInvalid(f"{where} is an agent with its own tools: remove `tools` and `mcp`")
    try:
        if tools or chosen.mcp:
            return FunctionAgent(found, tools=(*given.tools, *tools), sources=_sources(row, given, chosen))
        return as_agent(found)
    except InvalidInput as exc:
        raise SettingsInvalid(f"{where}: {exc}") from exc


_PROVIDERS: dict[str, Callable[[AgentRow, Inputs], Agent]] = {
    "rehearsal": _rehearsal,
    "openai": _openai,
    "anthropic": _anthropic,
    "remote": _remote,
    "local": _local,
    "function": _function,
}


def _settings(row: AgentRow, kind: type[S]) -> S:
    try:
        return msgspec.convert(row.settings, kind, strict=False)
    except msgspec.ValidationError as exc:
        rejection = explain(exc, row.settings, kind)
        raise SettingsInvalid(f"agent {row.id!r}: {rejection.describe()}") from exc


def _sources(row: AgentRow, given: Inputs, chosen: _ToolSettings | _FunctionSettings) -> tuple[ToolSource, ...]:
    if not chosen.mcp:
        return ()
    _require_trust(row, given.trusted, "`mcp`, as it names programs and keys of the operator's,")
    try:
        return (given.servers.source(chosen.mcp),)
    except SettingsInvalid as exc:
        raise SettingsInvalid(f"agent {row.id!r}: `mcp`: {exc}") from exc


def _all_tools(row: AgentRow, given: Inputs, chosen: _ToolSettings, own: Sequence[str] = ()) -> tuple[Tool, ...]:
    """The given tools, those that the row names, and its client tools. `own` are names that the provider uses."""
    if chosen.tools:
        _require_trust(row, given.trusted, "Python code as in `tools`")
    tools = (*given.tools, *load_tools(row.id, chosen.tools, [*own, *_names(given.tools)]))
    try:
        declared = check_client_tools(chosen.client_tools)
    except InvalidInput as exc:
        raise SettingsInvalid(f"agent {row.id!r}: `client_tools`: {exc}") from exc
    if taken := next((each.name for each in declared if each.name in (*own, *_names(tools))), None):
        raise SettingsInvalid(f"agent {row.id!r}: `client_tools`: the agent has a tool {quote(taken)} already")
    return (*tools, *map(Tool.from_declared, declared))


def _names(tools: Sequence[Tool]) -> list[str]:
    return [tool.name for tool in tools]


def _model_options(row: AgentRow, chosen: _ModelSettings, trusted: bool) -> dict[str, Any]:
    # A tenant must not make this server send requests to the operator's network.
    if chosen.base_url is not None:
        _require_trust(row, trusted, "base_url")
        _check_address(row, chosen.base_url)
    key = _secret(row, chosen.api_key, chosen.api_key_env, trusted)
    # Without a key the adapter would use the operator's from the environment.
    if key is None and not trusted:
        raise SettingsInvalid(f"agent {row.id!r}: `api_key` is missing: add it with --set api_key=KEY")
    return {
        "api_key": key,
        "base_url": chosen.base_url,
        "silence_seconds": chosen.silence_seconds,
        "options": chosen.options,
        "retrier": _retrier(chosen.attempts),
    }


def _check_address(row: AgentRow, base_url: str) -> None:
    from threadline.net.addresses import parse_url  # noqa: PLC0415 - only for agents with an address

    try:
        parse_url(base_url)
    except SettingsInvalid as exc:
        raise SettingsInvalid(f"agent {row.id!r}: `base_url`: {exc}") from exc


def _retrier(attempts: int) -> Retrier:
    from threadline.net.retry import Retrier, RetryPolicy  # noqa: PLC0415 - chosen at run time

    return Retrier(RetryPolicy(attempts=attempts))


def _secret(row: AgentRow, value: str | None, variable: str | None, trusted: bool) -> str | None:
    if variable is None:
        return value
    _require_trust(row, trusted, "an environment variable")
    found = os.environ.get(variable)
    if not found:
        raise SettingsInvalid(f"agent {row.id!r}: environment variable {variable} is not set")
    return found


def _require_trust(row: AgentRow, trusted: bool, what: str) -> None:
    if not trusted:
        raise SettingsInvalid(f"agent {row.id!r}: {what} is reserved for the operator: configure it in threadline.toml")
