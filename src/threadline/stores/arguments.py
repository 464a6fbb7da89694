"""Checks the arguments of every store operation, so that no two stores answer a wrong call differently.

`check_arguments` wraps the operations of a session class. The rule for a parameter follows from its type in
`threadline.ports.StoreSession`, and for integers from the ranges below.
"""

from __future__ import annotations

import datetime as dt
import functools
import inspect
import sys
import types
import typing
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar, Union

import msgspec

from threadline.core.access import NewToken
from threadline.core.channels import Agent, User
from threadline.core.checks import LARGEST_INTEGER, check_bytes, check_choice, check_range, check_string, check_time
from threadline.core.history import PastTurn
from threadline.core.ids import check_id, check_thread_key, check_user_id
from threadline.core.portable import TABLES
from threadline.core.threads import NewThread, ThreadChanges
from threadline.core.turn_commits import ArrivalClaim, ReplyDelivery, TurnAcceptance
from threadline.core.values import ValueWrite, check_namespace, check_value_key, check_version
from threadline.ports import StoreSession

C = TypeVar("C", bound=type)
Check: TypeAlias = Callable[[str, Any], None]
Operation: TypeAlias = Callable[..., Awaitable[Any]]

_LOWEST = {
    "after": 0,
    "at": -1,
    "before": 0,
    "expected_count": 0,
    "fence": 0,
    "first": 0,
    "last": -1,
    "limit": 1,
    "offset": 0,
    "passages": 0,
    "seq": -1,
    "tokens": 0,
    "turns": 0,
    "wanted": 0,
}
"""The smallest value of each integer parameter; seq -1 is the point before the first message."""
_LOWEST_OF = {
    ("append", "after"): -1,
    ("messages", "limit"): 0,
    ("take_permits", "limit"): 0,
    ("put_summary", "seq"): 0,
    ("add_summary", "seq"): 0,
}
"""Exceptions, by operation and parameter."""


def check_arguments(cls: C) -> C:
    """Class decorator: every operation of `StoreSession` checks its arguments before it runs."""
    for name, declared in inspect.getmembers(StoreSession, inspect.iscoroutinefunction):
        setattr(cls, name, _checked(getattr(cls, name), name, declared))
    return cls


def _checked(operation: Operation, name: str, declared: Operation) -> Operation:
    names = [parameter for parameter in declared.__annotations__ if parameter != "return"]
    hints = {parameter: _hint(declared, declared.__annotations__[parameter]) for parameter in names}
    rules = {parameter: rule for parameter in names if (rule := _rule(name, parameter, hints[parameter]))}
    by_position = [(parameter, rules.get(parameter)) for parameter in names]

    @functools.wraps(operation)
    async def call(self: object, *args: Any, **named: Any) -> Any:
        for (parameter, rule), value in zip(by_position, args, strict=False):
            if rule is not None:
                rule(parameter, value)
        for parameter, value in named.items():
            rule = rules.get(parameter)
            if rule is not None:
                rule(parameter, value)
        return await operation(self, *args, **named)

    return call


_hints: dict[tuple[str, str], Any] = {}


def _hint(declared: Operation, annotation: str) -> Any:
    """The type that an annotation names. Kept, because evaluating those of each operation again takes a twentieth of
    the time to import Threadline."""
    place = (declared.__module__, annotation)
    if place not in _hints:
        holder = types.SimpleNamespace(__annotations__={"hint": annotation})
        _hints[place] = typing.get_type_hints(holder, vars(sys.modules[declared.__module__]))["hint"]
    return _hints[place]


def _rule(operation: str, parameter: str, hint: Any) -> Check | None:
    """The check for a parameter of this type; None for types that only the program itself can make."""
    if parameter == "cursor":
        # `stores.cursors` decodes it, and raises InvalidCursor for any text it has not issued.
        return None
    origin = typing.get_origin(hint)
    if origin in (Union, types.UnionType):
        inner = _rule(operation, parameter, next(arg for arg in typing.get_args(hint) if arg is not type(None)))
        return None if inner is None else partial(_unless_none, inner)
    if origin is Sequence:
        inner = _rule(operation, parameter, typing.get_args(hint)[0])
        return None if inner is None else partial(_check_each, inner)
    if origin is Literal:
        return partial(_check_choice, typing.get_args(hint))
    if parameter == "table":
        return partial(_check_choice, tuple(TABLES))
    if hint is int:
        return partial(_check_integer, _LOWEST_OF.get((operation, parameter), _LOWEST[parameter]))
    return _BY_TYPE.get(hint)


def _unless_none(rule: Check, name: str, value: Any) -> None:
    if value is not None:
        rule(name, value)


def _check_each(rule: Check, name: str, values: Sequence[Any]) -> None:
    for value in values:
        rule(name, value)


def _check_choice(choices: Sequence[str], name: str, value: Any) -> None:
    check_choice(name, value, choices)


def _check_integer(lowest: int, name: str, value: Any) -> None:
    check_range(name, value, lowest, LARGEST_INTEGER)


def _check_fields(name: str, value: msgspec.Struct) -> None:
    """The strings and integers of a struct: msgspec checks them only when it decodes one."""
    _check_each_field(value.__struct_fields__, value)


def _check_tuple(name: str, value: ReplyDelivery | ArrivalClaim) -> None:
    _check_each_field(value._fields, value)


def _check_acceptance(name: str, new: TurnAcceptance) -> None:
    check_id("turn", new.turn_id)
    _check_fields(name, new)
    _check_new_thread("new_thread", new.new_thread)
    if new.arrival is not None:
        _check_tuple("arrival", new.arrival)


def _check_each_field(fields: Sequence[str], value: object) -> None:
    for field in fields:
        found = getattr(value, field)
        if found is None:
            continue
        if isinstance(found, str):
            check_string(field, found)
        elif isinstance(found, int) and not isinstance(found, bool):
            check_range(field, found, -1, LARGEST_INTEGER)


def _check_new_thread(name: str, new: NewThread) -> None:
    if new.id is not None:
        check_id("thread", new.id)
    if new.state_key is not None:
        check_thread_key(new.state_key)
    _check_fields(name, new)


def _check_value_write(name: str, write: ValueWrite) -> None:
    check_string("scope_id", write.address.scope_id)
    check_namespace(write.address.namespace)
    check_value_key(write.address.key)
    check_version(write.expected_version)
    if write.data is not None:
        check_bytes("data", write.data)


def _check_named(kind: str, name: str, value: Any) -> None:
    check_id(kind, value.id)
    _check_fields(name, value)


def _check_user(name: str, user: User) -> None:
    check_user_id(user.id)
    _check_fields(name, user)


_BY_TYPE: dict[Any, Check] = {
    str: check_string,
    bytes: check_bytes,
    dt.datetime: check_time,
    NewThread: _check_new_thread,
    ThreadChanges: _check_fields,
    NewToken: partial(_check_named, "token"),
    TurnAcceptance: _check_acceptance,
    ReplyDelivery: _check_tuple,
    ValueWrite: _check_value_write,
    PastTurn: partial(_check_named, "turn"),
    Agent: partial(_check_named, "agent"),
    User: _check_user,
}
