"""Runs in the environment of the frameworks: LangGraph's conformance suite for checkpointers, and graphs with messages,
on the database that FRAMEWORK_TEST_DATABASE names."""

from __future__ import annotations

import operator
import os
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.graph import START, MessagesState, StateGraph

import threadline
from threadline.adapters.langgraph import ThreadlineSaver

DATABASE = os.environ["FRAMEWORK_TEST_DATABASE"]
SECRET = "sk-proj-" + "Ab3dE5fG7hJ9kL1m" * 3


class OnlySync(ThreadlineSaver):
    """The asynchronous methods of the suite, answered by the synchronous ones."""

    async def aput(self, *args: Any) -> Any:
        return self.put(*args)

    async def aput_writes(self, *args: Any, **options: Any) -> None:
        self.put_writes(*args, **options)

    async def aget_tuple(self, config: Any) -> Any:
        return self.get_tuple(config)

    async def alist(self, config: Any, **options: Any) -> AsyncIterator[Any]:
        for found in self.list(config, **options):
            yield found


async def validate_all(factory: Any) -> None:
    report = await validate(checkpointer_test(name="threadline")(factory))
    failed = {name: result.failures for name, result in report.results.items() if result.passed is not True}
    assert not failed
    assert sum(result.tests_passed for result in report.results.values()) == 81


async def test_the_conformance_suite_passes_whole_asynchronously() -> None:
    async def saver() -> AsyncIterator[ThreadlineSaver]:
        async with threadline.open(DATABASE) as tl:
            yield ThreadlineSaver(tl.as_user(uuid.uuid4().hex))

    await validate_all(saver)


async def test_the_conformance_suite_passes_whole_synchronously() -> None:
    async def saver() -> AsyncIterator[ThreadlineSaver]:
        with threadline.open_sync(DATABASE) as tl:
            yield OnlySync(tl.as_user(uuid.uuid4().hex))

    await validate_all(saver)


def reply(state: MessagesState) -> dict[str, Any]:
    asked = state["messages"][-1].content
    call = {"name": "look", "args": {"q": asked}, "id": f"c{len(state['messages'])}"}
    return {
        "messages": [
            AIMessage("", tool_calls=[call]),
            ToolMessage(f"found {asked}", tool_call_id=call["id"]),
            AIMessage(f"It is {asked}."),
        ]
    }


def chat(saver: ThreadlineSaver) -> Any:
    return StateGraph(MessagesState).add_node("reply", reply).add_edge(START, "reply").compile(checkpointer=saver)


@pytest.fixture
def gateway() -> Iterator[threadline.SyncGateway]:
    with threadline.open_sync(DATABASE) as tl:
        yield tl.as_user(uuid.uuid4().hex)


def ask(graph: Any, text: str, **configurable: str) -> Any:
    config = {"configurable": {"thread_id": "c:1", **configurable}}
    return graph.invoke({"messages": [HumanMessage(text)]}, config)


def test_messages_of_a_graph_are_messages_of_the_thread(gateway: threadline.SyncGateway) -> None:
    ask(chat(ThreadlineSaver(gateway)), "rain")
    # Another process: nothing is known of the thread.
    state = ask(chat(ThreadlineSaver(gateway)), "snow")
    thread = gateway.thread("c:1")
    messages = thread.messages()
    assert [message.role for message in messages] == ["user", "assistant", "assistant", "assistant"] * 2
    assert [message.text for message in messages][3::4] == ["It is rain.", "It is snow."]
    assert messages[2].parts[0].output_value() == "found rain"  # type: ignore[union-attr]  # the result of the call
    assert len(thread.timelines()) == 1
    assert len(state["messages"]) == 8
    assert gateway.search("snow")


def test_a_pasted_secret_breaks_no_graph_and_is_masked_in_the_log(gateway: threadline.SyncGateway) -> None:
    graph = chat(ThreadlineSaver(gateway))
    for number in range(60):
        config = {"configurable": {"thread_id": f"t{number}"}}
        graph.invoke({"messages": [HumanMessage(f"my key is {SECRET}{number}")]}, config)
        state = graph.invoke({"messages": [HumanMessage("go on")]}, config)
        assert state["messages"][0].content == f"my key is {SECRET}{number}"
        assert SECRET not in gateway.thread(f"t{number}").messages()[0].text


def test_a_graph_that_continues_from_an_earlier_checkpoint_continues_the_log_there(
    gateway: threadline.SyncGateway,
) -> None:
    graph = chat(ThreadlineSaver(gateway))
    ask(graph, "one")
    (first,) = [graph.get_state({"configurable": {"thread_id": "c:1"}}).config["configurable"]["checkpoint_id"]]
    ask(graph, "two")
    ask(graph, "three", checkpoint_id=first)
    thread = gateway.thread("c:1")
    assert [m.text for m in thread.messages() if m.role == "user"] == ["one", "three"]
    assert len(thread.timelines()) == 2


class Counter(TypedDict):
    items: Annotated[list[int], operator.add]
    large: bytes


def test_long_lists_and_large_values_are_read_as_they_were_stored(gateway: threadline.SyncGateway) -> None:
    def step(state: Counter) -> dict[str, Any]:
        return {"items": [len(state["items"])]}

    builder = StateGraph(Counter).add_node("step", step).add_edge(START, "step")
    config = {"configurable": {"thread_id": "long"}}
    builder.compile(checkpointer=ThreadlineSaver(gateway)).invoke({"items": [], "large": b"x" * 50_000_000}, config)
    for count in range(2, 40):
        builder.compile(checkpointer=ThreadlineSaver(gateway)).invoke({"items": [count]}, config)
    state = builder.compile(checkpointer=ThreadlineSaver(gateway)).get_state(config).values
    assert state["items"] == [0, *[item for count in range(2, 40) for item in (count, 2 * count - 2)]]
    assert len(state["large"]) == 50_000_000


def test_a_message_that_is_changed_in_place_is_stored_as_it_is(gateway: threadline.SyncGateway) -> None:
    saver = ThreadlineSaver(gateway)
    messages = [HumanMessage(f"question {number}", additional_kwargs={"n": 1}) for number in range(40)]

    def stored(version: int) -> list[BaseMessage]:
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": list(messages)}
        checkpoint["channel_versions"] = {"messages": f"{version:010}.1"}
        config: Any = {"configurable": {"thread_id": "changed", "checkpoint_ns": ""}}
        new: Any = {"messages": f"{version:010}.1"}
        latest = saver.put(config, checkpoint, {"source": "loop", "step": version, "parents": {}}, new)
        # Another process: it knows nothing of the list.
        found = ThreadlineSaver(gateway).get_tuple(latest)
        assert found is not None
        read: list[BaseMessage] = found.checkpoint["channel_values"]["messages"]
        assert read == messages
        return read

    stored(1)
    messages[20].content = "another question"
    assert stored(2)[20].content == "another question"
    messages[3].additional_kwargs["n"] = True
    assert stored(3)[3].additional_kwargs["n"] is True
    messages[5] = AIMessage("question 5", additional_kwargs={"n": 1})
    assert isinstance(stored(4)[5], AIMessage)
    messages[7].additional_kwargs["thing"] = {1, 2}
    assert stored(5)[7].additional_kwargs["thing"] == {1, 2}
    del messages[10:]
    assert len(stored(6)) == 10
    shown = gateway.thread("changed").messages()
    assert [message.text for message in shown][3:6] == ["question 3", "question 4", "question 5"]
