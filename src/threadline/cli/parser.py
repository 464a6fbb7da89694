"""The argument parser, and how commands are added to it.

Errors of argparse are restated in one line that names the fault and where to find help.
"""

from __future__ import annotations

import argparse
import re
from typing import Any, NoReturn, Protocol

COMMAND, VERB = "COMMAND", "VERB"
MAX_PORT = 65_535
# What argparse says, on every supported version of Python; it offers no other way to change its texts.
_INVALID_CHOICE = re.compile(r"argument (?P<name>.+?): invalid choice: '(?P<typed>.*)' \(choose from (?P<choices>.*)\)")
_INVALID_NUMBER = re.compile(r"argument (?P<name>.+?): invalid int value: (?P<typed>'.*')")
_NO_VALUE = re.compile(r"argument (?P<name>.+?): expected (?:one|at least one) argument")
_EXCLUSIVE = re.compile(r"argument (?P<name>.+?): not allowed with argument (?P<other>.+)")
_MISSING = re.compile(r"the following arguments are required: (?P<names>.+)")
_OTHER = re.compile(r"argument (?P<name>.+?): (?P<fault>.+)")


class AddCommand(Protocol):
    def __call__(self, name: str, help: str, run: str, *, examples: tuple[str, ...] = ()) -> argparse.ArgumentParser:
        """Adds a command that runs `run`. `help` is an imperative phrase; examples are arguments of the command."""


class Parser(argparse.ArgumentParser):
    """Prints one line for a wrong argument, with where to find help. A command without its verb prints the verbs.
    Subcommands are parsed by the same class."""

    def error(self, message: str) -> NoReturn:
        if message.endswith((f": {COMMAND}", f": {VERB}")):
            self.exit(2, self.format_help())
        self.exit(2, f"{self.prog}: {_explain(message)} (see {self.prog} --help)\n")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            # Only the outermost parser knows of them, but the help that lists the options is the subcommand's.
            self.exit(2, f"{parsed.prog}: unknown arguments: {' '.join(unknown)} (see {parsed.prog} --help)\n")
        return parsed


def _explain(message: str) -> str:
    """Restates an error of argparse: the fault first, then what is allowed."""
    if found := _INVALID_CHOICE.fullmatch(message):
        return _explain_choice(found["name"], found["typed"], re.findall(r"[\w-]+", found["choices"]))
    if found := _INVALID_NUMBER.fullmatch(message):
        return f"{found['name']} must be a whole number, got {found['typed']}"
    if found := _NO_VALUE.fullmatch(message):
        return f"{found['name']} needs a value"
    if found := _EXCLUSIVE.fullmatch(message):
        return f"{found['name']} cannot be used with {found['other']}"
    if found := _MISSING.fullmatch(message):
        return f"missing {found['names']}"
    if found := _OTHER.fullmatch(message):
        return f"{found['name']} {found['fault']}"
    return message


def _explain_choice(name: str, typed: str, choices: list[str]) -> str:
    import difflib  # noqa: PLC0415 - used only after a typing mistake

    if name not in (COMMAND, VERB):
        return f"{name} must be one of {', '.join(choices)}, got {typed!r}"
    near = difflib.get_close_matches(typed, choices, n=1)
    return f"unknown {name.lower()} {typed!r}" + (f", did you mean {near[0]!r}?" if near else "")


def adder(commands: Any, common: argparse.ArgumentParser) -> AddCommand:
    def add(name: str, help: str, run: str, *, examples: tuple[str, ...] = ()) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = commands.add_parser(
            name,
            help=help,
            description=sentence(help),
            parents=[common],
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.set_defaults(run=run, prog=parser.prog)
        if examples:
            parser.epilog = "examples:\n" + "\n".join(f"  {parser.prog} {example}".rstrip() for example in examples)
        return parser

    return add


def add_group(commands: Any, name: str, help: str, common: argparse.ArgumentParser) -> AddCommand:
    parser = commands.add_parser(name, help=help, description=sentence(help), parents=[common])
    return adder(parser.add_subparsers(title="verbs", metavar=VERB, required=True), common)


def sentence(phrase: str) -> str:
    return f"{phrase[:1].upper()}{phrase[1:]}."


def port(text: str) -> int:
    if not text.isdecimal() or int(text) > MAX_PORT:
        raise argparse.ArgumentTypeError(f"must be 0–{MAX_PORT}, got {text!r}")
    return int(text)
