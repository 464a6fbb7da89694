"""Pages of the documentation, run as a reader would: block after block, in one folder, in one namespace.

Every `python` block runs, with `await` at the top if it likes. In `sh` and `console` blocks, commands of `threadline`
run, also behind an `echo … |` or a `printf '%s\\n' … |`. What a `console` block shows below a command must be what it
prints. Ids, times and widths of columns may differ, and `…` in the page matches anything. A `toml` block that
begins with `# threadline.toml` is that file from then on; a `python` block that begins with `# NAME.py` is a module.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

FENCE = re.compile(r"(?ms)^(?P<indent> *)```(?P<language>[a-z]*)[^\n]*\n(?P<text>.*?)^(?P=indent)```$")
RUNNABLE = re.compile(r"((echo|printf '%s\\n') [^|]*\| *)?threadline( |$)")
VARYING = (
    (re.compile(r"\b[0-9a-hjkmnp-tv-z]{26}\b"), "ID"),
    (re.compile(r"\b\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|[+-]\d\d:\d\d)?)?"), "TIME"),
    (re.compile(r"\b\d+(\.\d+)? ?(ms|s|kB|MB|seconds?|minutes? ago|seconds? ago)\b"), "AMOUNT"),
    (re.compile(r"[ \t]+"), " "),
)
FAILS = re.compile(r"^(threadline|error|warning): ", re.MULTILINE)
"""How a page says that a command is meant to fail."""
MODULE = re.compile(r"# (\w+\.py)\n")
COMMAND_SECONDS = 60
SETTINGS = "# threadline.toml\n"


class Block(NamedTuple):
    language: str
    text: str
    line: int


class Command(NamedTuple):
    words: str
    shown: str


class PageWrong(AssertionError):
    """What a page says is not what happens."""


def blocks(page: str) -> list[Block]:
    return [
        Block(match["language"], _dedent(match["text"], match["indent"]), page.count("\n", 0, match.start("text")) + 1)
        for match in FENCE.finditer(page)
    ]


def _dedent(text: str, indent: str) -> str:
    return "".join(line.removeprefix(indent) for line in text.splitlines(keepends=True))


def run_page(path: Path, folder: Path) -> None:
    """Runs the page in the folder, which must be the working directory already."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    with asyncio.Runner() as runner:
        for block in blocks(path.read_text(encoding="utf-8")):
            if block.language == "python" and (module := MODULE.match(block.text)):
                (folder / module[1]).write_text(block.text, encoding="utf-8")
            elif block.language == "python":
                run_python(block, path, namespace, runner)
            elif block.language == "toml" and block.text.startswith(SETTINGS):
                (folder / "threadline.toml").write_text(block.text, encoding="utf-8")
            elif block.language in {"sh", "console"}:
                for command in commands(block):
                    run_command(command, f"{path.name}:{block.line}", folder)


def run_python(block: Block, path: Path, namespace: dict[str, Any], runner: asyncio.Runner) -> None:
    source = "\n" * (block.line - 1) + block.text  # so that a traceback names the line of the page
    code = compile(source, str(path), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, namespace)
    if inspect.iscoroutine(result):
        runner.run(result)


def commands(block: Block) -> Iterator[Command]:
    """The commands of a block that run here, each with what the page shows below it."""
    text = block.text.replace("\\\n", " ")
    if block.language == "sh":
        yield from (Command(line, "") for line in text.splitlines() if RUNNABLE.match(line))
        return
    for entry in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        words, _, shown = entry.partition("\n")
        if RUNNABLE.match(words):
            yield Command(words, shown)


def run_command(command: Command, place: str, folder: Path) -> None:
    spoken, _, words = command.words.rpartition("|")
    done = subprocess.run(
        shlex.split(words),
        input=_typed(spoken),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment(folder),
        cwd=folder,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    if command.shown and not is_shown(command.shown, done.stdout):
        raise PageWrong(f"{place} `{command.words}` shows\n{command.shown}\nbut prints\n{done.stdout}")
    if done.returncode and not FAILS.search(command.shown):
        raise PageWrong(f"{place} `{command.words}` ends with {done.returncode}:\n{done.stdout}")


def _typed(spoken: str) -> str:
    """What `echo` or `printf` prints, a line for each word."""
    words = shlex.split(spoken)
    return "".join(f"{word}\n" for word in words[2 if words[:1] == ["printf"] else 1 :])


def environment(folder: Path) -> dict[str, str]:
    """A new user's: nothing set, a home of its own, the `threadline` of this environment first."""
    programs = Path(sys.executable).parent
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("THREADLINE_", "XDG_", "PYTHON"))}
    path = f"{programs}{os.pathsep}{os.environ.get('PATH', '')}"
    return kept | {"HOME": str(folder), "PATH": path, "COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"}


def is_shown(shown: str, printed: str) -> bool:
    pattern = ".*?".join(re.escape(piece) for piece in _settled(shown).split("…"))
    return re.fullmatch(pattern, _settled(printed), re.DOTALL) is not None


def _settled(text: str) -> str:
    for pattern, name in VARYING:
        text = pattern.sub(name, text)
    return "\n".join(line.strip() for line in text.strip().splitlines())
