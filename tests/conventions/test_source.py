"""Every source file follows the project's rules, and a file that breaks one is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conventions import rules
from tests.conventions.rules import Rule, Source

SHIPPED: tuple[Rule, ...] = (
    rules.says_what_it_owns,
    rules.is_named_for_an_idea,
    rules.swallows_no_error,
    rules.stays_pure_in_the_core,
    rules.keeps_libraries_at_home,
)
EVERYWHERE: tuple[Rule, ...] = (rules.is_one_idea_long, rules.has_short_functions)

OWNED = '"""What this owns.\n\nWhat it leaves out.\n"""\n'
KEPT = (
    OWNED + "import re\nfrom os import urandom\n\nimport msgspec\n\n\n"
    "def f():\n    try:\n        g()\n    except KeyError:\n        pass\n"
)
BROKEN: tuple[tuple[Rule, str, str], ...] = (
    (rules.says_what_it_owns, "src/threadline/core/x.py", "x = 1\n"),
    (rules.says_what_it_owns, "src/threadline/core/x.py", '"""\n' + "line\n" * 11 + '"""\n'),
    (rules.is_named_for_an_idea, "src/threadline/turns/helpers.py", OWNED),
    (rules.is_named_for_an_idea, "src/threadline/utils/text.py", OWNED),
    (rules.swallows_no_error, "src/threadline/x.py", "try:\n    f()\nexcept Exception:\n    pass\n"),
    (rules.swallows_no_error, "src/threadline/x.py", "try:\n    f()\nexcept:\n    ...\n"),
    (rules.swallows_no_error, "src/threadline/x.py", "with contextlib.suppress(Exception):\n    f()\n"),
    (rules.stays_pure_in_the_core, "src/threadline/core/x.py", "import asyncio\n"),
    (rules.stays_pure_in_the_core, "src/threadline/core/x.py", "from threadline.ports import Store\n"),
    (rules.stays_pure_in_the_core, "src/threadline/core/x.py", "from os import path\n"),
    (rules.stays_pure_in_the_core, "src/threadline/core/x.py", "def f():\n    import apsw\n"),
    (rules.keeps_libraries_at_home, "src/threadline/turns/x.py", "import apsw\n"),
    (rules.keeps_libraries_at_home, "src/threadline/stores/sqlite_x.py", "from apsw import Connection\n"),
    (rules.is_one_idea_long, "tests/x.py", "x = 1\n" * (rules.FILE_LINES + 1)),
    (rules.has_short_functions, "tests/x.py", "def f():\n" + "    x = 1\n" * rules.FUNCTION_LINES),
)


def fail_where_broken(rule: Rule, *folders: str) -> None:
    findings = [finding for source in rules.read(*folders) for finding in rule(source)]
    if findings:
        pytest.fail("\n".join(findings), pytrace=False)


@pytest.mark.parametrize("rule", SHIPPED, ids=lambda rule: rule.__name__)
def test_every_shipped_file(rule: Rule) -> None:
    fail_where_broken(rule, "src")


@pytest.mark.parametrize("rule", EVERYWHERE, ids=lambda rule: rule.__name__)
def test_every_file(rule: Rule) -> None:
    fail_where_broken(rule, "src", "tests", "tools", "bench")


def test_nine_functions_in_ten_are_under_35_lines() -> None:
    lengths = sorted(rules.length(function) for source in rules.read("src") for function in rules.functions(source))
    assert lengths[len(lengths) * 9 // 10] < 35


@pytest.mark.parametrize(("rule", "path", "text"), BROKEN, ids=lambda value: getattr(value, "__name__", ""))
def test_a_file_that_breaks_a_rule_is_found(rule: Rule, path: str, text: str) -> None:
    assert list(rule(Source(Path(path), text))) != []


@pytest.mark.parametrize("rule", SHIPPED + EVERYWHERE, ids=lambda rule: rule.__name__)
def test_a_file_that_keeps_the_rules_passes(rule: Rule) -> None:
    assert list(rule(Source(Path("src/threadline/core/x.py"), KEPT))) == []
