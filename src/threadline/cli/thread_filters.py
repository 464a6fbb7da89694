"""Options that filter lists of threads and searches."""

from __future__ import annotations

import argparse
import datetime as dt
import re

from threadline.core.durations import parse_duration
from threadline.core.errors import InvalidInput
from threadline.core.thread_filters import ThreadFilterFields

_NUMBER = re.compile(r"-?[0-9]{1,15}", re.ASCII)
_WORDS = {"true": True, "false": False, "null": None}


def add_filter_options(command: argparse.ArgumentParser) -> None:
    where = "only threads whose metadata has this value; may be repeated"
    command.add_argument("--where", action="append", default=[], metavar="KEY=VALUE", help=where)
    command.add_argument("--tag", help="only threads with this tag in their metadata")
    command.add_argument("--agent", help="only threads of this agent")
    command.add_argument("--surface", help="only threads with a turn from here: cli, web, api, slack …")
    moment = "a day, a time, or how long ago: 2026-11-16, 2026-11-16T09:30Z, 7d"
    command.add_argument("--since", help=f"last activity at this time or later ({moment})")
    command.add_argument("--until", help="last activity before this time")


def filter_fields(args: argparse.Namespace) -> ThreadFilterFields:
    return ThreadFilterFields(
        where=dict(_condition(each) for each in args.where),
        tag=args.tag,
        agent=args.agent,
        surface=args.surface,
        since=_moment("--since", args.since),
        until=_moment("--until", args.until),
    )


def _condition(given: str) -> tuple[str, str | int | bool | None]:
    """`draft=true` and `n=3` compare with a boolean and a number; `n="3"` compares with a string."""
    key, equals, value = given.partition("=")
    if not equals or not key:
        raise InvalidInput(f"--where must be KEY=VALUE, got {given!r}")
    if value in _WORDS:
        return key, _WORDS[value]
    if _NUMBER.fullmatch(value):
        return key, int(value)
    is_quoted = len(value) > 1 and value[0] == value[-1] == '"'
    return key, value[1:-1] if is_quoted else value


def _moment(option: str, text: str | None) -> dt.datetime | None:
    if text is None:
        return None
    if text[-1:].isalpha() and text[:-1].isdigit():
        return dt.datetime.now(dt.UTC) - parse_duration(text)
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(
            f"{option} must be a time such as 2026-11-16, or how long ago such as 7d, got {text!r}"
        ) from None
    return moment if moment.tzinfo else moment.astimezone()
