"""The line below the prompt: agent and model, the tokens of the chat, and how full the context window was."""

from __future__ import annotations

import contextlib

from threadline.cli.chat.session import ChatSession
from threadline.cli.output import cut
from threadline.cli.printable import printable
from threadline.core.errors import ThreadlineError
from threadline.core.turns import TurnInfo

_SEPARATOR = " · "
_TURNS = 5


class StatusLine:
    """Called with a width it gives the line. `refresh` reads what it says; a database that fails leaves it as it is."""

    def __init__(self) -> None:
        self._facts: list[str] = []

    def __call__(self, width: int) -> str:
        """Facts that do not fit are left out, the last ones first."""
        facts = list(self._facts)
        while len(facts) > 1 and len(_SEPARATOR.join(facts)) > width:
            facts.pop()
        return cut(_SEPARATOR.join(facts), width)

    async def refresh(self, session: ChatSession, configured_model: str | None = None) -> None:
        with contextlib.suppress(ThreadlineError):
            turns = [] if session.thread is None else await session.thread.turns(limit=_TURNS)
            # A message that was taken into a running turn has no prompt of its own.
            answered = (turn for turn in turns if turn.prompt_tokens)
            self._facts = describe(session, next(answered, None), configured_model)


def describe(session: ChatSession, turn: TurnInfo | None, configured_model: str | None) -> list[str]:
    thread = session.thread
    is_same_agent = turn is not None and turn.agent_id == session.agent_id
    model = session.options.model or (thread.model if thread else None)
    if model is None and turn is not None and is_same_agent:
        model = turn.model
    facts = [printable(model or configured_model or session.agent_id)]
    if thread is not None:
        facts.append(f"{thread.token_count:,} tokens")
    if turn is not None and turn.prompt_tokens and turn.window_tokens:
        share = min(100, -(-turn.prompt_tokens * 100 // turn.window_tokens))
        facts.append(f"context {share} %")
    if session.is_in_memory:
        facts.append("not saved")
    return facts
