"""Writes to a session of a framework until it is killed: `killed_writer.py FRAMEWORK DATABASE`. Each line of its output
is the number of a step whose call has returned."""

from __future__ import annotations

import asyncio
import itertools
import sys
from typing import Any

import threadline

SESSION = "killed"
# Sessions of OpenAI Agents name threads as LangGraph does: with the same name they would continue its thread.
ITEMS = f"{SESSION}-items"


def say(step: int) -> None:
    sys.stdout.write(f"{step}\n")
    sys.stdout.flush()


async def langgraph(opened: threadline.Threadline) -> None:
    from langchain_core.messages import HumanMessage
    from langgraph.checkpoint.base import empty_checkpoint

    from threadline.adapters.langgraph import ThreadlineSaver

    saver = ThreadlineSaver(opened.as_user())
    config: Any = {"configurable": {"thread_id": SESSION, "checkpoint_ns": ""}}
    found = await saver.aget_tuple(config)
    messages = list(found.checkpoint["channel_values"]["messages"]) if found else []
    for step in itertools.count(len(messages)):
        messages.append(HumanMessage(f"question {step}"))
        checkpoint = empty_checkpoint()
        version = f"{step:010}.1"
        checkpoint["channel_values"] = {"messages": list(messages), "step": step}
        checkpoint["channel_versions"] = {"messages": version, "step": version}
        metadata: Any = {"source": "loop", "step": step, "parents": {}}
        await saver.aput(config, checkpoint, metadata, {"messages": version, "step": version})
        say(step)


async def adk(opened: threadline.Threadline) -> None:
    from google.adk.events import Event, EventActions
    from google.genai import types

    from threadline.adapters.adk import ThreadlineSessionService

    service = ThreadlineSessionService(opened)
    place: Any = {"app_name": "app", "user_id": "ada", "session_id": SESSION}
    session = await service.get_session(**place) or await service.create_session(**place)
    for step in itertools.count(len(session.events)):
        content = types.Content(role="user", parts=[types.Part(text=f"question {step}")])
        actions = EventActions(state_delta={"step": step, "user:step": step, "app:step": step})
        await service.append_event(session, Event(author="user", content=content, actions=actions))
        say(step)


async def openai_agents(opened: threadline.Threadline) -> None:
    from threadline.adapters.openai_agents import ThreadlineSession

    session = ThreadlineSession(ITEMS, opened.as_user())
    for step in itertools.count(len(await session.get_items()) // 2):
        answer = {"role": "assistant", "content": f"answer {step}"}
        await session.add_items([{"role": "user", "content": f"question {step}"}, answer])
        say(step)


async def main(framework: str, database: str) -> None:
    async with threadline.open(database) as opened:
        await {"langgraph": langgraph, "adk": adk, "openai_agents": openai_agents}[framework](opened)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
