"""From an agent's row to an agent: the provider's name chooses the adapter, the settings are checked against its own.

Adapters are imported when they are chosen, so nobody pays for a client that is not used, and a missing extra is named.
An agent that a tenant set up is not trusted with the house: it may not name the operator's variables, nor a server on
the operator's network, nor code.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from threadline.agents.limits import Limits
from threadline.agents.loop import LoopAgent
from threadline.agents.tools import Tool
from threadline.core.channels import Agent as AgentRow
from threadline.core.config_errors import explained
from threadline.core.errors import SettingsInvalid
from threadline.ports import Agent

if TYPE_CHECKING:
    from threadline.net.retry import Retrier

S = TypeVar("S", bound=msgspec.Struct)


class _RehearsalSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pace: float = 0.0


class _ModelSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`api_key_env` names the variable that holds the key; `options` go into each request as they are."""

    api_key: str | None = None
    api_key_env: str | None = None
    base_url: str | None = None
    silence_seconds: float = 120.0
    attempts: int = 4
    options: dict[str, Any] = {}
    limits: Limits = Limits()


class _OpenAISettings(_ModelSettings, frozen=True, forbid_unknown_fields=True):
    with_usage: bool = True
    alternating: bool = False


class _AnthropicSettings(_ModelSettings, frozen=True, forbid_unknown_fields=True):
    max_tokens: int = 8_192


class _RemoteSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    url: str
    token: str | None = None
    token_env: str | None = None
    silence_seconds: float = 120.0
    attempts: int = 4
    limits: Limits = Limits()


class _LocalSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model_path: str | None = None
    context_tokens: int = 2_048
    options: dict[str, Any] = {}
    limits: Limits = Limits()


class _FunctionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    function: str


def build_agent(row: AgentRow, *, tools: Sequence[Tool] = (), trusted: bool = True) -> Agent:
    """SettingsInvalid names what is wrong with the row; ExtraMissing what is not installed. `tools` are for the
    providers that have none of their own. `trusted` is for agents the operator set up: False for a tenant's."""
    make = _PROVIDERS.get(row.provider)
    if make is None:
        known = ", ".join(sorted(_PROVIDERS))
        raise SettingsInvalid(f"agent {row.id!r}: there is no provider {row.provider!r}; the providers are: {known}")
    return make(row, tuple(tools), trusted)


def _rehearsal(row: AgentRow, tools: tuple[Tool, ...], trusted: bool) -> Agent:
    from threadline.agents.rehearsal import RehearsalAgent  # noqa: PLC0415 - chosen at run time

    return RehearsalAgent(pace=_settings(row, _RehearsalSettings).pace)


def _openai(row: AgentRow, tools: tuple[Tool, ...], trusted: bool) -> Agent:
    from threadline.agents.openai import OpenAIModel  # noqa: PLC0415 - an extra

    chosen = _settings(row, _OpenAISettings)
    common = _model_options(row, chosen, trusted)
    model = OpenAIModel(row.model, with_usage=chosen.with_usage, alternating=chosen.alternating, **common)
    return LoopAgent(model, tools, limits=chosen.limits)


def _anthropic(row: AgentRow, tools: tuple[Tool, ...], trusted: bool) -> Agent:
    from threadline.agents.anthropic import AnthropicModel  # noqa: PLC0415 - an extra

    chosen = _settings(row, _AnthropicSettings)
    model = AnthropicModel(row.model, max_tokens=chosen.max_tokens, **_model_options(row, chosen, trusted))
    return LoopAgent(model, tools, limits=chosen.limits)


def _remote(row: AgentRow, tools: tuple[Tool, ...], trusted: bool) -> Agent:
    from threadline.agents.remote import RemoteAgent  # noqa: PLC0415 - an extra

    chosen = _settings(row, _RemoteSettings)
    return RemoteAgent(
        chosen.url,
        token=_secret(row, chosen.token, chosen.token_env, trusted),
        silence_seconds=chosen.silence_seconds,
        public_only=not trusted,
        limits=chosen.limits,
        persistence=_persistence(chosen.attempts),
    )


def _local(row: AgentRow, tools: tuple[Tool, ...], trusted: bool) -> Agent:
    from threadline.agents.local import LocalModel  # noqa: PLC0415 - an extra

    _require_trust(row, trusted, "a local model")
    chosen = _settings(row, _LocalSettings)
    model = LocalModel(chosen.model_path, context_tokens=chosen.context_tokens, options=chosen.options)
    return LoopAgent(model, tools, limits=chosen.limits)


def _function(row: AgentRow, tools: tuple[Tool, ...], trusted: bool) -> Agent:
    from threadline.agents.function import as_agent  # noqa: PLC0415 - chosen at run time

    _require_trust(row, trusted, "a function")
    module, _, name = _settings(row, _FunctionSettings).function.partition(":")
    try:
        return as_agent(getattr(importlib.import_module(module), name))
    except (ImportError, AttributeError, ValueError) as exc:
        raise SettingsInvalid(f"agent {row.id!r}: function is 'module:name' of something that is there: {exc}") from exc


_PROVIDERS: dict[str, Callable[[AgentRow, tuple[Tool, ...], bool], Agent]] = {
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
        sections, what = explained(str(exc), row.settings, kind)
        place = f" {'.'.join(sections)}:" if sections else ""
        raise SettingsInvalid(f"agent {row.id!r}:{place} {what}") from exc


def _model_options(row: AgentRow, chosen: _ModelSettings, trusted: bool) -> dict[str, Any]:
    if chosen.base_url is not None:
        _require_trust(row, trusted, "base_url")
    key = _secret(row, chosen.api_key, chosen.api_key_env, trusted)
    if key is None and not trusted:
        how = "among its settings, in the terminal with --set api_key=KEY"
        raise SettingsInvalid(f"agent {row.id!r}: it needs an api_key of its own, {how}")
    return {
        "api_key": key,
        "base_url": chosen.base_url,
        "silence_seconds": chosen.silence_seconds,
        "options": chosen.options,
        "persistence": _persistence(chosen.attempts),
    }


def _persistence(attempts: int) -> Retrier:
    from threadline.net.retry import Retrier, RetryPolicy  # noqa: PLC0415 - chosen at run time

    return Retrier(RetryPolicy(attempts=attempts))


def _secret(row: AgentRow, value: str | None, variable: str | None, trusted: bool) -> str | None:
    if variable is None:
        return value
    _require_trust(row, trusted, "a variable of the environment")
    found = os.environ.get(variable)
    if not found:
        raise SettingsInvalid(f"agent {row.id!r}: the variable {variable} is not set")
    return found


def _require_trust(row: AgentRow, trusted: bool, what: str) -> None:
    if not trusted:
        raise SettingsInvalid(f"agent {row.id!r}: {what} can be set by the operator only, in threadline.toml")
