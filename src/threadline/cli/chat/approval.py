"""Decides whether a tool may run: asks the user at the terminal, or allows all tools for `--allow-tools`."""

from __future__ import annotations

import msgspec

from threadline.cli.chat.keyboard import LineInput
from threadline.cli.chat.screen import Screen
from threadline.cli.printable import printable, shorten
from threadline.core.events import ToolCall
from threadline.ports import Verdict

_LONGEST_INPUT = 600


class TerminalApprover:
    """Asks for each call. `always` and `never` are remembered per tool until the chat ends."""

    def __init__(self, keyboard: LineInput, screen: Screen) -> None:
        self._keyboard = keyboard
        self._screen = screen
        self._remembered: dict[str, Verdict] = {}

    async def decide(self, call: ToolCall) -> Verdict:
        if call.name in self._remembered:
            return self._remembered[call.name]
        given = shorten(printable(msgspec.json.encode(call.input).decode()), _LONGEST_INPUT)
        self._screen.line(f"The agent wants to run {printable(call.name)} with {given}")
        while True:
            answer = (await self._keyboard.read_answer("Allow? [y]es, [n]o, [a]lways, ne[v]er: ")).strip().lower()
            match answer:
                case "y" | "yes":
                    return Verdict("allow")
                case "n" | "no" | "":
                    return Verdict("deny", "the user said no")
                case "a" | "always":
                    return self._remember(call, Verdict("allow"))
                case "v" | "never":
                    return self._remember(call, Verdict("deny", "the user said never"))
                case _:
                    self._screen.note("Type y, n, a or v.")

    def _remember(self, call: ToolCall, verdict: Verdict) -> Verdict:
        self._remembered[call.name] = verdict
        return verdict


class Unattended:
    """Denies tools that need approval where no terminal can ask, and says so: the user has not refused them."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    async def decide(self, call: ToolCall) -> Verdict:
        self._screen.warn(f"{call.name} was not run: with -p nobody can be asked; --allow-tools allows it")
        return Verdict("deny", "nobody was asked: a question given with -p cannot ask its user")


class AllowAll:
    async def decide(self, call: ToolCall) -> Verdict:
        return Verdict("allow")
