"""Search: literal words in the present history of one's living threads, found as soon as they are acknowledged."""

from __future__ import annotations

import pytest

from threadline.core import parts
from threadline.core.messages import new_message
from threadline.core.threads import Hit, NewThread, ThreadChanges
from threadline.ports import Store, Transaction
from threadline.testing.conformance.message_builders import create_thread_with, exchange, seal, user_message

OPERATORS = [
    "zebra OR lion",
    "zebra AND lion",
    "zebra NOT lion",
    "NOT lion",
    "zebra NEAR lion",
    "NEAR(zebra lion, 5)",
    "zebra -lion",
    "zebra | lion",
    "zebra || lion",
    "zebra & !lion",
    "zebra <-> lion",
    "^zebra lion",
    "text: zebra lion",
    "text:lion",
    "{text}:lion",
    '"zebra lion"',
    "zebra + lion",
]
"""Each would find the message 'the zebra sleeps' if some database took it for an operator."""

NOISE = ['"', '""', "'", "*", "(", ")", ":", "-", "^", "\\", "%", "_", "&", "!", "|", "<->", "…", "🙂\u200d", "\t\n"]


def found(hits: list[Hit]) -> set[str]:
    return {hit.message_id for hit in hits}


async def say(tx: Transaction, thread_id: str, *said: tuple[str, str]) -> None:
    await tx.append(thread_id, [user_message(text, id) for id, text in said])


class TestSearching:
    async def test_a_hit_says_where_it_stands(self, alice: Transaction) -> None:
        """Messages that contain all the words, in the current history"""
        thread = await create_thread_with(alice, "hello", "hi", new=NewThread(state_key="zoo", title="Zoo"))
        await say(alice, thread.id, ("m2", "a zebra sleeps in the shade"))
        (hit,) = await alice.search("zebra")
        assert (hit.thread_id, hit.state_key, hit.title) == (thread.id, "zoo", "Zoo")
        assert (hit.message_id, hit.seq, hit.role) == ("m2", 2, "user")
        assert "zebra" in hit.snippet
        assert hit.created_at == (await alice.messages(thread.id))[2].created_at

    async def test_every_word_must_be_there(self, alice: Transaction) -> None:
        """that contain all the words"""
        thread = await alice.create_thread(NewThread())
        await say(alice, thread.id, ("m0", "a zebra and a lion"), ("m1", "a zebra alone"), ("m2", "Lion, meet Zebra!"))
        assert found(await alice.search("zebra")) == {"m0", "m1", "m2"}
        assert found(await alice.search("lion zebra")) == {"m0", "m2"}
        assert found(await alice.search("zebra giraffe")) == set()

    async def test_little_words_count_as_well(self, alice: Transaction) -> None:
        """Every word is literal"""
        thread = await alice.create_thread(NewThread())
        await say(alice, thread.id, ("m0", "to be or not to be"), ("m1", "running zebras"))
        assert found(await alice.search("or not")) == {"m0"}
        assert found(await alice.search("or")) == {"m0"}
        assert found(await alice.search("run ")) == set()

    @pytest.mark.parametrize("word", ["naïve", "Straßenbahn", "зебра", "斑馬", "x86", "2026", "İstanbul"])
    async def test_words_of_any_script_are_found(self, alice: Transaction, word: str) -> None:
        """Every word is literal"""
        thread = await alice.create_thread(NewThread())
        await say(alice, thread.id, ("m0", f"here: {word}."), ("m1", "nothing"))
        assert found(await alice.search(word)) == {"m0"}

    @pytest.mark.req("P-01")
    async def test_the_last_word_is_found_while_it_is_typed(self, alice: Transaction) -> None:
        """The last word also finds words that begin with it, from three letters on, unless a space follows it."""
        thread = await alice.create_thread(NewThread())
        await say(alice, thread.id, ("m0", "a night in Lisbon"), ("m1", "the lisp of a snake"), ("m2", "Ländereien"))
        assert found(await alice.search("lis")) == {"m0", "m1"}
        for typed in ("Lisb", "lisbo", "night in lisb", "Lisbon"):
            assert found(await alice.search(typed)) == {"m0"}
        assert found(await alice.search("länd")) == {"m2"}
        for whole in ("lisb ", "li", "lisb night", "nig lisbon"):
            assert found(await alice.search(whole)) == set()
        (hit,) = await alice.search("Lisb")
        assert "Lisbon" in hit.snippet

    @pytest.mark.req("P-01")
    @pytest.mark.parametrize(
        ("text", "queries", "others"),
        [
            ("日本語のメールを書く", ["日本語", "メール", "本語", "日", "書く", "日本 メール"], ["日語", "韓国", "電"]),
            ("我们明天去里斯本。", ["里斯本", "明天", "去"], ["昨天"]),
            ("Pythonで書いた入門書です", ["python", "入門", "Python 入門書"], ["門入"]),
            ("สวัสดีครับผมชื่ออาดา", ["สวัสดี", "ชื่อ", "ครับ"], ["ขอบคุณ"]),
            ("ຂ້ອຍມັກກາເຟ", ["ກາເຟ"], ["ຊາ"]),
        ],
    )
    async def test_parts_of_sentences_without_spaces_are_found(
        self, alice: Transaction, text: str, queries: list[str], others: list[str]
    ) -> None:
        """In scripts without spaces any part of a sentence is found."""
        thread = await alice.create_thread(NewThread())
        await say(alice, thread.id, ("m0", text), ("m1", "nothing"))
        for query in queries:
            assert found(await alice.search(query)) == {"m0"}, query
        for query in others:
            assert found(await alice.search(query)) == set(), query

    @pytest.mark.req("P-01")
    @pytest.mark.parametrize(
        "query",
        [
            '"',
            "a" * 10_000,
            "日" * 10_000,
            "🙂",
            "שלום עולם",
            "日本 hello مرحبا 🙂",
            "*",
            "zeb**",
            "'*",
            "日*",
            "\u0e34",
            "\\",
        ],
    )
    async def test_no_query_is_a_fault(self, alice: Transaction, query: str) -> None:
        """Every word is literal: no search operator of a database works."""
        await create_thread_with(alice, "the zebra sleeps")
        assert isinstance(await alice.search(query), list)

    @pytest.mark.parametrize("word", ["user@example.com", "src/threadline/ports.py", "don't", "foo_bar", "3.14", "C++"])
    async def test_what_stands_between_the_letters_does_no_harm(self, alice: Transaction, word: str) -> None:
        """Every word is literal"""
        thread = await alice.create_thread(NewThread())
        await say(alice, thread.id, ("m0", f"about {word} today"), ("m1", "nothing"))
        assert found(await alice.search(word)) == {"m0"}

    @pytest.mark.parametrize("query", OPERATORS)
    async def test_no_operator_works(self, alice: Transaction, query: str) -> None:
        """Every word is literal: no search operator of a database works."""
        thread = await alice.create_thread(NewThread())
        await say(alice, thread.id, ("m0", "the zebra sleeps"), ("m1", "nothing"))
        assert await alice.search(query) == []
        await say(alice, thread.id, ("m2", f"literally {query} and no more"))
        assert found(await alice.search(query)) == {"m2"}

    @pytest.mark.parametrize("query", NOISE)
    async def test_a_query_without_words_finds_nothing(self, alice: Transaction, query: str) -> None:
        """Every word is literal: no search operator of a database works."""
        await create_thread_with(alice, "the zebra sleeps", query + " zebra")
        assert await alice.search(query) == []

    async def test_ten_thousand_words_are_only_words(self, alice: Transaction) -> None:
        """Every word is literal"""
        await create_thread_with(alice, "the zebra sleeps")
        assert await alice.search("zebra " + " ".join(f"w{n}" for n in range(10_000))) == []

    async def test_what_was_acknowledged_is_found_at_once(self, alice: Transaction, store: Store) -> None:
        """Finds every message that was acknowledged before the call."""
        await store.index_pending()  # what other tests left in a database they share
        thread = await alice.create_thread(NewThread())
        for number in range(20):
            await say(alice, thread.id, (f"m{number}", f"word{number} zebra"))
            assert found(await alice.search(f"word{number}")) == {f"m{number}"}
        assert await store.index_pending() == 0
        assert len(await alice.search("zebra", limit=50)) == 20

    async def test_the_best_come_first_a_page_at_a_time(self, alice: Transaction) -> None:
        """Messages that contain all the words, in the current history of threads that are not deleted, best match
        first."""
        thread = await alice.create_thread(NewThread())
        filler = " ".join(f"filler{n}" for n in range(60))
        said = [(f"m{n}", f"zebra {filler} {n}") for n in range(9)]
        await say(alice, thread.id, *said[:5], ("best", "zebra zebra zebra"), *said[5:])
        hits = await alice.search("zebra")
        assert hits[0].message_id == "best"
        assert len(hits) == len(found(hits)) == 10
        assert await alice.search("zebra", limit=1) == hits[:1]
        pages = [await alice.search("zebra", limit=4, offset=offset) for offset in (0, 4, 8, 12)]
        assert [hit for page in pages for hit in page] == hits
        assert [len(page) for page in pages] == [4, 4, 2, 0]

    async def test_a_search_gives_twenty_unless_told(self, alice: Transaction) -> None:
        await create_thread_with(alice, *(f"zebra {n}" for n in range(25)))
        assert len(await alice.search("zebra")) == 20

    async def test_only_what_a_person_reads_is_searched(self, alice: Transaction) -> None:
        """that contain all the words"""
        call = parts.tool_part("zoo", "call", {"animal": "lion"}, output="asleep")
        said = (parts.TextPart("the zebra"), call, parts.TextPart("sleeps"))
        thread = await alice.create_thread(NewThread())
        await alice.append(thread.id, [seal(new_message("assistant", said, id="m0"))])
        assert found(await alice.search("zebra sleeps")) == {"m0"}
        assert [await alice.search(word) for word in ("lion", "type", "text", "call")] == [[]] * 4


class TestSearchingThePresent:
    async def test_only_the_present_history_is_searched(self, alice: Transaction) -> None:
        """in the current history of threads that are not deleted"""
        thread = await alice.create_thread(NewThread())
        await say(alice, thread.id, ("m0", "zebra one"), ("m1", "zebra two"))
        await alice.undo(thread.id)
        assert found(await alice.search("zebra")) == {"m0"}
        await say(alice, thread.id, ("m2", "zebra three"))
        assert found(await alice.search("zebra")) == {"m0", "m2"}
        await alice.switch(thread.id, thread.timeline_id)
        assert found(await alice.search("zebra")) == {"m0", "m1"}

    async def test_a_hit_is_in_the_thread_it_was_written_in_if_that_shows_it(self, alice: Transaction) -> None:
        """A message that several threads share is found once, in the thread it was written in if it is still in its
        history."""
        source = await alice.create_thread(NewThread())
        await say(alice, source.id, ("m0", "zebra"), ("m1", "more"))
        branch = await alice.branch(source.id, NewThread())
        await alice.undo(source.id)
        assert [hit.thread_id for hit in await alice.search("zebra")] == [source.id]
        assert [hit.thread_id for hit in await alice.search("more")] == [branch.id]

    async def test_a_branch_is_searched_through_its_source(self, alice: Transaction) -> None:
        source = await alice.create_thread(NewThread())
        await say(alice, source.id, ("m0", "zebra one"), ("m1", "zebra two"))
        branch = await alice.branch(source.id, NewThread(), at=0)
        await say(alice, branch.id, ("m2", "zebra three"))
        assert sorted(hit.message_id for hit in await alice.search("zebra")) == ["m0", "m1", "m2"]
        await alice.delete_thread(source.id)
        hits = await alice.search("zebra")
        assert found(hits) == {"m0", "m2"}
        assert {hit.thread_id for hit in hits} == {branch.id}
        await alice.purge_thread(source.id)
        assert found(await alice.search("zebra")) == {"m0", "m2"}

    @pytest.mark.req("SX-03")
    async def test_deleted_and_purged_words_are_not_found(self, alice: Transaction) -> None:
        """threads that are not deleted"""
        thread = await create_thread_with(alice, "a zebra")
        await alice.delete_thread(thread.id)
        assert await alice.search("zebra") == []
        await alice.restore_thread(thread.id)
        assert len(await alice.search("zebra")) == 1
        await alice.purge_thread(thread.id)
        assert await alice.search("zebra") == []

    async def test_an_archived_thread_is_still_searched(self, alice: Transaction) -> None:
        """threads that are not deleted"""
        thread = await create_thread_with(alice, "a zebra")
        await alice.update_thread(thread.id, ThreadChanges(archived=True))
        assert len(await alice.search("zebra")) == 1

    async def test_a_crowd_of_others_words_hides_nothing(self, alice: Transaction, bob: Transaction) -> None:
        """Messages that contain all the words, in the current history"""
        first = await create_thread_with(alice, "my zebra")
        for _ in range(5):
            await create_thread_with(bob, *["their zebra"] * 450)
        last = await create_thread_with(alice, "my other zebra")
        assert {hit.thread_id for hit in await alice.search("zebra")} == {first.id, last.id}
        assert len(await bob.search("zebra", limit=100)) == 100

    async def test_other_owners_words_are_not_found(
        self, alice: Transaction, bob: Transaction, other_tenant: Transaction
    ) -> None:
        for tx in (alice, bob, other_tenant):
            thread = await alice.create_thread(NewThread()) if tx is alice else await tx.create_thread(NewThread())
            await tx.append(thread.id, exchange("the zebra is mine"))
            assert {hit.thread_id for hit in await tx.search("zebra")} == {thread.id}
