"""Tools: what a call costs beside the tool itself, and what a hundred tools of an MCP server cost a turn.

The model is scripted and answers at once; the tools do nothing. What is left is the loop, the journal and the stream.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import threadline
from bench.arena import Arena
from bench.budgets import MCP_TOOLS, OURS, TOOL_CALL
from bench.measure import Operation, Samples, interleave
from bench.results import Row
from threadline.agents.loop import LoopAgent
from threadline.agents.mcp.servers import McpServers
from threadline.agents.models import RoundSettings, ToolSpec
from threadline.agents.tools import tool
from threadline.core.events import Event, Finish, TextDelta, ToolCall
from threadline.core.mcp_servers import McpServer
from threadline.core.prompts import PromptMessage, split_rounds

CALLS = 20
_SERVER = Path(__file__).parents[2] / "tests" / "agents" / "mcp_servers" / "faulty_server.py"


@tool
async def nothing() -> str:
    return "done"


class Caller:
    """A model that calls a tool in each of its first rounds, and then answers."""

    def __init__(self, calls: int) -> None:
        self._calls = calls
        self._ids = itertools.count()

    async def round(
        self, messages: Sequence[PromptMessage], tools: Sequence[ToolSpec], settings: RoundSettings
    ) -> AsyncGenerator[Event, None]:
        last = messages[-1]
        made = sum(len(each.calls) for each in split_rounds(last.parts)) if last.role == "assistant" else 0
        if made < self._calls:
            yield ToolCall(f"call_{next(self._ids)}", "nothing", {})
            yield Finish("tool-calls")
        else:
            yield TextDelta("Done.")
            yield Finish()

    async def close(self) -> None:
        """Nothing to close."""


async def tools(arena: Arena) -> list[Row]:
    """A turn that calls a tool twenty times, one after the other, against a turn that calls none; and a turn whose
    agent has a hundred tools of an MCP server, against one without. Tools are useful only if no user waits for them."""
    servers = McpServers({"many": McpServer(command=(sys.executable, str(_SERVER), "--pages"))})
    source = servers.source(["many"])
    await servers.report()
    agents = {
        "calls": LoopAgent(Caller(CALLS), [nothing]),
        "plain": LoopAgent(Caller(0), [nothing]),
        "many": LoopAgent(Caller(0), [nothing], sources=[source]),
    }
    async with threadline.open(arena.file("tools"), agents=agents) as tl:
        me = tl.as_user("bench")
        operations: dict[str, Operation] = {name: _asking(me, name) for name in agents}
        rounds, repeats = arena.sized(30, 10), arena.sized(5, 3)
        taken = await interleave(operations, rounds=rounds, repeats=repeats, warmup=3)
    await servers.close()
    return [
        _difference(TOOL_CALL.name, taken["calls"], taken["plain"], CALLS),
        _difference(MCP_TOOLS.name, taken["many"], taken["plain"], 1),
    ]


def _asking(user: threadline.UserView, agent_id: str) -> Operation:
    async def ask() -> None:
        # A new thread each time: the calls of earlier turns would be part of the prompt.
        await (await user.create_thread(agent_id=agent_id)).ask("go")

    return ask


def _difference(work: str, more: Samples, less: Samples, count: int) -> Row:
    value, best = (more.median - less.median) / count, (more.best - less.best) / count
    return Row(work, OURS, "ms", value * 1e3, best=best * 1e3, samples=len(more))
