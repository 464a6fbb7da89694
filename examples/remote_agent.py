"""An agent behind HTTP in one file, with the standard library only. It shows what Threadline sends and what it accepts.

    python examples/remote_agent.py 9000

Then in threadline.toml:

    [agents.example]
    provider = "remote"
    url = "http://127.0.0.1:9000/"

The request is `{"messages": […], "role": …, "content": …}`: the whole conversation in the format of OpenAI's chat API,
and the text of the current message. The header `Idempotency-Key` is the turn's id: a repeated request is the same turn.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def answer(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The reply as chunks of the AI SDK: a tool that this agent ran itself, a text, and what the question asks for."""
    messages = body["messages"]
    pictures = sum(
        part.get("type") == "image_url"
        for message in messages
        if isinstance(message.get("content"), list)
        for part in message["content"]
    )
    calls = sum(len(message.get("tool_calls") or ()) for message in messages)
    count = {"messages": len(messages), "pictures": pictures, "calls": calls}
    chunks: list[dict[str, Any]] = [
        {"type": "tool-input-available", "toolCallId": f"count-{calls}", "toolName": "count", "input": {}},
        {"type": "tool-output-available", "toolCallId": f"count-{calls}", "output": count},
        {"type": "text-delta", "delta": f"I got {len(messages)} messages, {pictures} pictures and {calls} calls."},
    ]
    if "picture" in body.get("content", ""):
        chunks.append({"type": "file", "mediaType": "image/png", "url": PIXEL})
    if "source" in body.get("content", ""):
        chunks.append({"type": "source-url", "sourceId": "s1", "url": "https://example.org/", "title": "Example"})
    return [*chunks, {"type": "usage", "input_tokens": 10, "output_tokens": 5}, {"type": "finish"}]


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        try:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            chunks = answer(body)
        except (KeyError, TypeError, ValueError):
            self.send_error(400, "body must be a JSON object with messages")
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for chunk in chunks:
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, format: str, *args: Any) -> None:
        """Silent: the service logs the turn."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 9000), Handler)
    sys.stdout.write(f"listening on http://127.0.0.1:{server.server_port}/\n")
    sys.stdout.flush()
    server.serve_forever()
