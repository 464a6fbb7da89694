"""Python code that settings name as `module:name`: tools, and agents of the provider `function`.

Only the operator's settings may name code. An error names the agent, the code and the fault, whatever the module does
while it is imported.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from typing import Any

from threadline.agents.tool_execution import describe_error
from threadline.agents.tools import Tool
from threadline.core.errors import InvalidInput, SettingsInvalid, quote


def load_tools(agent_id: str, names: Iterable[str], taken: Iterable[str] = ()) -> tuple[Tool, ...]:
    """The tools of these names: Tools as they are, typed functions as `tool` makes them. SettingsInvalid. `taken` are
    the names of tools that the agent has already."""
    owners = dict.fromkeys(taken, "the agent's own")
    found: list[Tool] = []
    for name in names:
        loaded = _as_tool(f"agent {agent_id!r}: tool {quote(name)}", name)
        if loaded.name in owners:
            raise SettingsInvalid(
                f"agent {agent_id!r}: tool {quote(name)}: the name {loaded.name!r} is used by {owners[loaded.name]}: "
                "tool names must be unique"
            )
        owners[loaded.name] = quote(name)
        found.append(loaded)
    return tuple(found)


def _as_tool(where: str, name: str) -> Tool:
    value = load_object(where, name)
    if isinstance(value, Tool):
        return value
    if isinstance(value, type) or not callable(value):
        kind = "a class" if isinstance(value, type) else f"a {type(value).__name__}"
        raise SettingsInvalid(f"{where} must be a function or a Tool, got {kind}")
    try:
        return Tool.from_function(value)
    except InvalidInput as exc:
        raise SettingsInvalid(f"{where}: {exc}") from exc


def load_object(where: str, name: str) -> Any:
    """What `module:name` names. SettingsInvalid; its text begins with `where`."""
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise SettingsInvalid(f"{where} must be 'module:name'")
    module = _import(where, module_name)
    found = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            near = difflib.get_close_matches(part, [each for each in dir(found) if not each.startswith("_")], n=1)
            hint = f", did you mean {near[0]!r}?" if near else ""
            raise SettingsInvalid(f"{where}: module {module_name!r} has no {part!r}{hint}")
        found = getattr(found, part)
    return found


def _import(where: str, name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as exc:
        if exc.name is not None and (name == exc.name or name.startswith(f"{exc.name}.")):
            raise SettingsInvalid(
                f"{where}: no module {exc.name!r}: put it beside threadline.toml, or install it"
            ) from exc
        raise SettingsInvalid(f"{where}: module {name!r} needs a module that is missing: {exc}") from exc
    except (Exception, SystemExit) as exc:
        # A module can raise anything while it is imported, and even call sys.exit.
        raise SettingsInvalid(f"{where}: module {name!r} cannot be imported: {describe_error(exc)}") from exc
