"""An agent of Google's Agent Development Kit as an agent here.

Each turn is one run in a session of its own in memory, which begins with the conversation. ADK's questions for
confirmation are put to the turn's approver. If that defers one, the turn ends; the turn that brings the decisions
begins with a session that contains the questions, and answers them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.apps import App
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService

from threadline.adapters.adk.prompt_events import decision_message, to_session
from threadline.adapters.adk.run_events import RunEvents
from threadline.adapters.framework_agent import Framework, Handover, run_framework
from threadline.agents.limits import RunLimits
from threadline.core.errors import InvalidInput
from threadline.core.events import ApprovalRequest, Event, Finish, ToolDenied
from threadline.core.ids import new_id
from threadline.core.prompts import Prompt
from threadline.ports import AgentServices

# ADK has no error class of its own: what it reports comes as an event.
_FRAMEWORK = Framework("Google ADK", ())
_APP = "threadline"


def agent(
    given: BaseAgent | App, *, run_config: RunConfig | None = None, limits: RunLimits | None = None, **services: Any
) -> ADKAgent:
    """`services` are those of a `Runner`: `artifact_service`, `memory_service`, `credential_service`."""
    return ADKAgent(given, run_config=run_config, limits=limits, **services)


class ADKAgent:
    """The model is always the agent's own: ADK takes no other one for a run."""

    def __init__(
        self,
        given: BaseAgent | App,
        *,
        run_config: RunConfig | None = None,
        limits: RunLimits | None = None,
        **services: Any,
    ) -> None:
        if not isinstance(given, BaseAgent | App):
            raise InvalidInput(f"an ADK agent must be an agent or an App of google.adk, got {type(given).__name__}")
        if "session_service" in services:
            raise InvalidInput("`session_service` cannot be given: Threadline keeps the conversation")
        self._app = given if isinstance(given, App) else App(name=_APP, root_agent=given)
        self._config = run_config or RunConfig(streaming_mode=StreamingMode.SSE)
        self._limits = limits
        self._services = services

    def run(self, prompt: Prompt, services: AgentServices) -> AsyncGenerator[Event, None]:
        return run_framework(_FRAMEWORK, self._reply, prompt, services, self._limits)

    async def close(self) -> None:
        """Nothing to close: the agent and its toolsets belong to their program."""

    async def _reply(self, handover: Handover, prompt: Prompt, services: AgentServices) -> AsyncGenerator[Event, None]:
        root: Any = self._app.root_agent
        decided_by = await _find_owner(root, handover.decided[0].name) if handover.decided else root.name
        history = to_session(handover, root.name, decided_by)
        events = RunEvents(handover.decided_ids)
        # Not closed after the run: that would close the toolsets of the agent, which other turns use.
        app = self._app.model_copy(update={"plugins": [*self._app.plugins, _Context(handover.system)]})
        sessions = InMemorySessionService()
        runner = Runner(app=app, session_service=sessions, **self._services)
        place = {"user_id": "user", "session_id": prompt.turn_id or new_id()}
        session = await sessions.create_session(app_name=runner.app_name, **place)
        for event in history.events:
            await sessions.append_event(session, event)
        message = history.message
        while True:
            run = runner.run_async(new_message=message, run_config=self._config, **place)
            async with aclosing(run) as items:
                async for item in items:
                    for made in events.read(item):
                        yield made
            asked, events.questions = events.questions, {}
            if not asked:
                break
            verdicts = {question: await services.approver.decide(call) for question, call in asked.items()}
            if any(verdict.answer == "defer" for verdict in verdicts.values()):
                # One question for all of them: a run continues only when every call has its decision.
                for call in asked.values():
                    yield ApprovalRequest(call.call_id, new_id())
                yield Finish("tool-calls")
                return
            for question, call in asked.items():
                if verdicts[question].answer == "deny":
                    yield ToolDenied(call.call_id, verdicts[question].reason)
            message = decision_message({question: each.answer == "allow" for question, each in verdicts.items()})
        for made in events.end():
            yield made


class _Context(BasePlugin):
    """What the model is told beside the instructions of its agent."""

    def __init__(self, system: str) -> None:
        super().__init__(name="threadline_context")
        self._system = system

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        if self._system:
            llm_request.append_instructions([self._system])


async def _find_owner(root: BaseAgent, tool: str) -> str:
    """The name of the agent that has the tool: the root, or one below it."""
    for each in _below(root):
        if isinstance(each, LlmAgent) and any(one.name == tool for one in await each.canonical_tools()):
            return str(each.name)
    return str(root.name)


def _below(root: BaseAgent) -> list[BaseAgent]:
    return [root, *(each for child in root.sub_agents for each in _below(child))]
