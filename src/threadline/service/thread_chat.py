"""Chat completions on a thread: the last message is asked there, and the thread has the conversation before it.

The messages that a client sends before its last one are not stored again. System messages are the turn's instructions;
results of tools at the end answer the calls of the thread's last reply.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from threadline.bootstrap import Threadline
from threadline.core import events
from threadline.core.approvals import Answer, ToolOutput
from threadline.core.chat_messages import from_chat
from threadline.core.client_tools import ClientTool
from threadline.core.dispatch import normalize
from threadline.core.errors import AgentFailed, InvalidInput, NotFound
from threadline.core.event_fold import Fold
from threadline.core.messages import NewMessage
from threadline.core.model_options import read_model_options
from threadline.core.parts import plain_text
from threadline.core.threads import Scope
from threadline.core.turn_commits import Accepted
from threadline.core.turn_options import TurnOptions
from threadline.core.turns import BEGUN, CUT_SHORT, Turn
from threadline.service.aisdk.chunk_writer import KEEP_ALIVE
from threadline.service.openai_api.api_bodies import ChatCompletionBody, split_model
from threadline.service.openai_api.chat_objects import ChatWriter, chat_completion
from threadline.turns.acceptance import TurnRequest
from threadline.turns.approvals import AnswerRequest
from threadline.turns.streams import find_reply

THREAD = "thread"
"""In the metadata of a chat completion: the id or the key of its thread."""


class ThreadChat:
    def __init__(self, threadline: Threadline, heartbeat_seconds: float) -> None:
        self._threadline = threadline
        self._heartbeat_seconds = heartbeat_seconds

    async def accept(
        self,
        scope: Scope,
        name: str,
        body: ChatCompletionBody,
        given: Mapping[str, Any],
        tools: tuple[ClientTool, ...],
        key: str | None,
    ) -> Accepted:
        """A thread that does not exist is created under this key. The errors of `Turns.accept`."""
        sent = normalize(given)
        said = from_chat(sent)
        options = TurnOptions(
            instructions="\n\n".join(plain_text(each.parts) for each in said if each.role == "system") or None,
            response_format=body.response_format,
            metadata={field: value for field, value in (body.metadata or {}).items() if field != THREAD},
            model_options=read_model_options(given),
        )
        thread_id = await self._find(scope, name)
        holder = self._threadline.runner.holder()
        if answers := _last_results(sent):
            if thread_id is None:
                raise NotFound("thread", name)
            answer = AnswerRequest(thread_id, answers, "api", key=key, client_tools=tools, options=options)
            return await self._threadline.approvals.accept(scope, answer, holder)
        if not said or said[-1].role != "user":
            raise InvalidInput("`messages` must end with a message of the user or results of tools on a thread")
        agent_id, model = split_model(body.model, self._threadline.settings.agent)
        request = TurnRequest(
            message=NewMessage("user", said[-1].parts),
            surface="api",
            thread_id=thread_id,
            state_key=name if thread_id is None else None,
            agent_id=agent_id,
            model=model,
            key=key,
            client_tools=tools,
            options=options,
        )
        return await self._threadline.turns.accept(scope, request, holder)

    async def _find(self, scope: Scope, name: str) -> str | None:
        try:
            return (await self._threadline.threads(scope).find(name)).id
        except NotFound:
            return None

    async def completion(self, scope: Scope, turn: Turn, model: str) -> dict[str, Any]:
        """The completion when the turn has ended. AgentFailed."""
        async for _ in self._threadline.streams.read(scope, turn.id):
            pass
        session = self._threadline.store.scoped(scope)
        ended = await session.turn(turn.id) or turn
        if ended.status not in ("executed", "stopped"):
            raise AgentFailed(ended.error or "the agent failed")
        reply = await find_reply(session, ended)
        parts = () if reply is None else reply.parts[ended.seen.get(BEGUN, {}).get("parts", 0) :]
        return chat_completion(
            turn.id, model, turn.created_at.timestamp(), parts, ended.usage, ended.seen.get(CUT_SHORT)
        )

    async def frames(
        self, scope: Scope, turn: Turn, writer: ChatWriter, *, with_usage: bool
    ) -> AsyncGenerator[bytes, None]:
        yield writer.start()
        fold, error = Fold(), None
        streams = self._threadline.streams.batches(scope, turn.id, quiet_seconds=self._heartbeat_seconds)
        async with aclosing(streams) as batches:
            async for batch in batches:
                frames: list[bytes] = []
                for each in batch:
                    fold.add(each.event)
                    error = each.event.error if isinstance(each.event, events.Failure) else error
                    frames.extend(writer.event(each.event))
                yield b"".join(frames) or KEEP_ALIVE
        ended = await self._threadline.store.scoped(scope).turn(turn.id)
        usage = ended.usage if with_usage and ended is not None else None
        yield b"".join(writer.end(error, usage, fold.finish))


def _last_results(sent: Sequence[Mapping[str, Any]]) -> dict[str, Answer]:
    """The results of tools that the messages end with."""
    found: dict[str, Answer] = {}
    for message in reversed(sent):
        match message:
            case {"role": "tool", "tool_call_id": str(call_id)}:
                content = message.get("content")
                found[call_id] = ToolOutput(content if isinstance(content, str) else plain_text(_parts(message)))
            case _:
                break
    return found


def _parts(message: Mapping[str, Any]) -> Any:
    return [part for each in from_chat([{**message, "role": "user"}]) for part in each.parts]
