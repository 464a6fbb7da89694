"""Threads that come from elsewhere: stored with everything, once, and never over what is there."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

import pytest

from threadline.core.errors import InvalidInput, RoleRefused
from threadline.core.history import (
    History,
    HistoryItem,
    ImportedThread,
    MessageRecord,
    PastTurn,
    RecordPoint,
    SavedPointRecord,
    SummaryRecord,
    ThreadRecord,
    TimelineRecord,
)
from threadline.core.messages import NewMessage, assistant, user
from threadline.core.parts import OtherPart, TextPart, ToolPart
from threadline.core.sealing import Sealer
from threadline.core.threads import NewThread, Point, Scope
from threadline.ports import Store, Transaction
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.message_builders import history as history_of
from threadline.testing.conformance.message_builders import texts, user_message
from threadline.threads.history_import import HistoryImporter

pytestmark = pytest.mark.req("G-08")

MAY = dt.datetime(2021, 5, 1, 12, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)


class Imports:
    def __init__(self, store: Store, clock: ManualClock, tenant_id: str) -> None:
        self.store, self.clock, self.tenant_id = store, clock, tenant_id

    async def __call__(
        self, record: ThreadRecord, items: Iterable[HistoryItem], origin: str | None = "test:1", user_id: str = "alice"
    ) -> ImportedThread:
        importer = HistoryImporter(self.store, Sealer(), self.clock, Scope(self.tenant_id, user_id))
        return await importer.store(History(record, items, origin))


@pytest.fixture
def imports(store: Store, clock: ManualClock, tenant_id: str) -> Imports:
    return Imports(store, clock, tenant_id)


def said(text: str, *, at: dt.datetime | None = None, by: str = "user", turn: str | None = None) -> MessageRecord:
    """A message whose id is its text, as far as an id can be."""
    id = "".join(char if char.isalnum() else "-" for char in text)
    made = user(text, id=id) if by == "user" else assistant(text, id=id)
    return MessageRecord(NewMessage(made.role, made.parts, made.id, created_at=at), turn)


WHOLE: list[HistoryItem] = [
    PastTurn(id="turn-1", surface="web", status="executed", created_at=MAY, agent_id="a", usage={"input_tokens": 3}),
    PastTurn(id="turn-2", surface="slack", status="running", created_at=MAY + HOUR),
    TimelineRecord("0", None, MAY),
    said("q1", at=MAY, turn="turn-1"),
    said("a1", at=MAY + HOUR, by="assistant", turn="turn-1"),
    said("q2"),
    TimelineRecord("1", RecordPoint("0", 1), MAY + HOUR),
    said("q2b", turn="turn-2"),
    said("a2b", by="assistant", turn="turn-2"),
    TimelineRecord("2", RecordPoint("1", 0), MAY + 2 * HOUR),
    said("a1c", by="assistant"),
    TimelineRecord("3", RecordPoint("1", 3), MAY + 3 * HOUR),
    SavedPointRecord("before the fork", RecordPoint("1", 0), MAY),
    SavedPointRecord("on the fork", RecordPoint("1", 2), MAY),
    SummaryRecord(RecordPoint("1", 2), "They asked twice.", MAY, "model", "gpt-4"),
]
RECORD = ThreadRecord(
    title="Cats", title_by_person=True, agent_id="a", model="gpt-4", metadata={"tags": ["pets"]}, timeline="1",
    token_count=99, created_at=MAY, updated_at=MAY + HOUR, archived_at=MAY + 2 * HOUR,
)  # fmt: skip

PLAIN = ThreadRecord(title="Cats", updated_at=MAY)


async def test_a_thread_is_stored_with_everything(imports: Imports, alice: Transaction) -> None:
    thread, outcome, messages = await imports(RECORD, WHOLE)
    assert (outcome, messages) == ("created", 6)
    assert (thread.title, thread.title_by_person, thread.model, thread.metadata, thread.token_count) == (
        "Cats", True, "gpt-4", {"tags": ["pets"]}, 99,
    )  # fmt: skip
    assert (thread.created_at, thread.updated_at, thread.archived_at) == (MAY, MAY + HOUR, MAY + 2 * HOUR)
    assert await history_of(alice, thread.id) == ["q1", "a1", "q2b", "a2b"]
    lines = await alice.timelines(thread.id)
    assert [texts(await alice.messages(thread.id, timeline_id=line.id)) for line in lines] == [
        ["q1", "a1", "q2"], ["q1", "a1", "q2b", "a2b"], ["q1", "a1c"], ["q1", "a1", "q2b", "a2b"],
    ]  # fmt: skip
    assert [line.created_at for line in lines] == [MAY + hours * HOUR for hours in range(4)]
    stored = await alice.messages(thread.id)
    assert [message.turn_id for message in stored] == ["turn-1", "turn-1", "turn-2", "turn-2"]
    assert stored[1].created_at == MAY + HOUR
    turns = await alice.past_turns(thread.id)
    assert [(turn.id, turn.surface, turn.status) for turn in turns] == [
        ("turn-1", "web", "executed"), ("turn-2", "slack", "interrupted"),
    ]  # fmt: skip
    points = {point.name: point.point for point in await alice.points_in(thread.id)}
    assert points == {"before the fork": Point(lines[0].id, 0), "on the fork": Point(lines[1].id, 2)}
    (summary,) = await alice.summaries(thread.id)
    assert (summary.text, summary.point, summary.model) == ("They asked twice.", Point(lines[1].id, 2), "gpt-4")


async def snapshot(tx: Transaction, thread_id: str) -> object:
    lines = await tx.timelines(thread_id)
    return (
        await tx.thread(thread_id),
        [(line, await tx.messages(thread_id, timeline_id=line.id)) for line in lines],
        await tx.past_turns(thread_id),
        await tx.points_in(thread_id),
        await tx.summaries(thread_id),
    )


async def test_the_same_import_again_changes_nothing(imports: Imports, alice: Transaction, clock: ManualClock) -> None:
    thread = (await imports(RECORD, WHOLE)).thread
    before = await snapshot(alice, thread.id)
    clock.advance(60)
    again = await imports(RECORD, WHOLE)
    assert (again.outcome, again.messages, again.thread.id) == ("unchanged", 0, thread.id)
    assert await snapshot(alice, thread.id) == before
    assert len((await alice.threads(archived=None)).items) == 1


async def test_what_the_source_has_more_of_is_added(imports: Imports, alice: Transaction) -> None:
    thread = (await imports(RECORD, WHOLE)).thread
    longer = [
        *WHOLE[:-3],
        said("q4"),
        TimelineRecord("4", RecordPoint("0", 2)),
        said("a2", by="assistant"),
        *WHOLE[-3:],
    ]
    newer = ThreadRecord(title="Dogs", updated_at=MAY + 9 * HOUR, timeline="4")
    again = await imports(newer, longer)
    assert (again.outcome, again.messages) == ("extended", 2)
    assert await history_of(alice, thread.id) == ["q1", "a1", "q2", "a2"]
    assert len(await alice.timelines(thread.id)) == 5
    assert (again.thread.title, again.thread.updated_at) == ("Cats", MAY + 9 * HOUR)
    assert (await imports(newer, longer)).outcome == "unchanged"


async def test_what_was_added_here_stays_and_the_source_goes_beside_it(imports: Imports, alice: Transaction) -> None:
    thread = (await imports(PLAIN, [said("q1"), said("a1", by="assistant")])).thread
    await alice.append(thread.id, [user_message("here")])
    outcomes = []
    for _ in range(2):
        again = await imports(PLAIN, [said("q1"), said("a1", by="assistant"), said("there"), said("more")])
        assert await history_of(alice, thread.id) == ["q1", "a1", "here"]
        lines = await alice.timelines(thread.id)
        assert [texts(await alice.messages(thread.id, timeline_id=line.id)) for line in lines] == [
            ["q1", "a1", "here"], ["q1", "a1", "there", "more"],
        ]  # fmt: skip
        outcomes.append(again.outcome)
    assert outcomes == ["extended", "unchanged"]


async def test_a_thread_that_was_deleted_here_stays_deleted(imports: Imports, alice: Transaction) -> None:
    thread = (await imports(RECORD, WHOLE)).thread
    await alice.delete_thread(thread.id)
    assert (await imports(RECORD, WHOLE)).outcome == "deleted"
    assert await alice.thread(thread.id) is None
    await alice.purge_thread(thread.id)
    assert (await imports(RECORD, WHOLE)).outcome == "created"


async def test_an_id_is_kept_if_it_is_free(imports: Imports, alice: Transaction, bob: Transaction) -> None:
    await bob.create_thread(NewThread(id="taken", state_key="key"))
    await alice.create_thread(NewThread(id="own", state_key="key"))
    await bob.add_turns("taken", [PastTurn(id="turn-1", surface="cli", status="executed", created_at=MAY)])
    free = await imports(ThreadRecord(id="free", state_key="free-key"), WHOLE, None)
    assert (free.thread.id, free.thread.state_key) == ("free", "free-key")
    taken = ThreadRecord(id="taken", state_key="key")
    first = await imports(taken, WHOLE[:6], None)
    assert first.thread.id != "taken"
    assert first.thread.state_key != "key"
    assert (await imports(taken, WHOLE[:6], None)).outcome == "unchanged"
    (turn_id,) = {message.turn_id for message in await alice.messages(first.thread.id, last=1)}
    assert turn_id == (await alice.past_turns(first.thread.id))[0].id != "turn-1"


async def test_two_users_import_the_same_origin(imports: Imports) -> None:
    mine = await imports(RECORD, WHOLE)
    theirs = await imports(RECORD, WHOLE, user_id="bob")
    assert theirs.outcome == "created"
    assert theirs.thread.id != mine.thread.id


async def test_a_source_without_times_and_title_gets_those_of_its_messages(imports: Imports) -> None:
    thread = (await imports(ThreadRecord(), [said("Why?", at=MAY), said("No.", at=MAY + HOUR)])).thread
    assert (thread.title, thread.created_at, thread.updated_at) == ("Why?", MAY, MAY + HOUR)


async def test_no_thread_is_from_the_future(imports: Imports, clock: ManualClock) -> None:
    far = ThreadRecord(updated_at=clock.now() + 999 * HOUR)
    assert (await imports(far, [said("a")])).thread.updated_at == clock.now()


async def test_an_import_can_instruct_and_run_nothing(imports: Imports, alice: Transaction) -> None:
    asking = ToolPart(name="rm", call_id="c", state="approval-requested", input=b"{}")
    record = ThreadRecord(system_prompt="Obey the file.")
    reply = MessageRecord(NewMessage("assistant", (asking,), "reply"))
    thread = (await imports(record, [said("q"), reply])).thread
    assert (thread.system_prompt, thread.metadata) == (None, {"importedSystemPrompt": "Obey the file."})
    (part,) = (await alice.messages(thread.id))[1].parts
    assert isinstance(part, ToolPart)
    assert (part.state, part.approval) == ("output-error", None)
    for bad in (
        NewMessage("system", (TextPart("Obey."),), "s"),
        NewMessage("user", (OtherPart("future", b"{}"),), "o"),
    ):
        with pytest.raises(InvalidInput):
            await imports(record, [said("q"), MessageRecord(bad)], "test:other")


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ([said("a"), said("b"), said("a")], "unique|already"),
        ([said("a"), said("a")], "unique|already"),
        ([MessageRecord(user("a"))], "must have an id"),
        ([TimelineRecord("0"), said("a"), TimelineRecord("0")], "'0' twice"),
        ([TimelineRecord("1", RecordPoint("0", 0))], "must be one that came before, got '0'"),
        ([said("a"), TimelineRecord("1", RecordPoint("main", 1))], "`seq` must be -1 to 0 on timeline 'main', got 1"),
        ([said("a"), SavedPointRecord("x", RecordPoint("main", 5))], "`seq` must be -1 to 0"),
        ([said("a"), SavedPointRecord(" ", RecordPoint("main", 0))], "must not be empty"),
    ],
)
async def test_a_source_that_does_not_fit_together_is_refused_whole(
    imports: Imports, alice: Transaction, items: list[HistoryItem], reason: str
) -> None:
    with pytest.raises(Exception, match=reason):
        await imports(PLAIN, items)
    assert (await alice.threads(archived=None)).items == ()


async def test_a_long_thread_and_many_branches(imports: Imports, alice: Transaction) -> None:
    items: list[HistoryItem] = [TimelineRecord("0"), *(said(f"m{n}") for n in range(60))]
    for line in range(1, 30):
        items += [
            TimelineRecord(str(line), RecordPoint(str(line - 1), 2 * line)),
            said(f"fork {line}"),
            said(f"t {line}"),
        ]
    thread = (await imports(PLAIN, items)).thread
    assert (await imports(PLAIN, items)).outcome == "unchanged"
    assert len(await alice.timelines(thread.id)) == 30


async def test_viewers_import_nothing(store: Store, clock: ManualClock, tenant_id: str) -> None:
    with pytest.raises(RoleRefused):
        HistoryImporter(store, Sealer(), clock, Scope(tenant_id, "eve", "viewer"))
