"""Drives the OpenAI Agents SDK against the service whose address is given, and writes what it shows as JSON."""

from __future__ import annotations

import asyncio
import json
import sys

import openai
from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIConversationsSession,
    Runner,
    function_tool,
    set_default_openai_client,
    set_tracing_disabled,
)


def weather(city: str) -> str:
    """The weather in a city."""
    return "rain" if city == "Porto" else "sun"


async def main(url: str) -> None:
    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    set_default_openai_client(client, use_for_tracing=False)
    set_tracing_disabled(True)
    agent = Agent(name="helper", instructions="Be brief.", model="scripted", tools=[function_tool(weather)])
    first = await Runner.run(agent, "Rain?")
    continued = await Runner.run(agent, "And now?", previous_response_id=first.last_response_id)
    streamed = Runner.run_streamed(agent, "Hi")
    async for _ in streamed.stream_events():
        pass
    session = OpenAIConversationsSession(openai_client=client)
    said = [(await Runner.run(agent, text, session=session)).final_output for text in ("Rain?", "And now?")]
    items = [item.get("role") or item["type"] for item in await session.get_items()]
    popped = await session.pop_item()
    model = OpenAIChatCompletionsModel(model="scripted", openai_client=client)
    chatting = Agent(name="chatting", instructions="Be brief.", model=model, tools=[function_tool(weather)])
    chat = await Runner.run(chatting, "Rain?")
    chat_streamed = Runner.run_streamed(chatting, "Rain?")
    async for _ in chat_streamed.stream_events():
        pass
    shown = {
        "chat": [chat.final_output, chat_streamed.final_output],
        "tool": first.final_output,
        "continued": continued.final_output,
        "streamed": streamed.final_output,
        "session": said,
        "items": items,
        "popped": None if popped is None else popped.get("role"),
    }
    sys.stdout.write(json.dumps(shown))


asyncio.run(main(sys.argv[1]))
