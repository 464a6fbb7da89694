"""Decides whether a tool may run: by the rules of the folder, else by asking the user at the terminal.

A change of a file is shown as a diff before it is written, whether it is asked for or allowed by a rule. Ctrl-C or the
end of the input at a question means no.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from threadline.agents.tool_execution import ToolFailed
from threadline.agents.workspace import Workspace
from threadline.agents.workspace_tools import preview
from threadline.cli.chat.keyboard import LineInput
from threadline.cli.chat.screen import Screen
from threadline.cli.chat.tool_rules import ToolRules, rule_for
from threadline.cli.chat.word_wrap import shorten_lines
from threadline.cli.printable import printable, shorten
from threadline.core.errors import SettingsInvalid
from threadline.core.events import ToolCall
from threadline.ports import Verdict

_LONGEST_INPUT = 600
_DIFF_LINES = 200
_NO = Verdict("deny", "the user said no")


class CallChecks:
    """What is known about a call before anybody is asked. `workspace` is the folder of the built-in tools, if the chat
    has them; `remember` stores a rule for it and returns where."""

    def __init__(
        self,
        rules: ToolRules | None = None,
        workspace: Workspace | None = None,
        remember: Callable[[str], str] | None = None,
    ) -> None:
        self.rules = rules or ToolRules()
        self.remember = remember
        self._workspace = workspace

    def resolve(self, call: ToolCall) -> ToolCall:
        """The call with its path as the folder knows it, so that rules cannot be evaded by spelling it differently."""
        if self._workspace is None or not isinstance(call.input, dict) or not isinstance(call.input.get("path"), str):
            return call
        try:
            path = self._workspace.relative(call.input["path"])
        except ToolFailed:  # the tool itself refuses it
            return call
        return msgspec.structs.replace(call, input={**call.input, "path": path or "."})

    def diff(self, call: ToolCall) -> str | None:
        """The change that the call makes. ToolFailed if it cannot be made."""
        return None if self._workspace is None else preview(self._workspace, call.name, call.input)


class TerminalApprover:
    """Asks for each call that no rule decides. `always` and `never` are remembered until the chat ends."""

    def __init__(self, keyboard: LineInput, screen: Screen, checks: CallChecks | None = None) -> None:
        self._keyboard = keyboard
        self._screen = screen
        self._checks = checks or CallChecks()
        self._never: set[str] = set()

    async def decide(self, call: ToolCall) -> Verdict:
        call = self._checks.resolve(call)
        if call.name in self._never:
            return Verdict("deny", "the user said never")
        decided = self._checks.rules.decide(call)
        if decided == "deny":
            return Verdict("deny", "a rule of this folder forbids it")
        try:
            diff = self._checks.diff(call)
        except ToolFailed:
            # The call cannot work: it runs without a question, so that the model gets the reason.
            return Verdict("allow")
        if diff is not None:
            self._screen.print_diff(shorten_lines(diff, _DIFF_LINES))
        if decided == "allow":
            return Verdict("allow")
        if diff is None:
            given = shorten(printable(msgspec.json.encode(call.input).decode()), _LONGEST_INPUT)
            self._screen.line(f"The agent wants to run {printable(call.name)} with {given}")
        else:
            self._screen.line(f"The agent wants to make this change with {printable(call.name)}")
        return await self._ask(call)

    async def _ask(self, call: ToolCall) -> Verdict:
        folder = ", always in this [f]older" if self._checks.remember is not None else ""
        question = self._screen.wrap(f"Allow? [y]es, [n]o, [a]lways in this chat{folder}, ne[v]er:") + " "
        while True:
            try:
                answer = (await self._keyboard.read_answer(question)).strip().lower()
            except (KeyboardInterrupt, EOFError):
                return _NO
            match answer:
                case "y" | "yes":
                    return Verdict("allow")
                case "n" | "no" | "":
                    return _NO
                case "a" | "always":
                    self._checks.rules.allow(rule_for(call))
                    return Verdict("allow")
                case "f" | "folder" if self._checks.remember is not None:
                    self._remember(call)
                    return Verdict("allow")
                case "v" | "never":
                    self._never.add(call.name)
                    return Verdict("deny", "the user said never")
                case _:
                    self._screen.note(f"Type y, n, a{', f' if folder else ''} or v.")

    def _remember(self, call: ToolCall) -> None:
        assert self._checks.remember is not None
        rule = rule_for(call)
        self._checks.rules.allow(rule)
        try:
            where = self._checks.remember(rule)
        except SettingsInvalid as exc:
            self._screen.warn(f"allowed in this chat only: {exc}")
        else:
            self._screen.note(f"Allowed in this folder from now on: {printable(rule)} ({printable(where)})")


class Unattended:
    """Denies tools that need approval where no terminal can ask, and says so: the user has not refused them."""

    def __init__(self, screen: Screen, checks: CallChecks | None = None) -> None:
        self._screen = screen
        self._checks = checks or CallChecks()

    async def decide(self, call: ToolCall) -> Verdict:
        if self._checks.rules.decide(self._checks.resolve(call)) == "allow":
            return Verdict("allow")
        self._screen.warn(f"{call.name} was not run: with -p nobody can be asked; --allow-tools allows it")
        return Verdict("deny", "nobody was asked: a question given with -p cannot ask its user")


class AllowAll:
    """Allows every call; a change of a file is still shown."""

    def __init__(self, screen: Screen, checks: CallChecks | None = None) -> None:
        self._screen = screen
        self._checks = checks or CallChecks()

    async def decide(self, call: ToolCall) -> Verdict:
        try:
            diff = self._checks.diff(call)
        except ToolFailed:
            diff = None  # the tool says why
        if diff is not None:
            self._screen.print_diff(shorten_lines(diff, _DIFF_LINES))
        return Verdict("allow")
