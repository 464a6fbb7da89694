"""Rules that decide about tool calls without asking: of the folder in the settings, and of this chat.

A rule is `TOOL` or `TOOL PATTERN`. The pattern is compared with the path that a call names, relative to the folder, or
with the command line that it runs. `deny` wins over `allow`. A command line with shell operators matches only a rule
that is equal to it, so that `make *` does not allow `make; rm -r .`.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from typing import Any, Literal

from threadline.agents.workspace_tools import READING
from threadline.core.events import ToolCall

_OPERATORS = re.compile(r"[;&|<>`$(){}\n\\]")
# Files that often hold secrets: reading one is asked for, also where reading is allowed.
_SENSITIVE = re.compile(
    r"(^|/)(\.env(\..*)?|\.netrc|\.npmrc|\.pypirc|id_[a-z0-9]+|.*\.(pem|key|p12|kdbx)|credentials.*)$"
)


class ToolRules:
    def __init__(self, allow: Sequence[str] = (), deny: Sequence[str] = ()) -> None:
        self._allow = list(allow)
        self._deny = list(deny)

    def allow(self, rule: str) -> None:
        self._allow.append(rule)

    def decide(self, call: ToolCall) -> Literal["allow", "deny"] | None:
        """None: ask."""
        subject = subject_of(call)
        if any(_matches(rule, call.name, subject) for rule in self._deny):
            return "deny"
        if any(_matches(rule, call.name, subject) for rule in self._allow):
            return "allow"
        # The user asked for tools of this folder: those that only read it need no further question.
        return "allow" if call.name in READING and not _SENSITIVE.search(subject) else None


def subject_of(call: ToolCall) -> str:
    """What a rule's pattern is compared with."""
    given: Any = call.input if isinstance(call.input, dict) else {}
    return str(given.get("command") or given.get("path") or "")


def rule_for(call: ToolCall) -> str:
    """The narrowest rule that is worth remembering: a tool for files in the whole folder, a command only as it is."""
    subject = subject_of(call)
    return f"{call.name} {subject}" if "command" in (call.input or {}) else call.name


def _matches(rule: str, name: str, subject: str) -> bool:
    tool, _, pattern = rule.partition(" ")
    if tool != name:
        return False
    if not pattern:
        return not _SENSITIVE.search(subject)
    if pattern == subject:
        return True
    is_command = name == "run_command"
    return not (is_command and _OPERATORS.search(subject)) and fnmatch.fnmatchcase(subject, pattern)
