"""Finds models that can be used at once: keys in the environment and model servers on this machine.

Nothing is sent but a request for the list of models, and to a provider only with its own key. A probe of a server on
this machine is bounded: a port that nothing listens on is refused at once, a silent one is given up.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from threadline.settings import AgentSettings

_MOST_BYTES = 1_000_000


class Source(NamedTuple):
    """Where a model can be asked. `key_variable` names the environment variable with its key; `base_url` is None for
    the provider's own address. `models` is empty if they could not be listed."""

    agent_id: str
    title: str
    provider: str
    key_variable: str | None = None
    base_url: str | None = None
    default_model: str | None = None
    models: tuple[str, ...] = ()


# In the order in which they are offered.
_KEYS = (
    Source("claude", "Anthropic", "anthropic", "ANTHROPIC_API_KEY", default_model="claude-sonnet-5"),
    Source("gpt", "OpenAI", "openai", "OPENAI_API_KEY", default_model="gpt-5-mini"),
    Source("openrouter", "OpenRouter", "openai", "OPENROUTER_API_KEY", "https://openrouter.ai/api/v1"),
    Source("mistral", "Mistral", "openai", "MISTRAL_API_KEY", "https://api.mistral.ai/v1", "mistral-small-latest"),
    Source("groq", "Groq", "openai", "GROQ_API_KEY", "https://api.groq.com/openai/v1"),
    Source("deepseek", "DeepSeek", "openai", "DEEPSEEK_API_KEY", "https://api.deepseek.com/v1", "deepseek-chat"),
)
SERVERS = (
    Source("ollama", "Ollama", "openai", base_url="http://127.0.0.1:11434/v1"),
    Source("lmstudio", "LM Studio", "openai", base_url="http://127.0.0.1:1234/v1"),
    Source("llamacpp", "llama.cpp", "openai", base_url="http://127.0.0.1:8080/v1"),
    Source("vllm", "vLLM", "openai", base_url="http://127.0.0.1:8000/v1"),
)


def find_keys(environ: Mapping[str, str]) -> list[Source]:
    """Providers whose key is in the environment."""
    found = [source for source in _KEYS if source.key_variable and environ.get(source.key_variable)]
    address = environ.get("OPENAI_BASE_URL")
    return [
        source._replace(base_url=address) if address and source.key_variable == "OPENAI_API_KEY" else source
        for source in found
    ]


def usual_servers(environ: Mapping[str, str]) -> list[Source]:
    """Servers at their usual ports; Ollama where `OLLAMA_HOST` says."""
    host = environ.get("OLLAMA_HOST", "").removeprefix("http://").rstrip("/")
    if not host or host.startswith("0.0.0.0"):  # noqa: S104 - compared with, not listened on
        return list(SERVERS)
    address = f"http://{host if ':' in host else f'{host}:11434'}/v1"
    return [SERVERS[0]._replace(base_url=address), *SERVERS[1:]]


async def find_servers(environ: Mapping[str, str], seconds: float) -> list[Source]:
    """The usual servers that answer within so many seconds with at least one model."""
    servers = usual_servers(environ)
    listed = await asyncio.gather(*(list_server_models(each.base_url or "", seconds) for each in servers))
    return [each._replace(models=models) for each, models in zip(servers, listed, strict=True) if models]


async def list_server_models(base_url: str, seconds: float) -> tuple[str, ...]:
    """The models of an OpenAI-compatible server without a key; empty if it does not answer like one. Plain sockets: an
    HTTP client would cost more time to import than the whole search takes."""
    address = urlsplit(base_url)
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(address.hostname, address.port or 80)
            try:
                request = (
                    f"GET {address.path}/models HTTP/1.0\r\nHost: {address.netloc}\r\nAccept: application/json\r\n\r\n"
                )
                writer.write(request.encode())
                raw = await reader.read(_MOST_BYTES)
                while more := await reader.read(_MOST_BYTES):
                    raw += more
                    if len(raw) > _MOST_BYTES:
                        return ()
            finally:
                writer.close()
    except (OSError, TimeoutError, ValueError, UnicodeError):
        return ()
    return _model_names(raw.partition(b"\r\n\r\n")[2])


async def list_models(source: Source, seconds: float) -> tuple[str, ...]:
    """The models of a provider, by its key. Empty if it cannot be asked."""
    if source.models or source.key_variable is None:
        return source.models
    key = os.environ.get(source.key_variable, "")
    base = source.base_url or (
        "https://api.anthropic.com/v1" if source.provider == "anthropic" else "https://api.openai.com/v1"
    )
    headers = {"Authorization": f"Bearer {key}"}
    if source.provider == "anthropic":
        headers = {"x-api-key": key, "anthropic-version": "2023-06-01"}
    request = urllib.request.Request(f"{base}/models", headers=headers)  # noqa: S310 - the addresses are in the table above

    def read() -> bytes:
        with urllib.request.urlopen(request, timeout=seconds) as response:  # noqa: S310 - as above
            found: bytes = response.read(_MOST_BYTES)
            return found

    with contextlib.suppress(OSError, ValueError):
        return _model_names(await asyncio.to_thread(read))
    return ()


async def list_agent_models(agent: AgentSettings, environ: Mapping[str, str], seconds: float) -> tuple[str, ...]:
    """The models that an agent's provider lists. Empty if it cannot be asked, as without a key."""
    address = agent.settings.get("base_url")
    if isinstance(address, str) and address.startswith("http://"):
        return await list_server_models(address, seconds)
    usual = next((each for each in _KEYS if each.provider == agent.provider and not address), None)
    key = agent.settings.get("api_key_env") or (usual.key_variable if usual else None)
    if not isinstance(key, str) or not environ.get(key):
        return ()
    return await list_models(Source("", "", agent.provider, key, address), seconds)


def _model_names(body: bytes) -> tuple[str, ...]:
    try:
        listed: Any = json.loads(body)
    except ValueError:
        return ()
    entries = listed.get("data") if isinstance(listed, dict) else None
    names = [entry.get("id") for entry in entries or () if isinstance(entry, dict)]
    return tuple(name for name in names if isinstance(name, str) and name.isprintable())
