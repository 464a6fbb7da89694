"""Settings of the model for one reply, as a request may give them: the agent's own are used for what is left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from threadline.core.errors import InvalidInput, quote

_CHOICES = ("none", "auto", "required")


class ModelOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """`tool_choice` is `none`, `auto`, `required` or the name of one tool after `tool:`."""

    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    tool_choice: str | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None

    def after_first_round(self) -> ModelOptions:
        """Without a forced call: a model that must call a tool in every round never ends its reply."""
        is_forced = self.tool_choice not in (None, "none", "auto")
        return msgspec.structs.replace(self, tool_choice=None) if is_forced else self

    def for_chat(self, *, with_tools: bool) -> dict[str, Any]:
        """As keys of OpenAI's chat API. Without tools, models refuse what concerns them."""
        given: dict[str, Any] = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_completion_tokens": self.max_output_tokens,
            "reasoning_effort": self.reasoning_effort,
        }
        if with_tools:
            name = (self.tool_choice or "").removeprefix("tool:")
            is_named = name != (self.tool_choice or "")
            given["tool_choice"] = {"type": "function", "function": {"name": name}} if is_named else self.tool_choice
            given["parallel_tool_calls"] = self.parallel_tool_calls
        return {key: value for key, value in given.items() if value is not None}


def read_tool_choice(given: Any) -> str | None:
    """As either of OpenAI's APIs writes it. InvalidInput."""
    match given:
        case None:
            return None
        case str() if given in _CHOICES:
            return given
        case {"type": "function", "name": str(name)} | {"type": "function", "function": {"name": str(name)}}:
            return f"tool:{name}"
        case {"type": "allowed_tools", "mode": str(mode)} if mode in _CHOICES:
            # Which tools are allowed is not passed on: the request declares the tools that it wants to be offered.
            return mode
    shown = quote(given.get("type") if isinstance(given, Mapping) else given)
    raise InvalidInput(f"`tool_choice` must be none, auto, required or a function, got {shown}")


def read_model_options(body: Mapping[str, Any]) -> ModelOptions:
    """The options of a body of OpenAI's chat API. InvalidInput."""
    wanted = {
        "temperature": body.get("temperature"),
        "top_p": body.get("top_p"),
        "max_output_tokens": body.get("max_completion_tokens") or body.get("max_tokens"),
        "parallel_tool_calls": body.get("parallel_tool_calls"),
        "reasoning_effort": body.get("reasoning_effort"),
        "tool_choice": read_tool_choice(body.get("tool_choice")),
    }
    return check_model_options({key: value for key, value in wanted.items() if value is not None})


def check_model_options(given: Mapping[str, Any]) -> ModelOptions:
    """InvalidInput for a value of a wrong type or out of range."""
    try:
        options = msgspec.convert(dict(given), ModelOptions)
    except msgspec.ValidationError as exc:
        name, _, fault = str(exc).partition(" - at `$.")[::-1]
        raise InvalidInput(f"`{name.rstrip('`')}` is wrong: {fault}") from exc
    for name, value, most in (("temperature", options.temperature, 2), ("top_p", options.top_p, 1)):
        if value is not None and not 0 <= value <= most:
            raise InvalidInput(f"`{name}` must be 0–{most}, got {value:g}")
    if options.max_output_tokens is not None and not 1 <= options.max_output_tokens <= 2**31:
        raise InvalidInput(f"`max_output_tokens` must be at least 1, got {options.max_output_tokens}")
    if options.reasoning_effort is not None and not options.reasoning_effort.isalnum():
        raise InvalidInput(f"`reasoning.effort` must be one word, got {quote(options.reasoning_effort)}")
    return options
