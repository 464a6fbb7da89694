"""Every error Threadline raises on purpose, with a stable code each.

The tree:

    ThreadlineError
    ├── InvalidInput             a value from the caller is wrong; nothing was stored
    │   ├── InvalidJson          not strict JSON
    │   ├── InvalidText          a lone surrogate, a NUL character, or only white space
    │   ├── InvalidName          an id, key or name with characters that are not allowed
    │   ├── InvalidCursor        a page cursor that this listing did not issue
    │   ├── InvalidImport        a bad line in an import, with its number
    │   ├── InvalidMessage       a dispatch payload without a usable message
    │   └── LimitExceeded        a value above a named limit
    ├── NotFound                 unknown, deleted, or owned by another user: not distinguished
    ├── Conflict
    │   ├── HeadMoved            the expected message count or timeline is stale
    │   ├── ValueChanged         the expected version of a value is stale
    │   ├── DuplicateId          the id or key is already in use
    │   ├── KeyReused            an idempotency key was sent again with a different body
    │   ├── TurnRunning          another turn is running on the thread
    │   └── UnderLegalHold       a purge of something that must be kept
    ├── Refused
    │   ├── RoleRefused          the caller's role does not allow it
    │   ├── GuardRefused         the guard rejected the text
    │   ├── BudgetExceeded       a budget of the user, the tenant or the agent is used up
    │   ├── SignatureInvalid     a webhook without a valid, current signature of its platform
    │   ├── TokenRefused         the service does not accept the token
    │   ├── ImpersonationRefused the token may not act for that user, or not for this request
    │   ├── LinkRefused          a link code that is unknown, used or expired, or a blocked account
    │   └── LinkLimited          an account that tried too many link codes; it may try again later
    ├── AgentFailed              the agent stopped, timed out or sent an invalid reply
    ├── ServiceUnavailable       a service could not be reached, or sent an invalid response
    ├── NoWorker                 no worker takes turns; nothing was stored
    ├── SettingsInvalid          the configuration is wrong
    │   └── EncryptionKeyMissing a secret cannot be stored, because the operator has set no key to encrypt it with
    ├── ExtraMissing             an optional dependency is not installed
    └── StoreFailed
        ├── StoreUnavailable     the database cannot be reached
        │   └── StoreBusy        a lock, a statement or a free connection took too long; nothing was stored
        ├── StoreFull            no space left
        ├── StoreReadOnly        the file or the server rejects writes
        ├── StoreCorrupt         the file is damaged or is not a Threadline database
        ├── SchemaMismatch       the schema is too new, too old or incomplete
        └── OutcomeUnknown       the connection broke during commit; repeat with the same key

A message names the fault first, then the fix ("`limit` must be 1–100, got 0"), in lower case and without a full stop,
so that it can be quoted inside another sentence. The core knows no HTTP: the service maps codes to statuses in one
table.
"""

from __future__ import annotations

import datetime as dt
from typing import ClassVar

QUOTED_LENGTH = 60


def quote(value: object) -> str:
    """The value in quotes, for a message: escaped so that it cannot forge a line of a log, and cut so that a message
    never repeats a whole text. Not for values that may be secrets."""
    text = str(value)
    return repr(text) if len(text) <= QUOTED_LENGTH else f"{text[:QUOTED_LENGTH]!r}…"


class ThreadlineError(Exception):
    """Base class. `code` is stable across versions; the message names the fault and the fix."""

    code: ClassVar[str] = "error"


class InvalidInput(ThreadlineError):
    """A value from the caller is wrong. Nothing was stored; the same call fails again."""

    code = "invalid_input"


class InvalidJson(InvalidInput):
    """The text is not strict JSON (see `core.jsontext`)."""

    code = "invalid_json"


class InvalidText(InvalidInput):
    """The text contains a lone surrogate or a NUL character, or is only white space."""

    code = "invalid_text"


class InvalidName(InvalidInput):
    """An id, key or name is empty or contains characters that are not allowed."""

    code = "invalid_name"


class InvalidCursor(InvalidInput):
    """The cursor was not issued by this listing. Start again without a cursor."""

    code = "invalid_cursor"


class InvalidImport(InvalidInput):
    """A line of an import breaks the transfer format. `line` counts from 1."""

    code = "invalid_import"

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason


class InvalidMessage(InvalidInput):
    """A dispatch payload contains no usable message."""

    code = "invalid_message"


class LimitExceeded(InvalidInput):
    """A value is above a limit. `limit` names it, `allowed` is its value, `found` is what was given."""

    code = "limit_exceeded"

    def __init__(self, limit: str, allowed: int, found: int) -> None:
        super().__init__(f"{limit} must be at most {allowed}, got {found}")
        self.limit = limit
        self.allowed = allowed
        self.found = found


class NotFound(ThreadlineError):
    """Unknown, deleted, or owned by another user. The three are not distinguished, so that ids cannot be probed."""

    code = "not_found"

    def __init__(self, kind: str, name: object) -> None:
        super().__init__(f"{kind} {quote(name)} not found")
        self.kind = kind
        self.name = str(name)


class Conflict(ThreadlineError):
    """The call contradicts the current state. It may succeed once that state has changed."""

    code = "conflict"


class HeadMoved(Conflict):
    """`expected_count` or `expected_timeline` is stale: messages were appended or undone since the caller read the
    thread."""

    code = "head_moved"

    def __init__(self, current_count: int, expected_count: int | None = None) -> None:
        was = "is on another timeline" if expected_count is None else f"has {current_count} messages"
        expected = "" if expected_count is None else f", expected {expected_count}"
        super().__init__(f"thread {was}{expected}: read it again and retry")
        self.current_count = current_count
        self.expected_count = expected_count


class ValueChanged(Conflict):
    """`expected_version` is stale: the value was written since the caller read it. 0 means that there is no value."""

    code = "value_changed"

    def __init__(self, key: str, current_version: int, expected_version: int) -> None:
        super().__init__(
            f"value {quote(key)} has version {current_version}, expected {expected_version}: read it again and retry"
        )
        self.key = key
        self.current_version = current_version
        self.expected_version = expected_version


class DuplicateId(Conflict):
    """The id or key is already in use."""

    code = "duplicate_id"

    def __init__(self, kind: str, name: object) -> None:
        super().__init__(f"{kind} {quote(name)} already exists")
        self.kind = kind
        self.name = str(name)


class KeyReused(Conflict):
    """An idempotency key was sent again with a different body."""

    code = "key_reused"
    state_key: str | None = None
    """The thread on which the key was used, if it is known and not deleted."""

    def __init__(self, key: str, state_key: str | None = None) -> None:
        super().__init__(f"idempotency key {quote(key)} was used for a different request: send a new key")
        self.key = key
        self.state_key = state_key


class TurnRunning(Conflict):
    """Another turn is running on the thread."""

    code = "turn_running"

    def __init__(self, turn_id: str, current_count: int) -> None:
        super().__init__(f"turn {turn_id} is still running on this thread: wait for it or stop it")
        self.turn_id = turn_id
        self.current_count = current_count


class UnderLegalHold(Conflict):
    """A purge of a thread, a user or a tenant that is under a legal hold."""

    code = "legal_hold"

    def __init__(self, what: str) -> None:
        super().__init__(
            f"this {what} is under a legal hold and cannot be purged: an administrator must release it first"
        )


class Refused(ThreadlineError):
    """The caller is known, but not allowed to do this."""

    code = "refused"


class RoleRefused(Refused):
    """The caller's role does not allow the call."""

    code = "role_refused"

    def __init__(self, role: str, needed: str) -> None:
        super().__init__(f"role must be {needed}, yours is {role}")
        self.role = role
        self.needed = needed


class GuardRefused(Refused):
    """The guard rejected the text. The message is the configured sentence for the user."""

    code = "guard_refused"


class BudgetExceeded(Refused):
    """A budget is used up. `budget` says whose; `resets_at` is when asking again may help, if that is known."""

    code = "budget_exceeded"
    budget: str = "user"
    resets_at: dt.datetime | None = None

    def __init__(self, reason: str, budget: str = "user", resets_at: dt.datetime | None = None) -> None:
        super().__init__(reason)
        self.budget = budget
        self.resets_at = resets_at


class SignatureInvalid(Refused):
    """A webhook carries no valid signature of its platform, or an outdated one."""

    code = "signature_invalid"


class TokenRefused(Refused):
    """The service does not accept the token: unknown, expired or revoked."""

    code = "invalid_token"


class ImpersonationRefused(Refused):
    """The token may not act for that user, or not for this request."""

    code = "impersonation_refused"


class LinkRefused(Refused):
    """A link code is unknown, used or expired, or the account is blocked. The reasons are not distinguished."""

    code = "link_refused"


class LinkLimited(Refused):
    """The account tried too many link codes. It may try again later."""

    code = "link_limited"


class AgentFailed(ThreadlineError):
    """The agent stopped, timed out or sent an invalid reply. The message is shown to the user."""

    code = "agent_failed"


class ServiceUnavailable(ThreadlineError):
    """A Threadline service could not be reached, or sent a response that cannot be read."""

    code = "service_unavailable"


class NoWorker(ThreadlineError):
    """This process hands turns over to workers, and none has taken one for a while. Nothing was stored, and the same
    call may succeed once a worker runs."""

    code = "no_worker"

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no worker has taken a turn for {seconds:.0f} seconds: try again in a few seconds")


class SettingsInvalid(ThreadlineError):
    """The configuration is wrong: a setting, a credential or an environment variable."""

    code = "settings_invalid"


class EncryptionKeyMissing(SettingsInvalid):
    """A secret cannot be stored: there is no key to encrypt it with. Nothing was stored."""

    code = "encryption_key_missing"

    def __init__(self) -> None:
        super().__init__("no key to encrypt secrets with: run `threadline vault key` and add it to [vault.keys]")


class ExtraMissing(ThreadlineError):
    """An optional dependency is not installed. `extra` is the name to install it by."""

    code = "extra_missing"

    def __init__(self, extra: str, what: str) -> None:
        super().__init__(f"{what} needs a package that is not installed: run pip install 'threadline[{extra}]'")
        self.extra = extra


class StoreFailed(ThreadlineError):
    """The database failed in a way that none of the subclasses names."""

    code = "store_failed"


class StoreUnavailable(StoreFailed):
    """The database cannot be reached. Retrying may help."""

    code = "store_unavailable"


class StoreBusy(StoreUnavailable):
    """Waiting for a lock, a statement or a free connection took longer than the settings allow. Nothing was stored, and
    the same call may succeed a moment later."""

    code = "store_busy"


class StoreFull(StoreFailed):
    """No space is left for the database. Nothing was stored."""

    code = "store_full"


class StoreReadOnly(StoreFailed):
    """The file or the server rejects writes."""

    code = "store_read_only"


class StoreCorrupt(StoreFailed):
    """The file is damaged or is not a Threadline database."""

    code = "store_corrupt"


class SchemaMismatch(StoreFailed):
    """The schema is too new, too old or incomplete for this version of the program."""

    code = "schema_mismatch"


class OutcomeUnknown(StoreFailed):
    """The connection broke during commit, so the write may or may not be stored. Repeat it with the same key."""

    code = "outcome_unknown"


def nothing_to_append() -> InvalidInput:
    return InvalidInput("`messages` must contain at least one message, got none")


def nothing_to_undo(thread_id: str) -> InvalidInput:
    return InvalidInput(f"thread {quote(thread_id)} has no user message to undo")


def no_such_seq(thread_id: str, seq: int) -> InvalidInput:
    return InvalidInput(f"thread {quote(thread_id)} has no message {seq}: read its `message_count`")


def cannot_requeue(outbox_id: str, status: str) -> Conflict:
    return Conflict(f"outbox row {quote(outbox_id)} is {status}: only a dead or window-closed one can be requeued")
