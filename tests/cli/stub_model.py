"""A server with OpenAI's chat API whose replies a test writes: texts, tool calls, failures. It records each request."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple


class Call(NamedTuple):
    """A tool call in a reply. A string is sent as the input as it is, valid or not."""

    name: str
    input: dict[str, Any] | str


class StubModel:
    """`replies` are used up in order, the last one again and again. A list is one reply of several pieces: strings and
    Calls. `models` is what /v1/models lists."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.host, self.port = address
        self.replies: list[list[str | Call]] = [["Hello from the stub."]]
        self.models = ["stub-small", "stub-large"]
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.required_key: str | None = None
        """Requests with another key, or without one, are refused."""
        self.hold_after: int | None = None
        """Requests after so many wait until `release`."""
        self._released = threading.Event()
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}/v1"

    def next_reply(self, request: dict[str, Any]) -> list[str | Call]:
        with self._lock:
            self.requests.append(request)
            return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]

    def wait(self) -> None:
        if self.hold_after is not None and len(self.requests) > self.hold_after:
            # Bounded, so that a failing test ends.
            self._released.wait(60)

    def release(self) -> None:
        self._released.set()

    def questions(self) -> list[str]:
        """The last user message of each request."""
        said = [[m["content"] for m in request["messages"] if m["role"] == "user"] for request in self.requests]
        return [_text(messages[-1]) for messages in said if messages]

    def results(self) -> list[str]:
        """What tools gave back, as the model saw it, in the last request."""
        return [_text(m["content"]) for m in self.requests[-1]["messages"] if m["role"] == "tool"]

    def write_settings(self, path: Path, *more: str) -> None:
        """A settings file whose default agent is this model."""
        agent = '[agents.stub]\nprovider = "openai"\nmodel = "stub-small"'
        lines = ['agent = "stub"', *more, agent, f'settings = {{ base_url = "{self.url}", api_key = "none" }}']
        path.write_text("\n".join(lines) + "\n")


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _chunks(model: str, reply: list[str | Call], number: int) -> Iterator[dict[str, Any]]:
    head = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 0, "model": model}
    calls = 0
    for piece in reply:
        if isinstance(piece, str):
            delta: dict[str, Any] = {"content": piece}
        else:
            given = piece.input if isinstance(piece.input, str) else json.dumps(piece.input)
            function = {"name": piece.name, "arguments": given}
            call = {"index": calls, "id": f"call_{number}_{calls}", "type": "function", "function": function}
            delta, calls = {"tool_calls": [call]}, calls + 1
        yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if calls else "stop"}]}
    usage = {"prompt_tokens": 1_000, "completion_tokens": 20, "total_tokens": 1_020}
    yield {**head, "choices": [], "usage": usage}


@contextmanager
def serve_model() -> Iterator[StubModel]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if stub.required_key not in (None, (self.headers.get("Authorization") or "").removeprefix("Bearer ")):
                self._send(401, "application/json", b"{}")
                return
            self._send(200, "application/json", json.dumps({"data": [{"id": name} for name in stub.models]}).encode())

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            stub.keys.append(self.headers.get("Authorization"))
            reply = stub.next_reply(request)
            stub.wait()
            events = _chunks(request["model"], reply, len(stub.requests))
            body = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
            self._send(200, "text/event-stream", body.encode())

        def _send(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(ConnectionError):
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Prints nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    stub = StubModel(("127.0.0.1", server.server_port))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield stub
    finally:
        stub.release()
        server.shutdown()
        thread.join()
        server.server_close()
