"""Filters of thread lists and searches: by metadata, tag, agent, surface and time of the last activity.

What a thread can be filtered by is stored as labels, one row each: its agent, the plain values at the top of its
metadata, and the strings in the list `tags` of its metadata. Both databases derive the same labels in SQL.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any, TypedDict

import msgspec

from threadline.core.arguments import check_str, type_error
from threadline.core.checks import check_choice, check_string, check_time
from threadline.core.errors import InvalidInput, LimitExceeded
from threadline.core.ids import check_id
from threadline.core.messages import to_us
from threadline.core.turns import SURFACES, Surface

_MOST_CHARACTERS = 200
_LARGEST = 10**15 - 1
_MOST_CONDITIONS = 20
_SEPARATOR = "\x1f"


class ThreadFilterFields(TypedDict, total=False):
    """Keyword arguments that filter threads; all that are given must hold. `where` compares plain values at the top of
    the metadata, `tag` is one of the strings in the list `tags` of the metadata, `agent` is the thread's agent,
    `surface` is one that a turn of the thread came from. `since` and `until` limit the last activity (`until` itself
    is excluded)."""

    where: Mapping[str, str | int | bool | None]
    tag: str | None
    agent: str | None
    surface: Surface | None
    since: dt.datetime | None
    until: dt.datetime | None


class ThreadFilter(msgspec.Struct, frozen=True):
    """A checked filter. An empty one matches every thread."""

    labels: tuple[str, ...] = ()
    surface: Surface | None = None
    since_us: int | None = None
    until_us: int | None = None

    def __bool__(self) -> bool:
        return self != EVERY_THREAD


EVERY_THREAD = ThreadFilter()


def thread_filter(fields: ThreadFilterFields) -> ThreadFilter:
    """InvalidInput for what no thread can be filtered by. TypeError for an unknown keyword."""
    return _thread_filter(**fields)


def _thread_filter(
    *,
    where: Mapping[str, str | int | bool | None] | None = None,
    tag: str | None = None,
    agent: str | None = None,
    surface: Surface | None = None,
    since: dt.datetime | None = None,
    until: dt.datetime | None = None,
) -> ThreadFilter:
    labels = [] if where is None else _metadata_labels(where)
    if tag is not None:
        check_string("tag", tag)
        labels.append("t" + _short("tag", tag))
    if agent is not None:
        labels.append("a" + check_id("agent", agent))
    return ThreadFilter(
        labels=tuple(sorted(set(labels))),
        surface=None if surface is None else check_choice("surface", surface, SURFACES),
        since_us=_moment("since", since),
        until_us=_moment("until", until),
    )


def _metadata_labels(where: object) -> list[str]:
    if not isinstance(where, Mapping):
        raise type_error("where", "a dict of metadata keys and values", where)
    if len(where) > _MOST_CONDITIONS:
        raise LimitExceeded("conditions in `where`", _MOST_CONDITIONS, len(where))
    return [_label(check_str("key of `where`", key), value) for key, value in where.items()]


def _label(key: str, value: Any) -> str:
    check_string("key of `where`", key)
    match value:
        case None:
            kind, text = "n", ""
        case bool():
            kind, text = "b", "true" if value else "false"
        case int():
            if abs(value) > _LARGEST:
                raise InvalidInput("a number in `where` must have at most 15 digits, got more")
            kind, text = "i", str(value)
        case str():
            check_string("value of `where`", value)
            kind, text = "s", value
        case _:
            raise type_error(f"where[{key!r}]", "a string, an integer, True, False or None", value)
    _short("key and value of `where`", key + text)
    return kind + key + _SEPARATOR + text


def _short(what: str, text: str) -> str:
    if len(text) > _MOST_CHARACTERS:
        raise LimitExceeded(f"characters of a {what}", _MOST_CHARACTERS, len(text))
    return text


def _moment(name: str, value: dt.datetime | None) -> int | None:
    if value is None:
        return None
    check_time(name, value)
    return to_us(value)
