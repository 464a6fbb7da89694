"""The portable form of table rows, for copying between databases.

A row is a tuple in the order of its table's columns. Ids are text, times are microseconds, JSON and bodies are bytes,
flags are booleans, a lineage is a tuple of (timeline id, seq) pairs, nearest first. Tables are listed so that a row
comes after the rows it refers to; threads and timelines refer to each other and are copied together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

import msgspec

Row: TypeAlias = tuple[Any, ...]

TABLES: dict[str, tuple[str, ...]] = {
    "tenants": ("name", "created_us"),
    "users": ("id", "display_name", "role", "disabled_us", "created_us"),
    "agents": ("id", "name", "provider", "model", "settings", "system_prompt", "enabled"),
    "credentials": ("platform", "key_id", "sealed", "updated_us"),
    "timelines": ("id", "owner_id", "thread_id", "parent_id", "parent_seq", "lineage", "created_us"),
    "threads": (
        "id",
        "owner_id",
        "state_key",
        "timeline_id",
        "title",
        "title_by_person",
        "agent_id",
        "model",
        "system_prompt",
        "working_dir",
        "metadata",
        "message_count",
        "token_count",
        "created_us",
        "updated_us",
        "archived_us",
        "deleted_us",
    ),
    "messages": ("timeline_id", "seq", "owner_id", "id", "role", "turn_id", "created_us", "metadata", "parts"),
    "append_keys": ("thread_id", "key", "owner_id", "timeline_id", "first_seq", "message_count", "fingerprint"),
    "saved_points": ("owner_id", "name", "thread_id", "timeline_id", "seq", "created_us"),
    "summaries": ("timeline_id", "seq", "owner_id", "text", "created_us", "source", "model"),
    "hidden_parts": ("timeline_id", "seq", "part", "owner_id", "turn_id", "hidden_us"),
    "context_snapshots": ("owner_id", "agent_id", "context", "created_us", "updated_us"),
    "bindings": ("surface", "place", "owner_id", "thread_id", "label", "metadata", "created_us", "updated_us"),
    "links": ("platform", "platform_user_id", "owner_id", "state", "created_us", "updated_us"),
    "link_codes": ("code_hash", "owner_id", "platform", "expires_us"),
    "turns": (
        "id",
        "owner_id",
        "thread_id",
        "surface",
        "agent_id",
        "status",
        "idempotency_key",
        "request_hash",
        "request_seq",
        "reply_seq",
        "error",
        "usage",
        "seen",
        "lease_owner",
        "lease_until_us",
        "fence",
        "stop_asked",
        "created_us",
        "finished_us",
        "provider",
        "model",
        "steers",
    ),
    "usage_days": (
        "owner_id",
        "day",
        "agent_id",
        "provider",
        "model",
        "turns",
        "input_tokens",
        "output_tokens",
        "cached_tokens",
        "reasoning_tokens",
        "cost_nanos",
        "kind",
    ),
    "turn_chunks": ("turn_id", "n", "owner_id", "chunk"),
    "tool_runs": ("turn_id", "call_id", "owner_id", "name", "input", "repeatable", "output", "finished_us"),
    "inbox": (
        "platform",
        "key",
        "owner_id",
        "status",
        "decision",
        "turn_id",
        "fingerprint",
        "correlation_id",
        "reply_to",
        "created_us",
        "updated_us",
    ),
    "outbox": (
        "id",
        "owner_id",
        "turn_id",
        "platform",
        "recipient",
        "payload",
        "status",
        "attempts",
        "next_attempt_us",
        "claimed_by",
        "claimed_until_us",
        "last_error",
        "created_us",
        "sent_us",
        "requeued_us",
        "message_id",
    ),
    "api_tokens": (
        "id",
        "owner_id",
        "token_hash",
        "name",
        "role",
        "created_us",
        "expires_us",
        "last_used_us",
        "revoked_us",
        "acts_for_users",
    ),
    "sign_ins": (
        "id",
        "owner_id",
        "secret_hash",
        "role",
        "method",
        "created_us",
        "expires_us",
        "opened_us",
        "last_seen_us",
        "revoked_us",
        "device",
    ),
    "stored_values": (
        "scope",
        "scope_id",
        "namespace",
        "key",
        "n",
        "owner_id",
        "version",
        "size",
        "key_id",
        "updated_us",
        "expires_us",
        "piece",
    ),
    "legal_holds": ("id", "reason", "created_by", "created_us", "held_user_id", "held_thread_id"),
    "audit": ("id", "actor_id", "act", "target", "details", "created_us"),
}


ADDED_COLUMNS: dict[tuple[str, str], Any] = {("users", "disabled_us"): None, ("turns", "steers"): None}
"""Columns that backups of earlier versions lack, by table and column, and the value that restored rows get. A new
column of TABLES needs an entry."""


class RowPage(NamedTuple):
    """Some rows of a table, and the position of the next ones; None after the last."""

    rows: list[Row]
    next_place: Any | None


class Tally(NamedTuple):
    """The number of rows and the sum of their hashes, which does not depend on their order."""

    rows: int = 0
    total: int = 0

    def plus(self, rows: Iterable[Row]) -> Tally:
        count, total = self
        for row in rows:
            digest = hashlib.blake2b(msgspec.msgpack.encode(row), digest_size=16).digest()
            count, total = count + 1, (total + int.from_bytes(digest, "big")) % (1 << 128)
        return Tally(count, total)
