"""The tree drawn in core/errors.py is the tree of its classes, and a code names one error for good."""

from __future__ import annotations

import inspect
import re

from threadline.core import errors
from threadline.core.errors import ThreadlineError

BRANCH = re.compile(r"^(?P<stem>[│ ]*)[├└]── (?P<name>\w+)")


def drawn_tree(docstring: str) -> list[tuple[str, str]]:
    """Each error with the one it hangs on, in the order of the drawing."""
    lines = docstring.splitlines()
    top = lines.index("    ThreadlineError")
    path: list[str] = ["ThreadlineError"]
    found: list[tuple[str, str]] = []
    for line in lines[top + 1 :]:
        match = BRANCH.match(line[4:])
        if match is None:
            break
        depth = len(match["stem"]) // 4 + 1
        found.append((match["name"], path[depth - 1]))
        path[depth:] = [match["name"]]
    return found


def class_tree(error: type[ThreadlineError]) -> list[tuple[str, str]]:
    children = [child for child in error.__subclasses__() if child.__module__ == errors.__name__]
    return [pair for child in children for pair in ((child.__name__, error.__name__), *class_tree(child))]


def all_errors() -> list[type[ThreadlineError]]:
    classes = [value for value in vars(errors).values() if inspect.isclass(value)]
    return [value for value in classes if issubclass(value, ThreadlineError)]


def test_the_drawn_tree_is_the_tree_of_classes() -> None:
    assert drawn_tree(inspect.getdoc(errors) or "") == class_tree(ThreadlineError)


def test_every_error_has_a_code_of_its_own() -> None:
    codes = [vars(error).get("code") for error in all_errors()]
    assert None not in codes
    assert len(set(codes)) == len(codes)


def test_codes_are_spelled_alike() -> None:
    assert [error.code for error in all_errors() if not re.fullmatch(r"[a-z]+(_[a-z]+)*", error.code)] == []


def test_the_drawing_is_read_with_its_branches() -> None:
    drawing = "The tree:\n\n    ThreadlineError\n    ├── A    why\n    │   └── B    why\n    └── C\n\nThe end."
    assert drawn_tree(drawing) == [("A", "ThreadlineError"), ("B", "A"), ("C", "ThreadlineError")]
