"""Runs in the environment of the frameworks: an agent of each framework, with a scripted model and tools, as an agent
here."""

from __future__ import annotations

import asyncio
import base64
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import threadline
from tests.frameworks.kits.scripts import Call, Fail, Hang, Item, Say, Script, Think
from tests.service.running_service import serving
from threadline import events
from threadline.agents.limits import RunLimits
from threadline.core.prompts import Prompt, say
from threadline.ports import AgentServices
from threadline.replies import Defer
from threadline.settings import Settings, load
from threadline.testing.agents import MemoryJournal

ALL = ["openai_agents", "pydantic_ai", "langgraph", "adk"]
WITH_APPROVAL = ["openai_agents", "pydantic_ai", "adk"]
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
FIRST: tuple[list[Item], ...] = (
    [Think("Which city?"), Say("Let me look."), Call("population", {"city": "Porto"})],
    [Say("It has 232000.")],
)
every_framework = pytest.mark.parametrize("name", ALL)
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


def make(name: str, script: Script) -> Any:
    return import_module(f"tests.frameworks.kits.{name}_kit").make(script)


def adapted(name: str, script: Script, **options: Any) -> Any:
    return import_module(f"threadline.adapters.{name}").agent(make(name, script), **options)


def opened(name: str, script: Script, database: str = ":memory:") -> Any:
    return threadline.open(database, agents={"helper": adapted(name, script)})


def parts_of(reply: Any, *kinds: str) -> list[dict[str, Any]]:
    return [part for part in reply.to_dict()["parts"] if part["type"].startswith(kinds or ("",))]


@every_framework
async def test_texts_reasoning_tools_and_usage_arrive_while_the_agent_runs(name: str) -> None:
    script = Script(*FIRST)
    async with opened(name, script) as tl:
        me = tl.as_user("ada")
        thread = await me.create_thread(agent_id="helper")
        reply = thread.ask("How many people live in Porto?")
        shown = [event async for event in reply]
        (used,) = await me.usage(by=["user"])
        stored = (await thread.messages())[-1]
    kinds = [type(event).__name__ for event in shown]
    in_order = [
        "ReasoningDelta",
        "TextDelta",
        "TextDelta",
        "ToolCall",
        "ToolResult",
        "StepStart",
        "TextDelta",
        "Finish",
    ]
    left = iter(kinds)
    assert all(kind in left for kind in in_order), kinds
    assert [part.get("text") or part["type"] for part in parts_of(stored, "text", "reasoning", "tool-")] == [
        "Which city?", "Let me look. ", "tool-population", "It has 232000. ",
    ]  # fmt: skip
    (call,) = parts_of(stored, "tool-")
    assert (call["state"], call["input"], str(call["output"])) == ("output-available", {"city": "Porto"}, "232000")
    assert script.ran == ["population Porto"]
    assert used.output_tokens >= 6
    assert used.input_tokens >= 20


@every_framework
async def test_the_agent_gets_the_history_and_what_the_user_pinned(name: str) -> None:
    script = Script(*FIRST, [Say("Again.")])
    async with opened(name, script) as tl:
        me = tl.as_user("ada")
        await me.contexts.set("helper", "I live in Braga.")
        thread = await me.create_thread(agent_id="helper")
        await thread.ask("How many people live in Porto?")
        image = f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}"
        picture = threadline.FilePart("image/png", image, "dot.png")
        await thread.ask(threadline.user([threadline.TextPart("And here?"), picture]))
    seen = script.seen[-1]
    told = ["How many people live in Porto?", "Let me look.", "population", "232000", "It has 232000.", "And here?"]
    places = [seen.index(text) for text in told]
    assert places == sorted(places)
    assert "I live in Braga." in seen
    assert "You are brief." in seen
    assert base64.b64encode(PIXEL).decode() in seen or repr(PIXEL)[2:-1] in seen
    assert seen.count("How many people") == 1


@pytest.mark.parametrize("name", WITH_APPROVAL)
@pytest.mark.parametrize("approved", [True, False])
async def test_a_call_that_needs_approval_waits_for_it_in_another_turn(
    name: str, approved: bool, tmp_path: Path
) -> None:
    database = str(tmp_path / "approvals.db")
    first = Script([Say("I shall."), Call("population", {"city": "Faro"}, "c0"), Call("stamp", {"text": "a"})])
    async with opened(name, first, database) as tl:
        thread = await tl.as_user("ada").create_thread(state_key="t:1", agent_id="helper")
        reply = await thread.ask("Stamp this", approver=threadline.Defer())
        assert [part["state"] for part in parts_of(reply, "tool-")] == ["output-available", "approval-requested"]
        assert first.ran == ["population Faro"]
    # Another process: it knows nothing but what is stored.
    second = Script([Say("That was it.")], [Say("Yes.")])
    async with opened(name, second, database) as tl:
        thread = await tl.as_user("ada").thread("t:1")
        (pending,) = await thread.pending()
        assert (pending.name, pending.input) == ("stamp", {"text": "a"})
        reply = await thread.respond({pending.id: approved})
        assert second.ran == (["stamp a"] if approved else [])
        stamped = parts_of(reply, "tool-stamp")[0]
        assert stamped["state"] == ("output-available" if approved else "output-denied")
        assert stamped.get("output") == ("a [stamped]" if approved else None)
        assert reply.text.endswith("That was it. ")
        await thread.ask("Sure?")
    assert second.seen[-1].count("stamped") == (1 if approved else 0)


@pytest.mark.parametrize("name", WITH_APPROVAL)
async def test_an_approver_decides_while_the_agent_runs(name: str) -> None:
    class OnlyShort:
        async def decide(self, call: events.ToolCall) -> threadline.Verdict:
            return (
                threadline.Verdict("allow") if len(call.input["text"]) < 3 else threadline.Verdict("deny", "too long")
            )

    calls = [Call("stamp", {"text": "a"}, "c1"), Call("stamp", {"text": "long"}, "c2")]
    script = Script(calls, [Say("One of them.")])
    async with opened(name, script) as tl:
        thread = await tl.as_user("ada").create_thread(agent_id="helper")
        reply = await thread.ask("Stamp these", approver=OnlyShort())
    assert script.ran == ["stamp a"]
    assert [part["state"] for part in parts_of(reply, "tool-")] == ["output-available", "output-denied"]
    assert reply.text == "One of them. "


async def test_an_interrupt_of_a_graph_is_an_error_that_says_so() -> None:
    async with opened("langgraph", Script([Call("stamp", {"text": "a"})])) as tl:
        thread = await tl.as_user("ada").create_thread(agent_id="helper")
        with pytest.raises(threadline.AgentFailed, match=r"called interrupt\(\) \(may this be stamped"):
            await thread.ask("Stamp this")


@every_framework
@pytest.mark.parametrize("rounds", [([Hang()],), ([Call("wait", {})],)], ids=["model", "tool"])
async def test_stopping_a_turn_stops_the_run_of_the_framework(name: str, rounds: Any) -> None:
    script = Script(*rounds)
    async with opened(name, script) as tl:
        thread = await tl.as_user("ada").create_thread(agent_id="helper")
        reply = thread.ask("Wait")
        await reply.accept()
        async with asyncio.timeout(120):
            await script.running.wait()
            await reply.stop()
            assert (await reply.ended()).status == "stopped"
            await script.stopped.wait()


@every_framework
async def test_a_reply_that_is_closed_between_two_events_stops_the_run(name: str) -> None:
    script = Script([Call("population", {"city": "Porto"})], [Hang()])
    prompt = Prompt((say("user", "How many people live in Porto?"),))
    reply = adapted(name, script).run(prompt, AgentServices(MemoryJournal(), Defer()))
    async with asyncio.timeout(120):
        async for event in reply:
            if isinstance(event, events.ToolCall):
                break
        await reply.aclose()


class Refused(Exception):
    status_code = 429


@every_framework
async def test_errors_end_the_turn_and_only_those_for_users_are_shown(name: str) -> None:
    script = Script(
        [Fail(Refused("secret of the service"))], [Fail(ValueError("secret of the program"))], [Say("Well.")]
    )
    async with opened(name, script) as tl:
        thread = await tl.as_user("ada").create_thread(agent_id="helper")
        with pytest.raises(threadline.AgentFailed, match=r"the model's service refused the request with HTTP 429$"):
            await thread.ask("One")
        with pytest.raises(threadline.AgentFailed, match=r"the agent failed$"):
            await thread.ask("Two")
        assert (await thread.ask("Three")).text == "Well. "


@every_framework
async def test_a_limit_on_the_time_holds(name: str) -> None:
    agent = adapted(name, Script([Call("wait", {})]), limits=RunLimits(seconds=0.2))
    async with threadline.open(":memory:", agents={"helper": agent}) as tl:
        thread = await tl.as_user("ada").create_thread(agent_id="helper")
        with pytest.raises(threadline.AgentFailed, match=r"longer than 0\.2 s"):
            await thread.ask("Wait")


@every_framework
async def test_the_service_streams_the_agent(name: str) -> None:
    settings = Settings(database=":memory:", agent="helper")
    agents = {"helper": adapted(name, Script(*FIRST))}
    async with threadline.open(settings=settings, agents=agents) as tl, serving(tl) as client:
        chunks = await client.ask("How many?", "web")
    kinds = [chunk["type"] for chunk in chunks]
    assert (
        "".join(chunk["delta"] for chunk in chunks if chunk["type"] == "text-delta") == "Let me look. It has 232000. "
    )
    assert "reasoning-delta" in kinds
    assert kinds.index("tool-input-available") < kinds.index("tool-output-available")


@every_framework
async def test_the_settings_can_name_an_object_of_a_framework(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"settings_of_{name}"
    (tmp_path / f"{module}.py").write_text(
        "from tests.frameworks.kits.scripts import Say, Script\n"
        f"from tests.frameworks.kits.{name}_kit import make\n"
        "helper = make(Script([Say('From a file.')]))\n"
    )
    (tmp_path / "threadline.toml").write_text(
        'database = ":memory:"\nagent = "mine"\n'
        f'[agents.mine]\nprovider = "function"\nsettings = {{ function = "{module}:helper" }}\n'
        f'[agents.wrong]\nprovider = "function"\ntools = ["os:getcwd"]\nsettings = {{ function = "{module}:helper" }}\n'
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    async with threadline.open(settings=load()) as tl:
        thread = await tl.as_user("ada").create_thread()
        assert (await thread.ask("Hello")).text == "From a file. "
        with pytest.raises(threadline.AgentFailed, match="is an agent with its own tools: remove `tools` and `mcp`"):
            await thread.ask("Hello", agent="wrong")


@every_framework
async def test_a_tool_that_ran_when_its_process_was_killed_does_not_run_again(name: str, tmp_path: Path) -> None:
    database = str(tmp_path / "killed.db")
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "ignore", "-m", "tests.frameworks.killed_agent", name, database, str(tmp_path),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert child.stdout is not None
    async with asyncio.timeout(300):
        assert await child.stdout.readline() == b"begun\n"
    child.kill()
    await child.wait()
    script = Script([Say("I do not know.")])
    async with opened(name, script, database) as tl:
        thread = await tl.as_user("ada").thread("t:1")
        reply = await thread.ask("Wait", key="k1", policy="queue")
    (call,) = parts_of(reply, "tool-")
    assert call["state"] == "output-error"
    assert "it is not known whether it took effect" in call["errorText"]
    assert "it is not known whether it took effect" in script.seen[0]
    assert reply.text == "I do not know. "
    assert (tmp_path / "ran").read_text() == "wait\n"


def test_what_cannot_be_an_agent_is_refused_with_the_reason() -> None:
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import START, StateGraph

    from threadline.adapters import adk, langgraph, openai_agents, pydantic_ai

    builder = StateGraph(dict).add_node("n", lambda state: state).add_edge(START, "n")
    with pytest.raises(threadline.InvalidInput, match="must be compiled before it can be an agent, got StateGraph"):
        langgraph.agent(builder)
    with pytest.raises(threadline.InvalidInput, match="compiled without a checkpointer, got one"):
        langgraph.agent(builder.compile(checkpointer=InMemorySaver()))
    with pytest.raises(threadline.InvalidInput, match="must have the key 'messages'"):
        langgraph.agent(builder.compile())
    for module in (adk, openai_agents, pydantic_ai):
        with pytest.raises(threadline.InvalidInput, match=r"must be an? .*, got str"):
            module.agent("helper")
    with pytest.raises(threadline.InvalidInput, match="`session` cannot be given"):
        openai_agents.agent(make("openai_agents", Script()), session=object())
