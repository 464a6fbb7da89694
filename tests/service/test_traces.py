"""Traces: request, turn, model rounds and tools as spans in the caller's trace."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from tests.service.running_service import THREADS, Client, serving, wait_until_idle
from threadline.bootstrap import Threadline
from threadline.clock import SystemClock
from threadline.observability.otel import OtelTracer
from threadline.settings import Settings, TracingSettings
from threadline.stores.sqlite.store import SqliteStore

CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Watched:
    """A client of a traced service, and the spans that have ended."""

    def __init__(self, client: Client, exporter: InMemorySpanExporter, threadline: Threadline) -> None:
        self.client = client
        self.threadline = threadline
        self._exporter = exporter

    async def spans(self) -> dict[str, ReadableSpan]:
        """The last span of each name."""
        await wait_until_idle(self.threadline)
        return {span.name: span for span in self._exporter.get_finished_spans()}

    async def written(self) -> str:
        await wait_until_idle(self.threadline)
        return "".join(span.to_json() for span in self._exporter.get_finished_spans())


@pytest.fixture(params=[False])
async def watched(request: pytest.FixtureRequest) -> AsyncIterator[Watched]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    settings = Settings(database=":memory:", tracing=TracingSettings(enabled=True, content=request.param))
    clock = SystemClock()
    store = await SqliteStore.open(":memory:", clock=clock)
    tracer = OtelTracer(provider)
    async with Threadline(store, settings, clock, tracer=tracer) as threadline, serving(threadline) as client:
        yield Watched(client, exporter, threadline)


async def test_a_turn_is_traced_from_the_request_to_its_tools(watched: Watched) -> None:
    await watched.client.ask("calculate 2+3*4", "key", headers={"traceparent": CALLER})
    spans = await watched.spans()
    asked, agent = spans["POST /api/v1/ai/chat"], spans["invoke_agent rehearsal"]
    chat, tool = spans["chat"], spans["execute_tool calculate"]
    assert {f"{span.context.trace_id:032x}" for span in (asked, agent, chat, tool)} == {CALLER.split("-")[1]}
    assert asked.parent is not None
    assert f"{asked.parent.span_id:016x}" == CALLER.split("-")[2]
    assert [span.parent and span.parent.span_id for span in (agent, chat, tool)] == [
        asked.context.span_id,
        agent.context.span_id,
        agent.context.span_id,
    ]
    assert [span.kind for span in (asked, agent, chat, tool)] == [
        SpanKind.SERVER,
        SpanKind.INTERNAL,
        SpanKind.CLIENT,
        SpanKind.INTERNAL,
    ]


async def test_spans_have_the_attributes_of_the_conventions(watched: Watched) -> None:
    await watched.client.ask("calculate 2+3*4", "key")
    thread = (await watched.client.http.get(f"{THREADS}/key")).json()
    spans = await watched.spans()
    agent = dict(spans["invoke_agent rehearsal"].attributes or {})
    assert (
        agent.items()
        >= {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": "rehearsal",
            "gen_ai.agent.id": "rehearsal",
            "gen_ai.agent.name": "rehearsal",
            "gen_ai.conversation.id": thread["id"],
            "gen_ai.response.finish_reasons": ("stop",),
        }.items()
    )
    assert isinstance(tokens := agent["gen_ai.usage.output_tokens"], int)
    assert tokens > 0
    tool = dict(spans["execute_tool calculate"].attributes or {})
    assert (tool["gen_ai.operation.name"], tool["gen_ai.tool.name"]) == ("execute_tool", "calculate")
    assert tool["gen_ai.tool.type"] == "function"
    assert "gen_ai.tool.call.id" in tool
    assert dict(spans["POST /api/v1/ai/chat"].attributes or {}) == {
        "http.request.method": "POST",
        "url.scheme": "http",
        "http.route": "/api/v1/ai/chat",
        "http.response.status_code": 200,
    }


async def test_spans_contain_no_message_text(watched: Watched) -> None:
    await watched.client.ask("count the words in xylophone music", "xylophone")
    await watched.client.ask("what did I say first?", "xylophone")
    await watched.client.http.get(THREADS, params={"q": "xylophone"})
    written = await watched.written()
    assert "execute_tool" in written
    assert "xylophone" not in written


@pytest.mark.parametrize("watched", [True], indirect=True)
async def test_spans_contain_message_text_if_configured(watched: Watched) -> None:
    await watched.client.ask("calculate 2+3*4", "key")
    agent = dict((await watched.spans())["invoke_agent rehearsal"].attributes or {})
    assert "calculate 2+3*4" in str(agent["gen_ai.input.messages"])
    assert "14" in str(agent["gen_ai.output.messages"])
    tool = dict((await watched.spans())["execute_tool calculate"].attributes or {})
    assert "2+3*4" in str(tool["gen_ai.tool.call.arguments"])
    assert "14" in str(tool["gen_ai.tool.call.result"])


async def test_a_failed_answer_is_an_error_span_without_text(watched: Watched) -> None:
    await watched.client.post_chat("fail", "key")
    agent = (await watched.spans())["invoke_agent rehearsal"]
    assert agent.status.status_code is StatusCode.ERROR
    assert agent.status.description is None
    assert (agent.attributes or {})["error.type"] in ("AgentFailed", "agent_failed")
    assert agent.events == ()


async def test_a_headless_message_is_traced_too(watched: Watched) -> None:
    await watched.client.http.post("/api/v1/agents/rehearsal/message", json={"content": "calculate 1+1"})
    spans = await watched.spans()
    request = spans["POST /api/v1/agents/{agent_id}/message"]
    agent = spans["invoke_agent rehearsal"]
    assert agent.parent is not None
    assert agent.parent.span_id == request.context.span_id
    assert "gen_ai.conversation.id" not in (agent.attributes or {})


async def test_a_turn_without_a_request_starts_its_own_trace(watched: Watched) -> None:
    thread = await watched.threadline.as_user().create_thread()
    await thread.ask("hello")
    assert (await watched.spans())["invoke_agent rehearsal"].parent is None


def test_without_tracing_opentelemetry_is_not_imported() -> None:
    script = (
        "import asyncio, sys, threadline\n"
        "async def main():\n"
        "    async with threadline.open(':memory:') as opened:\n"
        "        await (await opened.as_user().create_thread()).ask('hi')\n"
        "asyncio.run(main())\n"
        "assert not any(name.startswith('opentelemetry') for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=30)


def test_without_the_extra_the_error_names_it() -> None:
    script = (
        "import asyncio, sys, threadline\n"
        "from threadline.settings import Settings, TracingSettings\n"
        "sys.modules['opentelemetry'] = None\n"
        "async def main():\n"
        "    await threadline.open(settings=Settings(database=':memory:', tracing=TracingSettings(enabled=True)))\n"
        "try:\n"
        "    asyncio.run(main())\n"
        "except threadline.ThreadlineError as exc:\n"
        '    assert "threadline[otel]" in str(exc), exc\n'
        "else:\n"
        "    raise AssertionError\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=30)
