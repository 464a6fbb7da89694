"""Events of a turn as the stream events of a response, numbered from 0.

The same turn gives the same events with the same numbers, so a reader that has number N gets those after it. The
numbers of parts are those of the stored reply: items have the same ids in the stream and when they are read later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from threadline.core import events, jsontext
from threadline.core.event_fold import Fold
from threadline.core.events import Event
from threadline.service.openai_api.output_items import (
    approval_item,
    function_item,
    reasoning_item,
    server_item,
    text_content,
    text_item,
)

_ENDS = {"completed": "response.completed", "incomplete": "response.incomplete"}


class _OpenItem:
    """An item whose content is still coming."""

    def __init__(self, item: dict[str, Any], index: int, number: int) -> None:
        self.item = item
        self.index = index
        self.number = number
        self.text = ""

    @property
    def place(self) -> dict[str, Any]:
        return {"item_id": self.item["id"], "output_index": self.index}


class ResponseWriter:
    def __init__(self, message_id: str, client_tools: Collection[str], *, first_part: int = 0) -> None:
        self._message_id = message_id
        self._client_tools = client_tools
        self._first_part = first_part
        self._fold = Fold()
        self._next_number = 0
        self._items = 0
        self._open: _OpenItem | None = None
        self._calls: dict[str, _OpenItem] = {}

    def start(self, response: dict[str, Any]) -> Iterator[tuple[int, bytes]]:
        if response["background"]:
            yield self._frame("response.queued", response={**response, "status": "queued"})
        yield self._frame("response.created", response={**response, "status": "in_progress"})
        yield self._frame("response.in_progress", response={**response, "status": "in_progress"})

    def event(self, event: Event) -> Iterator[tuple[int, bytes]]:
        self._fold.add(event)
        match event:
            case events.TextDelta():
                yield from self._add_text(event.text)
            case events.FinalText():
                if self._open is not None and self._open.item["type"] == "message":
                    self._open.text = event.text
            case events.ReasoningDelta():
                yield from self._add_reasoning(event.text)
            case events.ToolInputStart() | events.ToolInputDelta() | events.ToolCall():
                yield from self._call_event(event)
            case events.ApprovalRequest():
                yield from self._ask(event)
            case events.ToolResult() | events.ToolError() | events.ToolDenied():
                yield from self._outcome(event)
            case events.ReasoningEnd() | events.StepStart() | events.Finish() | events.Failure():
                yield from self._close()
            case events.Restart():
                yield from self._close()
                self._calls.clear()

    def _call_event(
        self, event: events.ToolInputStart | events.ToolInputDelta | events.ToolCall
    ) -> Iterator[tuple[int, bytes]]:
        match event:
            case events.ToolInputStart():
                return self._begin_call(event.call_id, event.name)
            case events.ToolInputDelta():
                return self._add_input(event.call_id, event.text)
            case events.ToolCall():
                return self._end_input(event)

    def _outcome(self, event: events.ToolResult | events.ToolError | events.ToolDenied) -> Iterator[tuple[int, bytes]]:
        match event:
            case events.ToolError():
                return self._end_call(event.call_id, error=event.error)
            case events.ToolDenied():
                return self._end_call(event.call_id, error=event.reason or "denied")
            case events.ToolResult(preliminary=True):
                return iter(())
            case events.ToolResult():
                text = event.output if isinstance(event.output, str) else jsontext.dump(event.output, "output").decode()
                return self._end_call(event.call_id, output=text)

    def end(self, response: dict[str, Any]) -> Iterator[tuple[int, bytes]]:
        yield from self._close()
        yield self._frame(_ENDS.get(response["status"], "response.failed"), response=response)

    def _frame(self, kind: str, **fields: Any) -> tuple[int, bytes]:
        number = self._next_number
        self._next_number += 1
        body = jsontext.dump({"type": kind, "sequence_number": number, **fields}, "stream event")
        return number, b"event: %s\ndata: %s\n\n" % (kind.encode(), body)

    @property
    def _part(self) -> int:
        """The number of the newest part of the reply."""
        return self._first_part + self._fold.part_count - 1

    def _add_item(self, item: dict[str, Any]) -> tuple[_OpenItem, tuple[int, bytes]]:
        opened = _OpenItem(item, self._items, self._part)
        self._items += 1
        return opened, self._frame("response.output_item.added", output_index=opened.index, item=item)

    def _done(self, opened: _OpenItem, item: dict[str, Any]) -> tuple[int, bytes]:
        return self._frame("response.output_item.done", output_index=opened.index, item=item)

    def _add_text(self, text: str) -> Iterator[tuple[int, bytes]]:
        if self._open is None or self._open.item["type"] != "message":
            yield from self._close()
            self._open, added = self._add_item(text_item(self._message_id, self._part, "", "in_progress"))
            yield added
            part = text_content("")
            yield self._frame("response.content_part.added", **self._open.place, content_index=0, part=part)
        self._open.text += text
        place = {**self._open.place, "content_index": 0}
        yield self._frame("response.output_text.delta", **place, delta=text, logprobs=[])

    def _add_reasoning(self, text: str) -> Iterator[tuple[int, bytes]]:
        if self._open is None or self._open.item["type"] != "reasoning":
            yield from self._close()
            self._open, added = self._add_item(reasoning_item(self._message_id, self._part, ""))
            yield added
            part = {"type": "summary_text", "text": ""}
            yield self._frame("response.reasoning_summary_part.added", **self._open.place, summary_index=0, part=part)
        self._open.text += text
        yield self._frame("response.reasoning_summary_text.delta", **self._open.place, summary_index=0, delta=text)

    def _close(self) -> Iterator[tuple[int, bytes]]:
        """Ends the open text or reasoning."""
        opened, self._open = self._open, None
        if opened is None:
            return
        text = opened.text
        if opened.item["type"] == "message":
            place = {**opened.place, "content_index": 0}
            yield self._frame("response.output_text.done", **place, text=text, logprobs=[])
            yield self._frame("response.content_part.done", **place, part=text_content(text))
            yield self._done(opened, text_item(self._message_id, opened.number, text))
            return
        place = {**opened.place, "summary_index": 0}
        yield self._frame("response.reasoning_summary_text.done", **place, text=text)
        part = {"type": "summary_text", "text": text}
        yield self._frame("response.reasoning_summary_part.done", **place, part=part)
        yield self._done(opened, reasoning_item(self._message_id, opened.number, text))

    def _begin_call(self, call_id: str, name: str) -> Iterator[tuple[int, bytes]]:
        if call_id in self._calls:
            return
        yield from self._close()
        if name in self._client_tools:
            item = function_item(self._message_id, self._part, call_id, name, "", "in_progress")
        else:
            item = server_item(self._message_id, self._part, call_id, name, "")
        self._calls[call_id], added = self._add_item(item)
        yield added

    def _add_input(self, call_id: str, text: str) -> Iterator[tuple[int, bytes]]:
        opened = self._calls.get(call_id)
        if opened is not None:
            opened.text += text
            yield self._frame(f"response.{_arguments(opened)}.delta", **opened.place, delta=text)

    def _end_input(self, event: events.ToolCall) -> Iterator[tuple[int, bytes]]:
        yield from self._begin_call(event.call_id, event.name)
        opened = self._calls[event.call_id]
        arguments = jsontext.dump(event.input, "tool input").decode()
        if not opened.text:
            yield from self._add_input(event.call_id, arguments)
        opened.item = {**opened.item, "arguments": arguments}
        kind = _arguments(opened)
        named = {"name": event.name} if kind.startswith("function") else {}
        yield self._frame(f"response.{kind}.done", **opened.place, arguments=arguments, **named)
        if opened.item["type"] == "function_call":
            yield self._done(opened, {**opened.item, "status": "completed"})
        else:
            yield self._frame("response.mcp_call.in_progress", **opened.place)

    def _ask(self, event: events.ApprovalRequest) -> Iterator[tuple[int, bytes]]:
        opened = self._calls.get(event.call_id)
        if opened is not None:
            item = approval_item(event.approval_id, opened.item["name"], opened.item["arguments"])
            asked, added = self._add_item(item)
            yield added
            yield self._done(asked, item)

    def _end_call(
        self, call_id: str, *, output: str | None = None, error: str | None = None
    ) -> Iterator[tuple[int, bytes]]:
        opened = self._calls.get(call_id)
        if opened is not None and opened.item["type"] == "mcp_call":
            yield self._frame(f"response.mcp_call.{'completed' if error is None else 'failed'}", **opened.place)
            yield self._done(opened, {**opened.item, "output": output, "error": error})


def _arguments(opened: _OpenItem) -> str:
    return "function_call_arguments" if opened.item["type"] == "function_call" else "mcp_call_arguments"
