"""Finds models that can be used at once: keys in the environment and model servers on this machine.

Nothing is sent but a request for the list of models, and to a provider only with its own key. A probe of a server on
this machine is bounded: a port that nothing listens on is refused at once, a silent one is given up.
"""

from __future__ import annotations

import asyncio
import http.client
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
    if host.startswith("0.0.0.0"):  # noqa: S104 - what a server listens on is reached on this machine
        host = host.replace("0.0.0.0", "127.0.0.1", 1)  # noqa: S104
    if not host:
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
    try:
        address = urlsplit(base_url)
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
    return (await probe_models(source.provider, source.base_url, key, seconds)).models


class Probe(NamedTuple):
    """What a provider answered. `fault` says why it did not answer."""

    models: tuple[str, ...] = ()
    status: int = 0
    fault: str = ""


def find_key(provider: str, settings: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[str, str | None]:
    """The key of an agent, "" if it has none, and the variable that it is read from. A server with an address of its
    own never gets a provider's key."""
    if isinstance(given := settings.get("api_key"), str):
        return "" if given == "none" else given, None
    usual = None if settings.get("base_url") else _usual_variable(provider)
    variable = settings.get("api_key_env") or usual
    return (environ.get(variable, ""), variable) if isinstance(variable, str) else ("", None)


def _usual_variable(provider: str) -> str | None:
    return next((each.key_variable for each in _KEYS if each.provider == provider), None)


async def probe_models(provider: str, base_url: str | None, key: str, seconds: float) -> Probe:
    """Asks for the list of models, with the key if there is one."""
    base = base_url or ("https://api.anthropic.com/v1" if provider == "anthropic" else "https://api.openai.com/v1")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    if provider == "anthropic":
        headers = {"x-api-key": key, "anthropic-version": "2023-06-01"}
        # Anthropic's client adds the version itself.
        base = base if base.rstrip("/").endswith("/v1") else f"{base.rstrip('/')}/v1"

    def read() -> Probe:
        try:
            # The addresses are in the table above, or the operator's own.
            request = urllib.request.Request(f"{base.rstrip('/')}/models", headers=headers)  # noqa: S310
            with urllib.request.urlopen(request, timeout=seconds) as response:  # noqa: S310
                return Probe(_model_names(response.read(_MOST_BYTES)), response.status)
        except urllib.error.HTTPError as exc:
            return Probe(status=exc.code)
        except urllib.error.URLError as exc:
            return Probe(fault=str(exc.reason))
        except (OSError, ValueError, http.client.HTTPException) as exc:
            return Probe(fault=str(exc) or type(exc).__name__)

    return await asyncio.to_thread(read)


async def list_agent_models(agent: AgentSettings, environ: Mapping[str, str], seconds: float) -> tuple[str, ...]:
    """The models that an agent's provider lists. Empty if it cannot be asked, as without a key."""
    address = agent.settings.get("base_url")
    key, _ = find_key(agent.provider, agent.settings, environ)
    if agent.provider not in ("openai", "anthropic") or not (key or isinstance(address, str)):
        return ()
    return (await probe_models(agent.provider, address, key, seconds)).models


def _model_names(body: bytes) -> tuple[str, ...]:
    try:
        listed: Any = json.loads(body)
    except ValueError:
        return ()
    entries = listed.get("data") if isinstance(listed, dict) else None
    names = [entry.get("id") for entry in entries or () if isinstance(entry, dict)]
    return tuple(name for name in names if isinstance(name, str) and name.isprintable())
