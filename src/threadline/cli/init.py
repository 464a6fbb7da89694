"""`threadline init`: finds a model, writes `threadline.toml`, and tests that the model answers.

Keys stay where they are: the file names the environment variable. With `--yes` the first model that is found is used
and nothing is asked.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path

import msgspec

from threadline import bootstrap
from threadline import settings as settings_
from threadline.agents.registry import build_agent
from threadline.cli import settings_file
from threadline.cli.model_search import Source, find_keys, find_servers, list_models
from threadline.cli.output import print_json
from threadline.cli.printable import printable, shorten
from threadline.core.channels import Agent as AgentRow
from threadline.core.errors import AgentFailed, InvalidInput, Refused, ThreadlineError
from threadline.settings import AgentSettings

# A person waits for the list; a server that is loading a model may need a moment to answer.
_SEARCH_SECONDS = 1.5
_LIST_SECONDS = 5.0
# The first question loads a local model into memory.
_TEST_SECONDS = 120.0
_LISTED = 15
_QUESTION = "Reply with the single word: ready"
HOW_TO = """\
No model was found. Any of these makes one available:
  export ANTHROPIC_API_KEY=…    a key of Anthropic; OPENAI_API_KEY and others work as well
  ollama pull qwen3             a model on this machine, from https://ollama.com
  llama-server, LM Studio or vLLM, started on their usual ports
Then run threadline init again. Without a model, `rehearsal` answers: it needs none and shows what an agent is given."""


async def init(args: argparse.Namespace) -> int:
    is_asking = not args.yes and not args.json
    if is_asking and not sys.stdin.isatty():
        raise InvalidInput("threadline init asks questions: run it in a terminal, or add --yes to use the first model")
    found = [*find_keys(os.environ), *await find_servers(os.environ, _SEARCH_SECONDS)]
    if not found:
        print(HOW_TO, file=sys.stderr)
        return 1
    source = _choose_source(found) if is_asking else found[0]
    model = args.model or await _choose_model(source, is_asking=is_asking)
    path = settings_file.file_to_change(args.settings)
    agent_id = _write(path, source, model)
    if not args.json:
        print(f"Wrote agent {agent_id} ({printable(source.title)}, {printable(model)}) to {path}")
    return await _test(args, path, agent_id)


def _choose_source(found: list[Source]) -> Source:
    print("Models can be asked here:")
    for number, source in enumerate(found, start=1):
        where = f"key in ${source.key_variable}" if source.key_variable else f"{source.base_url}"
        print(f"  {number}. {source.title} ({where})")
    return found[_ask_number("Use which one?", len(found)) - 1]


async def _choose_model(source: Source, *, is_asking: bool) -> str:
    models = await list_models(source, _LIST_SECONDS)
    default = source.default_model if source.default_model in models or not models else models[0]
    if not is_asking:
        if default is None:
            raise InvalidInput(f"the models of {source.title} cannot be listed: name one with --model")
        return default
    for number, name in enumerate(models[:_LISTED], start=1):
        print(f"  {number}. {printable(name)}")
    if len(models) > _LISTED:
        print(f"  … {len(models) - _LISTED} more: type the name")
    while True:
        hint = f" [{default}]" if default else ""
        typed = _ask(f"Model, by number or name{hint}: ") or default or ""
        if typed.isdecimal() and 1 <= int(typed) <= min(len(models), _LISTED):
            return models[int(typed) - 1]
        if typed and not typed.isdecimal():
            return typed


def _ask_number(question: str, most: int) -> int:
    while True:
        typed = _ask(f"{question} [1] ") or "1"
        if typed.isdecimal() and 1 <= int(typed) <= most:
            return int(typed)
        print(f"Type a number from 1 to {most}.")


def _ask(question: str) -> str:
    try:
        return input(question).strip()
    except (EOFError, KeyboardInterrupt):
        print()
        raise Refused("cancelled, nothing was written") from None


def _write(path: Path, source: Source, model: str) -> str:
    """Adds the agent and makes it the default. The id under which it is written. SettingsInvalid if the agent cannot be
    built, as with an invalid OPENAI_BASE_URL."""
    text = settings_file.read_text(path)
    known = settings_.load(path, environ={}).agents if path.exists() else {}
    given = {"api_key_env": source.key_variable, "base_url": source.base_url}
    agent = AgentSettings(source.provider, model, settings={name: each for name, each in given.items() if each})
    names = [source.agent_id, *(f"{source.agent_id}-{number}" for number in range(2, 100))]
    agent_id = next(name for name in names if known.get(name, agent) == agent)
    build_agent(AgentRow(agent_id, agent_id, agent.provider, model=model, settings=agent.settings))
    if agent_id not in known:
        text = settings_file.add_agent(text, agent_id, agent)
    settings_file.write(path, settings_file.set_value(text, "agent", agent_id))
    return agent_id


async def _test(args: argparse.Namespace, path: Path, agent_id: str) -> int:
    began = time.monotonic()
    try:
        async with asyncio.timeout(_TEST_SECONDS):
            answer = await _ask_model(path, agent_id)
    except (ThreadlineError, TimeoutError) as exc:
        fault = str(exc) or f"no answer within {_TEST_SECONDS:g} s"
        _report(args, path, agent_id, error=fault)
        return 1
    _report(args, path, agent_id, answer=answer, seconds=round(time.monotonic() - began, 1))
    return 0


async def _ask_model(path: Path, agent_id: str) -> str:
    settings = msgspec.structs.replace(settings_.load(path), database=":memory:", agent=agent_id)
    async with bootstrap.open(settings=settings) as tl:
        thread = await tl.as_user(surface="cli").create_thread(agent_id=agent_id)
        reply = await thread.ask(_QUESTION)
        if not reply.text.strip():
            raise AgentFailed("the model answered nothing")
        return reply.text.strip()


def _report(
    args: argparse.Namespace,
    path: Path,
    agent_id: str,
    *,
    answer: str | None = None,
    error: str | None = None,
    seconds: float | None = None,
) -> None:
    if args.json:
        print_json({"file": str(path), "agentId": agent_id, "answer": answer, "error": error})
    elif error is None:
        print(f"It answers ({seconds} s): {shorten(printable(answer or ''), 60)}")
        print("Next: threadline chat. Give it tools for this folder with threadline chat --tools")
    else:
        print(f"It does not answer: {printable(error)}", file=sys.stderr)
        print("Fix this, then check it with threadline doctor", file=sys.stderr)
