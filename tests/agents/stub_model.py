"""A scripted server with OpenAI's chat API: it answers each request with the next entry of its script.

An entry is a text, a list of tool calls `(name, input)`, where an input that is a text is sent as it is, or a function
of the request that returns either. The last entry is repeated. Requests are kept as they were sent.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

Reply: TypeAlias = str | Sequence[tuple[str, Any]]
Entry: TypeAlias = Reply | Callable[[dict[str, Any]], Reply]


class StubModel:
    def __init__(self, script: Sequence[Entry]) -> None:
        self._script = list(script)
        self._calls = 0
        self.url = ""
        self.requests: list[dict[str, Any]] = []

    @property
    def offered(self) -> list[str]:
        """The names of the tools in the newest request."""
        return [tool["function"]["name"] for tool in self.requests[-1].get("tools", [])]

    @property
    def results(self) -> list[str]:
        """The results of tools in the newest request."""
        return [message["content"] for message in self.requests[-1]["messages"] if message["role"] == "tool"]

    def settings(self, **more: Any) -> dict[str, Any]:
        """Those of an agent on this server."""
        return {"base_url": self.url, "api_key": "none", "attempts": 1, **more}

    def toml(self, agent: str = "") -> str:
        """A settings file with the agent `helper` on this server; `agent` is added to its section."""
        return (
            'agent = "helper"\n[titles]\nby_model = false\n[agents.helper]\nprovider = "openai"\nmodel = "stub"\n'
            f'settings = {{ base_url = "{self.url}", api_key = "none", attempts = 1 }}\n{agent}\n'
        )

    def respond(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """The chunks of the next reply."""
        entry = self._script[min(len(self.requests), len(self._script) - 1)]
        self.requests.append(body)
        reply = entry(body) if callable(entry) else entry
        if isinstance(reply, str):
            return [_chunk({"content": reply}), _chunk({}, "stop")]
        calls = []
        for index, (name, given) in enumerate(reply):
            self._calls += 1
            arguments = given if isinstance(given, str) else json.dumps(given)
            function = {"name": name, "arguments": arguments}
            calls.append({"index": index, "id": f"call_{self._calls}", "type": "function", "function": function})
        return [_chunk({"tool_calls": calls}), _chunk({}, "tool_calls")]


def _chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": "stub", "choices": [choice]}


@contextmanager
def stub_model(*script: Entry) -> Iterator[StubModel]:
    stub = StubModel(script)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            chunks = stub.respond(body)
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            for chunk in chunks:
                self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")

        def log_message(self, *_: Any) -> None:
            """Keeps the output of tests quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    stub.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield stub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
