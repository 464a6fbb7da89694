"""Errors name the fault and the fix, and carry the values a caller needs."""

from __future__ import annotations

import pytest

from threadline.core import errors
from threadline.core.errors import ThreadlineError

SAID: list[tuple[ThreadlineError, str, dict[str, object]]] = [
    (
        errors.InvalidImport(7, "not JSON"),
        "line 7: not JSON",
        {"line": 7, "reason": "not JSON"},
    ),
    (
        errors.LimitExceeded("parts per message", 2, 3),
        "parts per message must be at most 2, got 3",
        {"limit": "parts per message", "allowed": 2, "found": 3},
    ),
    (errors.NotFound("thread", "t1"), "thread 't1' not found", {"kind": "thread", "name": "t1"}),
    (
        errors.HeadMoved(5, 3),
        "thread has 5 messages, expected 3: read it again and retry",
        {"current_count": 5, "expected_count": 3},
    ),
    (
        errors.ValueChanged("k", 5, 3),
        "value 'k' has version 5, expected 3: read it again and retry",
        {"key": "k", "current_version": 5, "expected_version": 3},
    ),
    (errors.DuplicateId("thread", "t1"), "thread 't1' already exists", {"kind": "thread", "name": "t1"}),
    (
        errors.KeyReused("k1", "lisbon"),
        "idempotency key 'k1' was used for a different request: send a new key",
        {"key": "k1", "state_key": "lisbon"},
    ),
    (
        errors.UnderLegalHold("thread"),
        "this thread is under a legal hold and cannot be purged: an administrator must release it first",
        {},
    ),
    (
        errors.TurnRunning("turn-1", 4),
        "turn turn-1 is still running on this thread: wait for it or stop it",
        {"turn_id": "turn-1", "current_count": 4},
    ),
    (
        errors.RoleRefused("viewer", "admin"),
        "role must be admin, yours is viewer",
        {"role": "viewer", "needed": "admin"},
    ),
    (
        errors.ExtraMissing("postgres", "PostgreSQL"),
        "PostgreSQL needs a package that is not installed: run pip install 'threadline[postgres]'",
        {"extra": "postgres"},
    ),
    (
        errors.BudgetExceeded("the budget of this month is used up", "tenant"),
        "the budget of this month is used up",
        {"budget": "tenant", "resets_at": None},
    ),
    (
        errors.NoWorker(12.3),
        "no worker has taken a turn for 12 seconds: try again in a few seconds",
        {},
    ),
    (
        errors.EncryptionKeyMissing(),
        "no key to encrypt secrets with: run `threadline vault key` and add it to [vault.keys]",
        {},
    ),
]


@pytest.mark.parametrize(("error", "message", "values"), SAID, ids=[type(error).__name__ for error, _, _ in SAID])
def test_an_error_has_its_message_and_values(error: ThreadlineError, message: str, values: dict[str, object]) -> None:
    assert str(error) == message
    assert vars(error) == values


def test_every_error_with_values_of_its_own_is_listed_here() -> None:
    classes = [value for value in vars(errors).values() if isinstance(value, type)]
    with_values = {cls for cls in classes if issubclass(cls, ThreadlineError) and "__init__" in vars(cls)}
    assert with_values == {type(error) for error, _, _ in SAID}


def test_an_id_in_an_error_cannot_forge_a_line_of_a_log() -> None:
    assert str(errors.NotFound("thread", "a\nERROR forged")) == "thread 'a\\nERROR forged' not found"
