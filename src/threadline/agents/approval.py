"""Approvers: who says whether a tool that needs approval may run.

A surface that can ask a person wraps its question in `Remembering`; one that cannot gives a `CurrentThread` answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Literal, TypeAlias

from threadline.core.events import ToolCall
from threadline.ports import Verdict

Choice: TypeAlias = Literal["allow", "deny", "defer", "always", "never"]
Ask: TypeAlias = Callable[[ToolCall], Awaitable[Choice]]


class CurrentThread:
    """The same answer to every call: what to do where nobody can be asked."""

    def __init__(self, answer: Literal["allow", "deny", "defer"], reason: str | None = None) -> None:
        self._verdict = Verdict(answer, reason)

    async def decide(self, call: ToolCall) -> Verdict:
        return self._verdict


class Remembering:
    """Asks, and asks no more about a tool once the answer was `always` or `never`.

    `allowed` and `denied` are the tools' names: give them back later to remember longer than this object lives."""

    def __init__(self, ask: Ask, *, allowed: Iterable[str] = (), denied: Iterable[str] = ()) -> None:
        self._ask = ask
        self.allowed = set(allowed)
        self.denied = set(denied)

    async def decide(self, call: ToolCall) -> Verdict:
        if call.name in self.denied:
            return Verdict("deny", f"{call.name} is never allowed here")
        if call.name in self.allowed:
            return Verdict("allow")
        match await self._ask(call):
            case "always":
                self.allowed.add(call.name)
                return Verdict("allow")
            case "never":
                self.denied.add(call.name)
                return Verdict("deny", f"{call.name} is never allowed here")
            case answer:
                return Verdict(answer)
