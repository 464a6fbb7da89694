"""Runs in the environment of the frameworks: LangChain's chat histories, on the database that FRAMEWORK_TEST_DATABASE
names."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables.history import RunnableWithMessageHistory

import threadline
from threadline.adapters.langchain import ThreadlineChatMessageHistory

DATABASE = os.environ["FRAMEWORK_TEST_DATABASE"]
SECRET = "sk-proj-" + "Ab3dE5fG7hJ9kL1m" * 3
pytestmark = pytest.mark.filterwarnings("ignore")
CALL: Any = {"name": "look", "args": {"q": "rain"}, "id": "c1", "type": "tool_call"}
EVERY_KIND = [
    SystemMessage("You are brief."),
    HumanMessage("Hi", name="Ada", id="m1", additional_kwargs={"mood": "good"}),
    HumanMessage(
        [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "https://a.example/x.png"}}]
    ),
    AIMessage("", tool_calls=[CALL], usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}),
    ToolMessage("it rains", tool_call_id="c1", artifact={"raw": [1, 2]}),
    AIMessage([{"type": "reasoning", "reasoning": "So."}, {"type": "text", "text": "It rains.", "annotations": []}]),
    AIMessage("plain", response_metadata={"model_name": "m"}),
    ChatMessage("in a role of its own", role="critic"),
    HumanMessage("bye"),
]


@pytest.fixture
def gateway() -> Iterator[threadline.SyncGateway]:
    with threadline.open_sync(DATABASE) as tl:
        yield tl.as_user(uuid.uuid4().hex)


def test_every_kind_of_message_is_read_back_equal(gateway: threadline.SyncGateway) -> None:
    history = ThreadlineChatMessageHistory(gateway, "trip:1")
    assert history.messages == []
    history.add_messages(EVERY_KIND[:4])
    history.add_messages(EVERY_KIND[4:])
    assert ThreadlineChatMessageHistory(gateway, "trip:1").messages == EVERY_KIND
    shown = gateway.thread("trip:1").messages()
    assert [message.role for message in shown] == [
        "system", "user", "user", "assistant", "assistant", "assistant", "assistant", "assistant", "user",
    ]  # fmt: skip
    assert [message.text for message in shown][-4:] == ["It rains.", "plain", "in a role of its own", "bye"]
    assert shown[4].parts[0].name == "look"  # type: ignore[union-attr]  # the result of the call
    assert gateway.search("rains")


def test_what_others_add_is_read_too_and_a_cleared_history_is_empty(gateway: threadline.SyncGateway) -> None:
    history = ThreadlineChatMessageHistory(gateway, "trip")
    history.add_user_message("one")
    gateway.thread("trip").append(threadline.assistant("from elsewhere"))
    assert [(message.type, message.content) for message in history.messages] == [
        ("human", "one"),
        ("ai", "from elsewhere"),
    ]
    history.clear()
    assert history.messages == []
    history.add_ai_message("again")
    assert [message.content for message in history.messages] == ["again"]
    assert len(gateway.thread("trip").timelines()) == 2
    ThreadlineChatMessageHistory(gateway, "unknown").clear()
    with pytest.raises(threadline.NotFound):
        gateway.thread("unknown")


def test_bad_messages_store_nothing_and_secrets_are_masked(gateway: threadline.SyncGateway) -> None:
    history = ThreadlineChatMessageHistory(gateway, "trip")
    bad: list[Any] = [HumanMessage("fine"), HumanMessage("x", additional_kwargs={"odd": object()})]
    with pytest.raises(threadline.InvalidInput):
        history.add_messages(bad)
    with pytest.raises(threadline.InvalidInput, match="must be a message of LangChain, got str"):
        history.add_messages([*bad[:1], "text"])
    with pytest.raises(threadline.LimitExceeded):
        history.add_messages([*bad[:1], HumanMessage("x" * 2_000_000)])
    assert history.messages == []
    history.add_messages([HumanMessage(f"my key is {SECRET}", name="Ada"), HumanMessage("next")])
    first, second = history.messages
    assert SECRET not in str(first.content)
    assert (first.name, second.content) == ("Ada", "next")


def chain() -> Any:
    prompt = ChatPromptTemplate.from_messages([MessagesPlaceholder("history"), ("human", "{question}")])
    model = GenericFakeChatModel(messages=iter([AIMessage("Hello Ada."), AIMessage("You are Ada.")]))
    seen: list[list[BaseMessage]] = []

    def look(given: Any) -> Any:
        seen.append(given.to_messages())
        return given

    return prompt | look | model, seen


CONFIG: Any = {"configurable": {"session_id": "trip"}}


def test_a_chain_with_a_history(gateway: threadline.SyncGateway) -> None:
    runnable, seen = chain()
    talk = RunnableWithMessageHistory(
        runnable,
        lambda session_id: ThreadlineChatMessageHistory(gateway, session_id),
        input_messages_key="question",
        history_messages_key="history",
    )
    talk.invoke({"question": "I am Ada."}, CONFIG)
    assert talk.invoke({"question": "Who am I?"}, CONFIG).content == "You are Ada."
    assert [message.content for message in seen[1]] == ["I am Ada.", "Hello Ada.", "Who am I?"]
    assert [message.text for message in gateway.thread("trip").messages()] == [
        "I am Ada.", "Hello Ada.", "Who am I?", "You are Ada.",
    ]  # fmt: skip


async def test_a_chain_with_a_history_asynchronously() -> None:
    async with threadline.open(DATABASE) as tl:
        me = tl.as_user(uuid.uuid4().hex)
        runnable, seen = chain()
        talk = RunnableWithMessageHistory(
            runnable,
            lambda session_id: ThreadlineChatMessageHistory(me, session_id),
            input_messages_key="question",
            history_messages_key="history",
        )
        await talk.ainvoke({"question": "I am Ada."}, CONFIG)
        assert (await talk.ainvoke({"question": "Who am I?"}, CONFIG)).content == "You are Ada."
        assert [message.content for message in seen[1]] == ["I am Ada.", "Hello Ada.", "Who am I?"]
        with pytest.raises(threadline.InvalidInput, match="would block its own event loop"):
            _ = ThreadlineChatMessageHistory(me, "trip").messages
