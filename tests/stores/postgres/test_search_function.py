"""match_words and match_titles bypass row security: what they return, to whom, and how they resist misuse."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from threadline.core.threads import NewThread, Scope
from threadline.ports import Transaction
from threadline.stores.postgres.search import split_words
from threadline.stores.postgres.session import begin_statement
from threadline.stores.postgres.store import PostgresStore
from threadline.testing.conformance.message_builders import clean_text, create_thread_with, user_message

ALICE = Scope("a", "alice")
MATCH = "SELECT count(*) FROM threadline.match_words($1, 10, 0)"
TITLES = "SELECT count(*) FROM threadline.match_titles($1, 10)"
FUNCTIONS = {"match_words", "match_titles"}
IN_INDEX = "SELECT count(*) FROM threadline.message_search"


@pytest.fixture
async def login(dsn: str, own_store: PostgresStore) -> AsyncIterator[asyncpg.Connection]:
    for scope in (ALICE, Scope("a", "bob"), Scope("b", "alice")):
        await create_thread_with(own_store.scoped(scope), "a zebra", "two zebra")
    await own_store.index_pending()
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


@pytest.mark.req("SX-04")
async def test_search_finds_only_the_owners_messages(login: asyncpg.Connection) -> None:
    for scope, expected in ((ALICE, 2), (Scope("a", "bob"), 2), (Scope("c", "alice"), 0), (Scope("a", "eve"), 0)):
        await login.execute(begin_statement(scope))
        assert await login.fetchval(MATCH, ["zebra"]) == expected
        await login.execute("ROLLBACK")


@pytest.mark.req("SX-04", "S1-06")
async def test_search_finds_nothing_without_a_scope(login: asyncpg.Connection) -> None:
    for role in ("threadline_app", "threadline_worker"):
        for settings in ("", "; SET LOCAL threadline.tenant = 'a'", "; SET LOCAL threadline.owner = 'alice'"):
            await login.execute(f"BEGIN; SET LOCAL ROLE {role}{settings}")
            assert await login.fetchval(MATCH, ["zebra"]) == 0
            await login.execute("ROLLBACK")


async def test_only_the_application_roles_may_call_match_words(
    login: asyncpg.Connection, admin: asyncpg.Connection
) -> None:
    await admin.execute("DROP ROLE IF EXISTS other_role; CREATE ROLE other_role NOLOGIN")
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="match_words"):
        await login.fetchval(MATCH, ["zebra"])
    await admin.execute("SET ROLE other_role")
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="match_words"):
        await admin.fetchval(MATCH, ["zebra"])
    await admin.execute("RESET ROLE")


async def test_the_owner_of_both_functions_reads_their_tables_and_owns_nothing_else(admin: asyncpg.Connection) -> None:
    owned = await admin.fetch("SELECT proname::text FROM pg_proc WHERE proowner = 'threadline_search'::regrole")
    assert {row["proname"] for row in owned} == FUNCTIONS
    rights = await admin.fetch("""
        SELECT table_name::text, privilege_type::text FROM information_schema.role_table_grants
        WHERE grantee = 'threadline_search' ORDER BY 1, 2
    """)
    assert [tuple(row) for row in rights] == [("message_search", "SELECT"), ("title_search", "SELECT")]
    pinned = await admin.fetch("SELECT proconfig FROM pg_proc WHERE proname = ANY($1)", sorted(FUNCTIONS))
    assert all("search_path=pg_catalog, pg_temp" in row["proconfig"] for row in pinned)
    definers = await admin.fetch("""
        SELECT proname::text FROM pg_proc WHERE prosecdef AND pronamespace = 'threadline'::regnamespace
    """)
    assert {row["proname"] for row in definers} == FUNCTIONS


@pytest.mark.req("SX-04")
async def test_titles_are_found_only_in_their_owners_scope(
    own_store: PostgresStore, login: asyncpg.Connection, admin: asyncpg.Connection
) -> None:
    for scope in (ALICE, Scope("a", "bob"), Scope("b", "alice")):
        await own_store.scoped(scope).create_thread(NewThread(title="Zebra"))
    await own_store.index_pending()
    for scope, expected in ((ALICE, 1), (Scope("a", "bob"), 1), (Scope("c", "alice"), 0), (Scope("a", "eve"), 0)):
        await login.execute(begin_statement(scope))
        assert await login.fetchval(TITLES, ["zebra"]) == expected
        await login.execute("ROLLBACK")
    for settings in ("", "; SET LOCAL threadline.tenant = 'a'", "; SET LOCAL threadline.owner = 'alice'"):
        await login.execute(f"BEGIN; SET LOCAL ROLE threadline_app{settings}")
        assert await login.fetchval(TITLES, ["zebra"]) == 0
        await login.execute("ROLLBACK")
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="match_titles"):
        await login.fetchval(TITLES, ["zebra"])


@pytest.mark.req("SX-04")
async def test_match_words_ignores_the_callers_search_path(
    login: asyncpg.Connection, admin: asyncpg.Connection
) -> None:
    """A caller with temporary tables, or a schema earlier in the search path, cannot redirect the function."""
    await admin.execute("CREATE SCHEMA mine; GRANT ALL ON SCHEMA mine TO public")
    await login.execute("BEGIN; SET LOCAL search_path = mine, public, pg_catalog")
    await login.execute("""
        CREATE TABLE mine.message_search (timeline_id text);
        CREATE FUNCTION mine.always(text, text) RETURNS boolean LANGUAGE sql RETURN true;
        CREATE OPERATOR mine.= (LEFTARG = text, RIGHTARG = text, FUNCTION = mine.always);
        CREATE FUNCTION mine.nullif(text, text) RETURNS text LANGUAGE sql RETURN 'alice';
        SET LOCAL ROLE threadline_app; SET LOCAL threadline.tenant = 'c'; SET LOCAL threadline.owner = 'alice'
    """)
    assert await login.fetchval(MATCH, ["zebra"]) == 0
    await login.execute("ROLLBACK")


@pytest.mark.parametrize("word", ["zebra' | 'x", "zebra & !x", "' | !'x", "\\", "'", ":*", "zebra:*", "a' || 'b", ""])
async def test_a_word_with_special_characters_is_a_word(login: asyncpg.Connection, word: str) -> None:
    await login.execute(begin_statement(ALICE))
    assert await login.fetchval(MATCH, [word] if word else []) == 0
    await login.execute("ROLLBACK")


async def test_marks_of_other_owners_cannot_be_searched(own_store: PostgresStore, login: asyncpg.Connection) -> None:
    mark = await login.fetchval("SELECT threadline.owner_mark('a', 'bob')")
    assert await own_store.scoped(ALICE).search(mark) == []
    assert split_words(mark) == [mark[1:]]
    for mark in await login.fetchval("SELECT threadline.window_marks('a', 'bob', 0)"):
        assert await own_store.scoped(ALICE).search(mark) == []


FIRST_OF_WINDOW = {1: 3 << 12, 2: 3 << 15, 3: 3 << 18, 4: 3 << 21}


@pytest.mark.parametrize("level", FIRST_OF_WINDOW)
async def test_a_frequent_word_is_found_in_the_narrowest_window_that_holds_enough(
    own_store: PostgresStore, admin: asyncpg.Connection, level: int
) -> None:
    indexed = FIRST_OF_WINDOW[level]
    await take_in(own_store, admin, {0: 300, indexed: 100})
    found = await admin.fetch("SELECT seq FROM threadline.match_words(ARRAY['zebra'], 50, $1)", indexed)
    assert [row["seq"] for row in found] == list(range(399, 349, -1))


async def test_a_word_is_found_wherever_it_is_rare(own_store: PostgresStore, admin: asyncpg.Connection) -> None:
    """No window has enough hits, so all messages are searched."""
    latest = max(FIRST_OF_WINDOW.values())
    await take_in(own_store, admin, {0: 5, latest // 2: 5, latest: 5})
    found = await admin.fetch("SELECT seq FROM threadline.match_words(ARRAY['zebra'], 50, $1)", latest)
    assert sorted(row["seq"] for row in found) == list(range(15))
    newest = await admin.fetch("SELECT seq FROM threadline.match_words(ARRAY['zebra'], 12, $1)", latest)
    assert [row["seq"] for row in newest] == list(range(14, 2, -1))


async def test_indexed_messages_are_counted_per_owner(
    own_store: PostgresStore, login: asyncpg.Connection, admin: asyncpg.Connection
) -> None:
    await create_thread_with(own_store.scoped(ALICE), "one more")
    await own_store.index_pending()
    counted = await admin.fetch("SELECT tenant_id, id, indexed_messages FROM threadline.users ORDER BY 1, 2")
    assert [tuple(row) for row in counted] == [("a", "alice", 3), ("a", "bob", 2), ("b", "alice", 2)]


async def take_in(store: PostgresStore, admin: asyncpg.Connection, after: dict[int, int]) -> None:
    """Leaves `admin` in Alice's scope with these messages in the index."""
    tx = store.scoped(ALICE)
    thread = await tx.create_thread(NewThread())
    for number, at_a_time in enumerate(after.values()):
        await tx.append(thread.id, [user_message(f"zebra {n}", f"m{number}-{n}") for n in range(at_a_time)])
    await store.index_pending()
    await login_as(admin, ALICE)
    first = 0
    for others, at_a_time in after.items():
        await admin.execute(
            "UPDATE threadline.message_search SET created_us = seq, words = "
            "array_to_tsvector(threadline.window_marks('a', 'alice', $1) || 'zebra'::text) WHERE seq BETWEEN $2 AND $3",
            others, first, first + at_a_time - 1,
        )  # fmt: skip
        first += at_a_time


async def login_as(admin: asyncpg.Connection, scope: Scope) -> None:
    await admin.execute(begin_statement(scope))


@pytest.mark.req("SX-03")
async def test_a_purge_removes_the_search_index(own_store: PostgresStore, admin: asyncpg.Connection) -> None:
    tx = own_store.scoped(ALICE)
    indexed, waiting = await create_thread_with(tx, "a zebra"), await create_thread_with(tx, "b")
    await own_store.index_pending()
    for thread in (indexed, waiting):
        await tx.append(thread.id, [user_message("more zebra")])
        await tx.move(thread.id, 0)
        await tx.purge_thread(thread.id)
    assert await admin.fetchval(IN_INDEX) == 0
    assert await admin.fetchval("SELECT count(*) FROM threadline.search_backlog") == 0


async def test_messages_of_a_left_timeline_are_indexed(own_store: PostgresStore) -> None:
    """The thread moves to another timeline before its messages are indexed, then back."""
    tx = own_store.scoped(ALICE)
    thread = await create_thread_with(tx, "zebra one", "zebra two", "zebra three")
    branch = await tx.branch(thread.id, NewThread(), at=1)
    await tx.move(thread.id, 0)
    assert {(hit.thread_id, hit.seq) for hit in await tx.search("two")} == {(branch.id, 1)}
    assert await tx.search("three") == []
    await tx.switch(thread.id, thread.timeline_id)
    assert {(hit.thread_id, hit.seq) for hit in await tx.search("three")} == {(thread.id, 2)}
    assert await own_store.index_pending() == 0


async def test_a_purge_during_indexing_leaves_no_words(own_store: PostgresStore, admin: asyncpg.Connection) -> None:
    """The messages are purged after the indexer has read them and before it writes their words."""
    tx = own_store.scoped(ALICE)
    thread = await create_thread_with(tx, "a zebra", "b")
    await admin.execute(begin_statement(ALICE))
    rows = await admin.fetch("SELECT timeline_id, seq FROM threadline.unindexed_messages('a', 10)")
    await tx.purge_thread(thread.id)
    await admin.execute(
        "SELECT threadline.index_messages('a', $1, $2, $3, $4)",
        [row["timeline_id"] for row in rows],
        [row["seq"] for row in rows],
        [1, 1],
        ["zebra", "b"],
    )
    await admin.execute("COMMIT")
    assert await admin.fetchval(IN_INDEX) == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Lion, meet Zebra!", ["lion", "meet", "zebra"]),
        ("foo_bar foo-bar user@example.com", ["foo", "bar", "user", "example", "com"]),
        ("Ünïcödé CAFÉ cafe\u0301", ["unicode", "cafe"]),
        ("Straße ﬁne İstanbul", ["strasse", "fine", "istanbul"]),
        ("斑馬 हिन्दी", ["斑馬", "हनद"]),
        ("x86 3.14 2026", ["x86", "3", "14", "2026"]),
        ("_ - … 🙂\u200d", []),
        ("a" * 500, ["a" * 200]),
    ],
)
def test_words_are_split_without_case_accents_and_marks(text: str, words: list[str]) -> None:
    assert split_words(text) == words


async def test_a_mebibyte_of_different_words_is_indexed(own_store: PostgresStore) -> None:
    tx = own_store.scoped(ALICE)
    text = " ".join(f"w{n}" for n in range(130_000))
    thread = await tx.create_thread(NewThread())
    await tx.append(thread.id, [user_message(text[:1_000_000], "long")])
    assert [hit.message_id for hit in await tx.search("w1 w777")] == ["long"]


async def test_search_works_inside_a_transaction(own_store: PostgresStore) -> None:
    async def work(tx: Transaction) -> list[str]:
        thread = await tx.create_thread(NewThread(title=clean_text("Zoo")))
        await tx.append(thread.id, [user_message("a zebra", "m")])
        return [hit.message_id for hit in await tx.search("zebra")]

    assert await own_store.transact(ALICE, work) == ["m"]
