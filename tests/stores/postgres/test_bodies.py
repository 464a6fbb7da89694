"""Bodies are read as they were written, compressed or not."""

from __future__ import annotations

import asyncpg
from hypothesis import given
from hypothesis import strategies as st

from threadline.core import parts
from threadline.core.messages import new_message
from threadline.core.threads import NewThread, Scope
from threadline.stores.postgres.session import Bodies
from threadline.stores.postgres.store import PostgresStore
from threadline.testing.conformance.message_builders import seal

BODIES = Bodies()


@given(st.text(max_size=50), st.integers(0, 200))
def test_an_unpacked_body_equals_the_packed_one(text: str, times: int) -> None:
    body = parts.encode([parts.TextPart((text * times).replace("\x00", "0"))])
    assert BODIES.unpack(BODIES.pack(body)) == body


def test_only_long_bodies_are_compressed() -> None:
    short, long = parts.encode([parts.TextPart("short")]), parts.encode([parts.TextPart("long " * 1_000)])
    assert BODIES.pack(short) == short
    assert len(BODIES.pack(long)) < len(long) / 10


async def test_both_kinds_of_body_are_stored_and_read(own_store: PostgresStore, admin: asyncpg.Connection) -> None:
    tx = own_store.scoped(Scope("a", "alice"))
    thread = await tx.create_thread(NewThread())
    said = [seal(new_message("user", text, metadata={"note": 1})) for text in ("short", "long " * 1_000)]
    await tx.append(thread.id, said)
    found = await tx.messages(thread.id)
    assert [(m.parts_json, m.metadata_json) for m in found] == [(m.parts_json, m.metadata_json) for m in said]
    assert (await tx.append(thread.id, said)).replayed
    stored = await admin.fetchval("SELECT sum(length(parts)) FROM threadline.messages")
    assert stored < 1_000
