"""Every error Threadline raises on purpose, with a stable code each.

The tree:

    ThreadlineError
    ├── InvalidInput             the caller's value is wrong; nothing was stored
    │   ├── InvalidJson          not strict JSON
    │   ├── InvalidText          lone surrogates, NUL, or nothing but white space
    │   ├── InvalidName          an id, key or name outside its alphabet
    │   ├── InvalidCursor        a page cursor nobody issued
    │   ├── InvalidImport        a bad line in an import, named by its number
    │   ├── InvalidMessage       a dispatch payload without a message in it
    │   └── LimitExceeded        a value past a named limit
    ├── NotFound                 unknown, deleted, or another owner's: never told apart
    ├── Conflict
    │   ├── HeadMoved            the expected count is stale
    │   ├── DuplicateId          the id or key is taken by something else
    │   ├── KeyReused            an idempotency key came back with another body
    │   └── TurnRunning          the thread is busy with another turn
    ├── Refused
    │   ├── RoleRefused          the role does not allow it
    │   ├── GuardRefused         the guard refused the text
    │   ├── SignatureInvalid     a webhook that its platform did not sign, or not now
    │   ├── TokenRefused         a service does not take the token, or no longer
    │   ├── ActingRefused        nobody may act for that user, or not with this token, or not for this
    │   ├── LinkRefused          a code that links nothing: unknown, used or expired, or the account is barred
    │   └── LinkLimited          an account that tried too many codes; later it may try again
    ├── AgentFailed              the agent broke off, timed out or answered nonsense
    ├── ServiceUnavailable       a service could not be reached, or answered nonsense
    ├── SettingsInvalid          the configuration is wrong
    ├── ExtraMissing             an optional dependency is not installed
    └── StoreFailed
        ├── StoreUnavailable     cannot be reached, or is locked by someone else
        ├── StoreFull            no space left
        ├── StoreReadOnly        the file or the server refuses writes
        ├── StoreCorrupt         the file is damaged or is not a Threadline database
        ├── SchemaMismatch       the schema is too new, too old or not complete
        └── OutcomeUnknown       the connection broke during commit; repeat with the same key

The core knows no HTTP: the service maps codes to answers in one table.
"""

from __future__ import annotations

from typing import ClassVar


class ThreadlineError(Exception):
    """The root. `code` is stable across versions; the message says what to do next."""

    code: ClassVar[str] = "error"


class InvalidInput(ThreadlineError):
    code = "invalid_input"


class InvalidJson(InvalidInput):
    code = "invalid_json"


class InvalidText(InvalidInput):
    code = "invalid_text"


class InvalidName(InvalidInput):
    code = "invalid_name"


class InvalidCursor(InvalidInput):
    code = "invalid_cursor"


class InvalidImport(InvalidInput):
    code = "invalid_import"

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason


class InvalidMessage(InvalidInput):
    code = "invalid_message"


class LimitExceeded(InvalidInput):
    code = "limit_exceeded"

    def __init__(self, limit: str, allowed: int, found: int) -> None:
        super().__init__(f"{limit} is limited to {allowed}, this has {found}")
        self.limit = limit
        self.allowed = allowed
        self.found = found


class NotFound(ThreadlineError):
    code = "not_found"

    def __init__(self, kind: str, name: object) -> None:
        super().__init__(f"no {kind} {str(name)!r} here")
        self.kind = kind
        self.name = str(name)


class Conflict(ThreadlineError):
    code = "conflict"


class HeadMoved(Conflict):
    code = "head_moved"

    def __init__(self, current_count: int, expected_count: int) -> None:
        super().__init__(f"the thread holds {current_count} messages, not {expected_count}: read it again and retry")
        self.current_count = current_count
        self.expected_count = expected_count


class DuplicateId(Conflict):
    code = "duplicate_id"

    def __init__(self, kind: str, name: object) -> None:
        super().__init__(f"{kind} {str(name)!r} exists already")
        self.kind = kind
        self.name = str(name)


class KeyReused(Conflict):
    code = "key_reused"
    state_key: str | None = None
    """The thread on which the key was used, where that is known and still there."""

    def __init__(self, key: str, state_key: str | None = None) -> None:
        super().__init__(f"idempotency key {key!r} was used for another request")
        self.key = key
        self.state_key = state_key


class TurnRunning(Conflict):
    code = "turn_running"

    def __init__(self, turn_id: str, current_count: int) -> None:
        super().__init__(f"turn {turn_id} is still running on this thread: wait for it or stop it")
        self.turn_id = turn_id
        self.current_count = current_count


class Refused(ThreadlineError):
    code = "refused"


class RoleRefused(Refused):
    code = "role_refused"

    def __init__(self, role: str, needed: str) -> None:
        super().__init__(f"this needs the role {needed}, yours is {role}")
        self.role = role
        self.needed = needed


class GuardRefused(Refused):
    code = "guard_refused"


class SignatureInvalid(Refused):
    code = "signature_invalid"


class TokenRefused(Refused):
    code = "invalid_token"


class ActingRefused(Refused):
    code = "acting_refused"


class LinkRefused(Refused):
    code = "link_refused"


class LinkLimited(Refused):
    code = "link_limited"


class AgentFailed(ThreadlineError):
    code = "agent_failed"


class ServiceUnavailable(ThreadlineError):
    code = "service_unavailable"


class SettingsInvalid(ThreadlineError):
    code = "settings_invalid"


class ExtraMissing(ThreadlineError):
    code = "extra_missing"

    def __init__(self, extra: str, what: str) -> None:
        super().__init__(f"{what} needs an extra: pip install 'threadline[{extra}]'")
        self.extra = extra


class StoreFailed(ThreadlineError):
    code = "store_failed"


class StoreUnavailable(StoreFailed):
    code = "store_unavailable"


class StoreFull(StoreFailed):
    code = "store_full"


class StoreReadOnly(StoreFailed):
    code = "store_read_only"


class StoreCorrupt(StoreFailed):
    code = "store_corrupt"


class SchemaMismatch(StoreFailed):
    code = "schema_mismatch"


class OutcomeUnknown(StoreFailed):
    code = "outcome_unknown"
