"""Changes `threadline.toml` and leaves the rest of it, with its comments, as it is.

A change is checked before it is written. The file is replaced as a whole, so that a crash leaves the old or the new
one.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from threadline import settings as settings_
from threadline.core.errors import DuplicateId, SettingsInvalid
from threadline.settings import AgentSettings

_TABLE = re.compile(r"^\s*\[", re.MULTILINE)


def file_to_change(path: str | None) -> Path:
    """The settings file in use; if there is none, the user's own, which need not exist."""
    if path is not None:
        return Path(path)
    return settings_.settings_file(None, os.environ) or settings_.user_settings_file(os.environ)


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as exc:
        raise SettingsInvalid(f"cannot read {path}: {exc}") from exc


def add_agent(text: str, agent_id: str, agent: AgentSettings) -> str:
    """The file with a table for the agent at its end. DuplicateId if it has one."""
    if agent_id in _parse(text).get("agents", {}):
        raise DuplicateId("agent", agent_id)
    fields = {"provider": agent.provider, "model": agent.model, "system_prompt": agent.system_prompt}
    lines = [f"{name} = {to_toml(value)}" for name, value in fields.items() if value is not None]
    if agent.settings:
        lines.append(f"settings = {to_toml(agent.settings)}")
    separator = "" if not text or text.endswith("\n\n") else "\n" if text.endswith("\n") else "\n\n"
    return f"{text}{separator}[agents.{_key(agent_id)}]\n" + "\n".join(lines) + "\n"


def set_value(text: str, name: str, value: Any) -> str:
    """The file with this value of a key that is in no table."""
    found = _TABLE.search(text)
    head, rest = (text, "") if found is None else (text[: found.start()], text[found.start() :])
    line = f"{name} = {to_toml(value)}"
    present = re.compile(rf"^{re.escape(name)}\s*=.*$", re.MULTILINE)
    if present.search(head):
        return present.sub(lambda _: line, head, count=1) + rest
    return f"{line}\n{head}{rest}" if head.strip() else f"{line}\n\n{rest}"


def append_to_list(text: str, table: str, name: str, value: str) -> str:
    """The file with the value at the end of a list of strings in a table; both are created where they are missing."""
    header = re.search(rf"^\[{re.escape(table)}\][ \t]*\n", text, re.MULTILINE)
    if header is None:
        separator = "" if not text or text.endswith("\n\n") else "\n" if text.endswith("\n") else "\n\n"
        return f"{text}{separator}[{table}]\n{_key(name)} = {to_toml([value])}\n"
    end = _TABLE.search(text, header.end())
    body = text[header.end() : end.start() if end else len(text)]
    present: list[str] = _parse(f"[{table}]\n{body}")
    for part in table.split("."):
        present = present[part]  # type: ignore[call-overload]  # nested tables of unknown depth
    listed = present.get(name, [])  # type: ignore[attr-defined]  # as above
    line = f"{_key(name)} = {to_toml([*listed, value])}"
    found = re.search(rf"^{re.escape(_key(name))}\s*=\s*\[[^\]]*\][ \t]*$", body, re.MULTILINE)
    changed = f"{line}\n{body}" if found is None else body[: found.start()] + line + body[found.end() :]
    return text[: header.end()] + changed + text[header.end() + len(body) :]


def write(path: Path, text: str) -> None:
    """Checks the text as settings and replaces the file. SettingsInvalid if it cannot be written or is not valid."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".toml", delete=False, encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary = Path(file.name)
        try:
            _check(temporary, path)
            temporary.chmod(mode)
            temporary.replace(path.resolve())
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as exc:
        raise SettingsInvalid(f"cannot write {path}: {exc.strerror}") from exc


def _check(temporary: Path, path: Path) -> None:
    try:
        settings_.load(temporary, environ={})
    except SettingsInvalid as exc:
        raise SettingsInvalid(f"{path} was not changed: {str(exc).replace(str(temporary), 'it')}") from exc


def to_toml(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            # A JSON string is a TOML string, except that TOML wants U+007F escaped.
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case int() | float():
            return repr(value)
        case Mapping():
            return "{ " + ", ".join(f"{_key(name)} = {to_toml(each)}" for name, each in value.items()) + " }"
        case _:
            return "[" + ", ".join(to_toml(each) for each in value) + "]"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def _parse(text: str) -> Any:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise SettingsInvalid(f"the settings file is not valid TOML: {exc}") from exc
