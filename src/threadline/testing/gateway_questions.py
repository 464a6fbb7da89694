"""The gateway conformance suite, continued: tools that wait for an approval or for the caller's output.

Import it beside `threadline.testing.gateway`, with the same fixture.
"""

from __future__ import annotations

import pytest

from threadline.core import events
from threadline.core.approvals import ToolOutput
from threadline.core.client_tools import ClientTool
from threadline.core.errors import Conflict, InvalidInput
from threadline.core.events import ToolCall
from threadline.core.parts import ToolPart
from threadline.ports import Gateway, Verdict


async def test_an_approval_waits_and_is_answered_later(gateway: Gateway) -> None:
    thread = await gateway.create_thread()
    asked = await thread.ask("stamp hello")
    (waiting,) = await thread.pending()
    assert (waiting.name, waiting.input) == ("stamp", {"text": "hello"})
    reply = await thread.respond({waiting.id: True})
    assert reply.id == asked.id
    assert reply.text.endswith("stamped: hello [2cf24dba].")
    assert (await thread.respond({waiting.id: True})) == reply
    with pytest.raises(Conflict):
        await thread.respond({waiting.id: False})
    assert await thread.pending() == []


async def test_a_client_tool_waits_for_its_output(gateway: Gateway) -> None:
    thread = await gateway.create_thread()
    locate = ClientTool("locate", "Where the user is.")
    asked = await thread.ask('use locate with {"exact": true}', client_tools=[locate])
    (waiting,) = await thread.pending()
    assert (waiting.approval_id, waiting.name, waiting.input) == (None, "locate", {"exact": True})
    with pytest.raises(InvalidInput):
        await thread.respond({"made-up": ToolOutput("Bern")})
    reply = await thread.respond({waiting.id: ToolOutput("Bern")})
    assert (reply.id, reply.text.endswith("The tool locate answered: Bern.")) == (asked.id, True)
    assert (await thread.respond({waiting.id: ToolOutput("Bern")})) == reply
    with pytest.raises(Conflict):
        await thread.respond({waiting.id: ToolOutput(error="no signal")})
    assert await thread.pending() == []


class Judge:
    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.asked: list[ToolCall] = []

    async def decide(self, call: ToolCall) -> Verdict:
        self.asked.append(call)
        return Verdict(self.answer, "because")  # type: ignore[arg-type]


@pytest.mark.parametrize(("answer", "state"), [("allow", "output-available"), ("deny", "output-denied")])
async def test_an_approver_is_asked_at_once_and_the_reply_continues(gateway: Gateway, answer: str, state: str) -> None:
    thread, judge = await gateway.create_thread(), Judge(answer)
    seen = [event async for event in thread.ask("stamp hello", approver=judge)]
    assert [(call.name, call.input) for call in judge.asked] == [("stamp", {"text": "hello"})]
    assert [type(event) for event in seen].count(events.Finish) == 1
    assert not any(isinstance(event, events.ApprovalRequest) for event in seen)
    (call,) = [part for part in (await thread.messages())[1].parts if isinstance(part, ToolPart)]
    assert call.state == state
