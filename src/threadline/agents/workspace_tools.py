"""Tools for the files of one folder: read, list, search, write, edit, and run a command in it.

All of them ask for approval, so that a rule, a person or a script decides about each call. What a command does is not
confined to the folder: it runs with the rights of the user. Its time and output are bounded, it gets no input, and it
and what it started are ended with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import fnmatch
import os
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from threadline.agents.tool_execution import ToolFailed
from threadline.agents.tools import Tool
from threadline.agents.workspace import Workspace

WRITING = ("write_file", "edit_file")
READING = ("read_file", "list_files", "search_files")
_READ_LINES = 1_000
_LISTED = 1_000
_FOUND = 200
_LINE = 500
_SEARCH_SECONDS = 30.0
_RUN_SECONDS = 600.0
_OUTPUT_BYTES = 30_000
# Between the polite signal and the one that cannot be caught.
_KILL_SECONDS = 2.0
_SKIPPED = frozenset((".git", ".hg", ".venv", "node_modules", "__pycache__", ".mypy_cache", ".ruff_cache"))
# Terminal control sequences (CSI, OSC and two-character ones): colours of a command's output mean nothing to a model.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


def workspace_tools(workspace: Workspace) -> tuple[Tool, ...]:
    tools = _Tools(workspace)
    return (
        Tool.from_function(tools.read_file, repeatable=True, needs_approval=True, output_bytes=100_000),
        Tool.from_function(tools.list_files, repeatable=True, needs_approval=True),
        Tool.from_function(tools.search_files, repeatable=True, needs_approval=True, timeout=_SEARCH_SECONDS + 10),
        Tool.from_function(tools.write_file, needs_approval=True),
        Tool.from_function(tools.edit_file, needs_approval=True),
        Tool.from_function(tools.run_command, needs_approval=True, timeout=_RUN_SECONDS + 10),
    )


def preview(workspace: Workspace, name: str, given: Any) -> str | None:
    """The difference that a call would make, as a unified diff; None for a call that writes nothing. ToolFailed if the
    call cannot work."""
    if name not in WRITING or not isinstance(given, dict) or not isinstance(given.get("path"), str):
        return None
    path = given["path"]
    before = workspace.text_before(path)
    after = given.get("text") if name == "write_file" else _edited(path, before, given.get("old"), given.get("new"))
    if not isinstance(after, str):
        return None
    shown = workspace.relative(path)
    lines = difflib.unified_diff(
        (before or "").splitlines(),
        after.splitlines(),
        shown if before is not None else "/dev/null",
        shown,
        lineterm="",
    )
    return "\n".join(lines) or f"{shown}: no line changes"


class _Tools:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def read_file(
        self,
        path: Annotated[str, "relative to the folder"],
        first_line: Annotated[int, "1 is the first"] = 1,
        lines: Annotated[int, "at most this many"] = _READ_LINES,
    ) -> str:
        """Reads a text file of the working folder. Lines are numbered."""
        found = self._workspace.read_text(path).splitlines()
        first = max(first_line, 1)
        shown = found[first - 1 : first - 1 + max(min(lines, _READ_LINES), 1)]
        numbered = [f"{number}\t{line}" for number, line in enumerate(shown, start=first)]
        rest = len(found) - (first - 1) - len(shown)
        return "\n".join([*numbered, *([f"[{rest} more lines]"] if rest > 0 else [])]) or "[empty]"

    def list_files(self, path: Annotated[str, "a folder, relative to the working folder"] = ".") -> str:
        """Lists the files and folders in a folder. Folders end with a slash."""
        entries = [f"{name}/" if is_folder else name for name, is_folder in self._workspace.list_folder(path)]
        more = [f"[{len(entries) - _LISTED} more]"] if len(entries) > _LISTED else []
        return "\n".join([*entries[:_LISTED], *more]) or "[empty]"

    async def search_files(
        self,
        pattern: Annotated[str, "a regular expression"],
        path: Annotated[str, "a file or folder to search"] = ".",
        glob: Annotated[str, "only files with names like this, such as *.py"] = "*",
    ) -> str:
        """Searches the lines of the text files below a folder. Each line of the result is path:number:text."""
        start = self._workspace.relative(path) or "."
        if (ripgrep := shutil.which("rg")) is not None:
            return await self._search_with(ripgrep, pattern, start, glob)
        try:
            wanted = re.compile(pattern)
        except re.error as exc:
            raise ToolFailed(f"`pattern` is not a regular expression: {exc}") from exc
        found = await asyncio.to_thread(lambda: list(self._search(wanted, start, glob)))
        return "\n".join(found) or "[nothing found]"

    async def _search_with(self, ripgrep: str, pattern: str, start: str, glob: str) -> str:
        limits = ["--no-config", "--no-heading", "--with-filename", "--line-number", "--color=never", "--max-count=50"]
        words = [ripgrep, *limits, f"--max-columns={_LINE}", f"--glob={glob}", f"--regexp={pattern}", "--", start]
        code, out = await _run(words, self._workspace.root, _SEARCH_SECONDS)
        if code not in (0, 1):
            raise ToolFailed(f"search failed: {out[:_LINE]}")
        lines = [line.removeprefix("./") for line in out.splitlines()]
        more = [f"[{len(lines) - _FOUND} more]"] if len(lines) > _FOUND else []
        return "\n".join([*lines[:_FOUND], *more]) or "[nothing found]"

    def _search(self, wanted: re.Pattern[str], start: str, glob: str) -> Iterator[str]:
        count = 0
        for relative in self._files(start):
            if not fnmatch.fnmatch(Path(relative).name, glob):
                continue
            try:
                text = self._workspace.read_text(relative)
            except ToolFailed:  # binary, too large, or not a file any more
                continue
            for number, line in enumerate(text.splitlines(), start=1):
                if wanted.search(line[: 4 * _LINE]):
                    yield f"{relative}:{number}:{line[:_LINE]}"
                    count += 1
                    if count >= _FOUND:
                        yield "[more]"
                        return

    def _files(self, start: str) -> Iterator[str]:
        root = self._workspace.root
        if (root / start).is_file():
            yield start
            return
        for folder, names, files in os.walk(root / start, followlinks=False):
            names[:] = sorted(name for name in names if name not in _SKIPPED)
            for name in sorted(files):
                yield str((Path(folder) / name).relative_to(root))

    def write_file(
        self,
        path: Annotated[str, "relative to the folder"],
        text: Annotated[str, "the whole new content"],
    ) -> str:
        """Creates a file, or replaces its whole content."""
        self._workspace.write_text(path, text)
        return f"wrote {len(text.splitlines())} lines to {self._workspace.relative(path)}"

    def edit_file(
        self,
        path: Annotated[str, "relative to the folder"],
        old: Annotated[str, "the text to replace; it must occur exactly once"],
        new: Annotated[str, "the text to put in its place"],
    ) -> str:
        """Replaces one passage of a file."""
        after = _edited(path, self._workspace.read_text(path, strict=True), old, new)
        assert after is not None
        self._workspace.write_text(path, after)
        return f"edited {self._workspace.relative(path)}"

    async def run_command(
        self,
        command: Annotated[str, "a line for the shell"],
        seconds: Annotated[float, "end it after so long"] = 120.0,
    ) -> str:
        """Runs a shell command in the working folder. Returns its output and exit code."""
        shell = shutil.which("bash") or "/bin/sh"
        allowed = max(min(seconds, _RUN_SECONDS), 1.0)
        code, out = await _run([shell, "-c", command], self._workspace.root, allowed)
        return f"{out.rstrip()}\n[exit code {code}]".lstrip("\n")


def _edited(path: str, text: str | None, old: Any, new: Any) -> str | None:
    if text is None:
        raise ToolFailed(f"{path!r} does not exist")
    if not isinstance(old, str) or not isinstance(new, str):
        return None
    found = text.count(old) if old else 0
    if found != 1:
        raise ToolFailed(f"`old` must occur exactly once in {path!r}, found {found} times")
    return text.replace(old, new)


async def _run(words: list[str], folder: Path, seconds: float) -> tuple[int, str]:
    """Exit code and output, cut to its first and last part. ToolFailed after the time."""
    process = await asyncio.create_subprocess_exec(
        *words,
        cwd=folder,
        env=_environment(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        # Its own group: what it started is ended with it, and Ctrl-C in the terminal does not reach it twice.
        start_new_session=True,
    )
    output = _Output()
    try:
        async with asyncio.timeout(seconds):
            assert process.stdout is not None
            while block := await process.stdout.read(65_536):
                output.add(block)
            await process.wait()
    except TimeoutError as exc:
        raise ToolFailed(f"took longer than {seconds:g} s and was ended; its output: {output.text()[-2_000:]}") from exc
    finally:
        await _end_group(process)
    return process.returncode or 0, output.text()


async def _end_group(process: asyncio.subprocess.Process) -> None:
    """Ends the command and what it left running in the background."""
    for signal_, patience in ((signal.SIGTERM, _KILL_SECONDS), (signal.SIGKILL, _KILL_SECONDS)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal_)
        if process.returncode is not None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await process.wait()
                return


def _environment() -> dict[str, str]:
    """Without keys of models and tokens of Threadline: a command that a model wrote has no use for them."""
    hidden = re.compile(r"THREADLINE_|.*_API_KEY$")
    return {name: value for name, value in os.environ.items() if not hidden.match(name)}


class _Output:
    """The first and the last part of an output of any size."""

    def __init__(self) -> None:
        self._head = b""
        self._tail = b""
        self._size = 0

    def add(self, block: bytes) -> None:
        self._size += len(block)
        room = _OUTPUT_BYTES // 2 - len(self._head)
        self._head += block[:room]
        self._tail = (self._tail + block[room:])[-_OUTPUT_BYTES // 2 :]

    def text(self) -> str:
        cut = self._size - len(self._head) - len(self._tail)
        middle = f"\n[… {cut:,} bytes left out …]\n".encode() if cut > 0 else b""
        return _ESCAPES.sub("", (self._head + middle + self._tail).decode("utf-8", "replace"))
