"""`threadline …` in a process of its own that is killed with kill -9 in a phase of its first tool call.

The phases are those of a call: its intent is stored, the tool runs, its result is stored, the turn is finished. The
kill hits the process just before or after such a step, wherever the machine's load puts the others. Processes are
forked from one that has imported everything, so that dying is cheap.
"""

from __future__ import annotations

import functools
import importlib
import multiprocessing
import os
import signal
from collections.abc import Awaitable, Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import openai

from threadline.cli.main import main
from threadline.core.masking import SecretMasker
from threadline.turns.acceptance import Turns
from threadline.turns.journal import StoredJournal

Phase: TypeAlias = Literal[
    "before the intent", "after the intent", "during the call", "before the result", "after the result",
    "before the finish",
]  # fmt: skip
PHASES: tuple[Phase, ...] = get_args(Phase)
DIES = "DIES_IN_THE_TOOL"

# What is imported or made when it is first used, before the first child is forked.
_ON_USE = (
    "threadline.agents.openai",
    "threadline.cli.chat.command",
    "threadline.cli.chat.memory_copy",
    "threadline.cli.chat.one_question",
    "threadline.cli.serve",
)
for module in _ON_USE:
    importlib.import_module(module)
_ = openai.AsyncOpenAI(api_key="none").chat.completions
SecretMasker().mask_text("")


class Step(NamedTuple):
    owner: type
    name: str
    is_after: bool


_STEPS: dict[Phase, Step] = {
    "before the intent": Step(StoredJournal, "begin", is_after=False),
    "after the intent": Step(StoredJournal, "begin", is_after=True),
    "before the result": Step(StoredJournal, "end", is_after=False),
    "after the result": Step(StoredJournal, "end", is_after=True),
    "before the finish": Step(Turns, "finish", is_after=False),
}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(phase: Phase) -> None:
    """From now on this process dies in the phase. During the call it is the tool that kills it."""
    if phase == "during the call":
        os.environ[DIES] = "yes"
        return
    step = _STEPS[phase]
    setattr(step.owner, step.name, _deadly(getattr(step.owner, step.name), is_after=step.is_after))


def _deadly(method: Callable[..., Awaitable[Any]], *, is_after: bool) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(method)
    async def call(*given: Any, **named: Any) -> Any:
        if is_after:
            await method(*given, **named)
        die()

    return call


def run(home: Path, words: tuple[str, ...], phase: Phase | None) -> None:
    os.chdir(home)
    os.environ |= {"HOME": str(home), "THREADLINE_TITLES__BY_MODEL": "false"}
    with (home / "log").open("a") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    if phase is not None:
        arm(phase)
    os._exit(main(words))


def start(home: Path, *words: str, phase: Phase | None = None) -> ForkServerProcess:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    process = context.Process(target=run, args=(home, words, phase), daemon=True)
    process.start()
    return process
