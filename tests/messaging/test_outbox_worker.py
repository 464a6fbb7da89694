"""The outbox: retries, dead letters, order at a place, and that nothing is sent by two workers."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest

from tests.messaging.conftest import Stage
from threadline.channel_wiring import PLATFORMS
from threadline.core.channels import OutboxRow
from threadline.core.sealing import CleanText
from threadline.core.threads import Scope
from threadline.messaging.outbox_worker import OutboxWorker
from threadline.messaging.settlement import DeliveryRetry, Settlement
from threadline.messaging.window_templates import WindowTemplates
from threadline.observability.metrics import Metrics
from threadline.processes import LocalProcesses
from threadline.testing.platforms import Fault

OUTBOX = "/api/v1/channels/outbox"


def another_worker(stage: Stage, **options: float) -> OutboxWorker:
    messaging = stage.threadline.messaging
    store, sealer = stage.threadline.store, stage.threadline.sealer
    retry = DeliveryRetry(**options)
    return OutboxWorker(
        store,
        messaging.codecs,
        messaging.credentials,
        messaging.http,
        stage.clock,
        Settlement(
            store,
            sealer,
            stage.clock,
            Metrics(),
            WindowTemplates(messaging.codecs, stage.clock),
            retry,
            chance=lambda: 0.0,
        ),
        platforms=PLATFORMS,
        retry=retry,
        processes=LocalProcesses(None),
        streams=messaging.live_views.streams,
        chance=lambda: 0.0,
    )


async def enqueue(stage: Stage, *texts: str, recipient: str = "DU1001") -> None:
    for number, text in enumerate(texts):
        (payload,) = stage.slack_codec.render(text)
        await stage.system.enqueue(
            "slack",
            recipient,
            CleanText(payload),
            turn_id=None,
            owner_id="alice",
            id=f"row-{recipient}-{number}",
        )


async def row(stage: Stage) -> OutboxRow:
    (found,) = await stage.outbox()
    return found


class TestRetries:
    @pytest.mark.req("S3-22")
    @pytest.mark.parametrize(
        ("failed", "asked", "wait"),
        [
            (1, None, 5),
            (2, None, 10),
            (3, None, 20),
            (4, None, 40),
            (6, None, 120),
            (1, 30, 30),
            (1, 1, 5),
            (1, 900, 120),
        ],
    )
    def test_waits_double_and_end_at_the_longest(self, failed: int, asked: float | None, wait: float) -> None:
        assert DeliveryRetry().wait(failed, asked, chance=0.0) == wait

    @pytest.mark.req("S3-22")
    def test_waits_are_spread_by_chance(self) -> None:
        waits = [DeliveryRetry().wait(2, None, chance) for chance in (0.0, 0.5, 1.0)]
        assert waits == [10.0, 11.0, 12.0]
        assert DeliveryRetry().wait(9, None, 1.0) == 120.0


@pytest.fixture
async def quiet(stage: Stage) -> Stage:
    """Nothing is delivered but by the test's own workers."""
    worker = stage.threadline.messaging.outbox_worker
    worker.deliver = _nothing  # type: ignore[method-assign]
    # The first sweep may have begun.
    await worker.close()
    # On PostgreSQL, what other tests left in their tenants is sent as well.
    stage.slack.sent.clear()
    stage.slack.calls = 0
    return stage


async def _nothing(tenant_id: str, *, is_sweep: bool = False) -> int:
    return 0


@pytest.mark.req("S3-22")
async def test_a_passing_fault_is_tried_again_later(quiet: Stage) -> None:
    worker = another_worker(quiet)
    await enqueue(quiet, "Hello")
    quiet.slack.fail_next(Fault("server_error"), Fault("rate_limited", retry_after=60))
    started = quiet.clock.now()
    assert await worker.deliver(quiet.tenant_id) == 1
    first = await row(quiet)
    assert (first.status, first.attempts, first.next_attempt_at) == ("waiting", 1, started + dt.timedelta(seconds=5))
    assert await worker.deliver(quiet.tenant_id) == 0
    quiet.clock.advance(5)
    assert await worker.deliver(quiet.tenant_id) == 1
    second = await row(quiet)
    assert (second.attempts, second.next_attempt_at - quiet.clock.now()) == (2, dt.timedelta(seconds=60))
    quiet.clock.advance(60)
    assert await worker.deliver(quiet.tenant_id) == 1
    assert (await row(quiet)).status == "sent"
    assert [reply.text for reply in quiet.slack.sent] == ["Hello"]


@pytest.mark.req("S3-22")
async def test_an_outage_of_almost_a_day_loses_nothing_and_keeps_the_order(quiet: Stage) -> None:
    worker = another_worker(quiet)
    await enqueue(quiet, "First", "Second")
    quiet.slack.fail_next(*[Fault("server_error")] * 1_000)
    started = quiet.clock.now()
    while quiet.clock.now() - started < dt.timedelta(hours=23, minutes=55):
        await worker.deliver(quiet.tenant_id)
        quiet.clock.advance(121)
    assert quiet.slack.sent == []
    assert 500 < quiet.slack.calls < 720, "about one attempt in two minutes, not one for each row"
    assert {row.status for row in await quiet.outbox()} == {"waiting"}
    quiet.slack.recover()
    quiet.clock.advance(121)
    await worker.deliver(quiet.tenant_id)
    assert [reply.text for reply in quiet.slack.sent] == ["First", "Second"]


@pytest.mark.req("S3-22")
async def test_what_fails_for_a_day_is_dead_and_can_be_requeued(quiet: Stage) -> None:
    worker = another_worker(quiet)
    await enqueue(quiet, "Hello")
    quiet.slack.fail_next(*[Fault("server_error")] * 3)
    for seconds in (86_399, 1):
        assert await worker.deliver(quiet.tenant_id) == 1
        assert (await row(quiet)).status == "waiting"
        quiet.clock.advance(seconds)
    quiet.clock.advance(120)
    assert await worker.deliver(quiet.tenant_id) == 1
    assert ((await row(quiet)).status, (await row(quiet)).attempts) == ("dead", 3)
    assert await worker.deliver(quiet.tenant_id) == 0
    admin = quiet.caller("root", "admin")
    listed = await quiet.http.get(OUTBOX, params={"status": "dead"}, headers=admin)
    (shown,) = listed.json()["deliveries"]
    assert (shown["id"], shown["attempts"], "payload" in shown) == ("row-DU1001-0", 3, False)
    quiet.slack.recover()
    again = await quiet.http.post(f"{OUTBOX}/{shown['id']}/requeue", headers=admin)
    assert (again.status_code, again.json()["status"], again.json()["attempts"]) == (200, "waiting", 0)
    assert await worker.deliver(quiet.tenant_id) == 1
    assert (await row(quiet)).status == "sent"
    assert (await quiet.http.post(f"{OUTBOX}/{shown['id']}/requeue", headers=admin)).status_code == 409
    assert (await quiet.http.post(f"{OUTBOX}/nothing/requeue", headers=admin)).status_code == 404


@pytest.mark.req("S3-22")
async def test_what_can_never_be_delivered_is_dead_at_once(quiet: Stage) -> None:
    await enqueue(quiet, "Hello")
    quiet.slack.fail_next(Fault("refused"))
    await another_worker(quiet).deliver(quiet.tenant_id)
    assert ((await row(quiet)).status, (await row(quiet)).attempts) == ("dead", 1)


@pytest.mark.req("S3-22")
async def test_the_outbox_is_for_administrators(small_stage: Stage) -> None:
    await enqueue(small_stage, "Hello")
    for role in ("viewer", "member"):
        caller = small_stage.caller("alice", role)
        assert (await small_stage.http.get(OUTBOX, headers=caller)).status_code == 403
        assert (await small_stage.http.post(f"{OUTBOX}/row-DU1001-0/requeue", headers=caller)).status_code == 403


@pytest.mark.req("S3-22")
async def test_dead_deliveries_are_requeued_together_over_http(quiet: Stage) -> None:
    worker = another_worker(quiet)
    await enqueue(quiet, "First", "Second")
    quiet.slack.fail_next(Fault("refused"), Fault("refused"))
    await worker.deliver(quiet.tenant_id)
    admin, path = quiet.caller("root", "admin"), f"{OUTBOX}/requeue"
    (backlog,) = (await quiet.http.get(OUTBOX, headers=admin)).json()["backlog"]
    assert (backlog["platform"], backlog["status"], backlog["count"]) == ("slack", "dead", 2)
    assert backlog["lastError"] == "is_archived"
    for wrong in ({"status": "sent"}, {"platform": "fax"}, {"since": "yesterday"}, {"since": "2026-01-01T00:00:00"}):
        assert (await quiet.http.post(path, json=wrong, headers=admin)).status_code == 400
    assert (await quiet.http.post(path, json={}, headers=quiet.caller("alice"))).status_code == 403
    for none in ({"status": "window_closed"}, {"platform": "telegram"}, {"since": quiet.clock.after(1).isoformat()}):
        assert (await quiet.http.post(path, json=none, headers=admin)).json() == {"requeued": 0}
    all_of_slack = {"platform": "slack", "since": quiet.clock.after(-1).isoformat()}
    assert (await quiet.http.post(path, json=all_of_slack, headers=admin)).json() == {"requeued": 2}
    await worker.deliver(quiet.tenant_id)
    assert [reply.text for reply in quiet.slack.sent] == ["First", "Second"]
    assert (await quiet.http.get(OUTBOX, headers=admin)).json()["backlog"] == []


class TestCircuit:
    @pytest.mark.req("S3-22")
    async def test_a_platform_that_is_down_is_probed_with_one_delivery_at_a_time(self, quiet: Stage) -> None:
        worker = another_worker(quiet)
        for recipient in range(20):
            await enqueue(quiet, "Hello", recipient=f"DU{recipient}")
        quiet.slack.fail_next(*[Fault("server_error")] * 100)
        await worker.deliver(quiet.tenant_id)
        first = quiet.slack.calls
        assert 5 <= first <= 10
        assert worker.open_circuits("slack") == 1
        assert await worker.deliver(quiet.tenant_id) == 0
        for probe, pause in enumerate((5, 10, 20, 40, 80, 120, 120), start=1):
            quiet.clock.advance(pause - 0.001)
            assert await worker.deliver(quiet.tenant_id) == 0
            quiet.clock.advance(0.001)
            assert await worker.deliver(quiet.tenant_id) == 1
            assert quiet.slack.calls == first + probe
        quiet.slack.recover()
        quiet.clock.advance(121)
        await worker.deliver(quiet.tenant_id)
        assert len(quiet.slack.sent) == 20
        assert worker.open_circuits("slack") == 0

    @pytest.mark.req("S3-22")
    async def test_other_platforms_and_tenants_are_not_paused(self, quiet: Stage) -> None:
        worker, abroad = another_worker(quiet), quiet.other_tenant()
        scope = Scope(abroad.tenant_id, "root", "admin")
        await quiet.threadline.messaging.credentials.put(scope, "slack", quiet.slack.secrets)
        for recipient in range(6):
            await enqueue(quiet, "Hello", recipient=f"DU{recipient}")
        quiet.slack.fail_next(*[Fault("server_error")] * 6)
        await worker.deliver(quiet.tenant_id)
        assert worker.open_circuits("slack") == 1
        await enqueue(abroad, "Hello from abroad")
        await worker.deliver(abroad.tenant_id)
        await quiet.link(quiet.telegram)
        quiet.telegram.write("hello")
        (payload,) = quiet.threadline.messaging.codecs["telegram"].render("Hello on Telegram")
        await quiet.system.enqueue("telegram", "1001", CleanText(payload), turn_id=None, owner_id="alice")
        await worker.deliver(quiet.tenant_id)
        assert [reply.text for reply in quiet.slack.sent] == ["Hello from abroad"]
        assert [reply.text for reply in quiet.telegram.sent] == ["Hello on Telegram"]

    @pytest.mark.req("S3-22")
    @pytest.mark.parametrize("fault", [Fault("rate_limited", retry_after=1), Fault("refused")])
    async def test_a_rate_limit_or_a_refusal_opens_no_circuit(self, quiet: Stage, fault: Fault) -> None:
        worker = another_worker(quiet)
        for recipient in range(12):
            await enqueue(quiet, "Hello", recipient=f"DU{recipient}")
        quiet.slack.fail_next(*[fault] * 11)
        await worker.deliver(quiet.tenant_id)
        assert quiet.slack.calls == 12
        assert worker.open_circuits("slack") == 0

    @pytest.mark.req("S3-22")
    async def test_the_circuit_opens_also_if_the_failures_are_of_one_conversation(self, quiet: Stage) -> None:
        worker = another_worker(quiet)
        await enqueue(quiet, "Hello")
        quiet.slack.fail_next(*[Fault("server_error")] * 5)
        for _ in range(5):
            assert worker.open_circuits("slack") == 0
            assert await worker.deliver(quiet.tenant_id) == 1
            quiet.clock.advance(121)
        assert worker.open_circuits("slack") == 1

    async def test_open_circuits_and_the_oldest_delivery_are_metrics(self, small_stage: Stage) -> None:
        small_stage.slack.fail_next(*[Fault("server_error")] * 100)
        for recipient in range(6):
            await enqueue(small_stage, "Hello", recipient=f"DU{recipient}")
        messaging = small_stage.threadline.messaging
        await messaging.outbox_worker.deliver(small_stage.tenant_id)
        small_stage.clock.advance(60)
        scraped = (await small_stage.http.get("/metrics", headers=small_stage.caller("root", "admin"))).text
        assert 'threadline_outbox_open_circuits{platform="slack"} 1' in scraped
        assert 'threadline_outbox_oldest_seconds{platform="slack"} 60' in scraped


async def test_a_closed_window_is_not_stormed(quiet: Stage) -> None:
    (payload,) = quiet.threadline.messaging.codecs["whatsapp"].render("Late")
    await quiet.system.enqueue(
        "whatsapp", "106540352242922:16505551234", CleanText(payload), turn_id=None, owner_id="alice", id="late"
    )
    quiet.whatsapp.fail_next(Fault("window_closed"))
    await another_worker(quiet).deliver(quiet.tenant_id)
    assert (await row(quiet)).status == "window_closed"
    quiet.clock.advance(1_000)
    assert await another_worker(quiet).deliver(quiet.tenant_id) == 0


@pytest.mark.req("S3-22", "H-09")
@pytest.mark.parametrize("recipient", ["DU1001", "C0GENERAL"])
async def test_a_send_with_unknown_outcome_is_looked_for_before_it_is_repeated(quiet: Stage, recipient: str) -> None:
    worker = another_worker(quiet)
    if recipient == "C0GENERAL":
        (arrival,) = quiet.slack_codec.parse_webhook(quiet.slack.mention("hello")[1]).arrivals
        recipient = arrival.recipient
    await enqueue(quiet, "Hello", recipient=recipient)
    quiet.slack.fail_next(Fault("silent"))
    await worker.deliver(quiet.tenant_id)
    doubtful = await row(quiet)
    assert (doubtful.status, doubtful.is_ambiguous) == ("waiting", True)
    quiet.clock.advance(6)
    await worker.deliver(quiet.tenant_id)
    sent = await row(quiet)
    assert (sent.status, sent.is_ambiguous) == ("sent", True)
    assert (quiet.slack.calls, quiet.slack.searches) == (1, 1)
    assert [reply.text for reply in quiet.slack.sent] == ["Hello"]


@pytest.mark.req("H-09")
async def test_a_send_that_never_arrived_is_repeated_after_two_searches(quiet: Stage) -> None:
    await enqueue(quiet, "Hello")
    await quiet.system.claim_outbox("a worker that died", until=quiet.clock.after(30))
    quiet.clock.advance(30)
    await another_worker(quiet).deliver(quiet.tenant_id)
    assert (await row(quiet)).status == "sent"
    assert (quiet.slack.calls, quiet.slack.searches) == (1, 2)


@pytest.mark.req("H-09")
async def test_where_slack_does_not_let_us_look_the_message_is_sent_again(quiet: Stage) -> None:
    quiet.slack.scopes = frozenset(("chat:write",))
    worker = another_worker(quiet)
    await enqueue(quiet, "Hello")
    quiet.slack.fail_next(Fault("silent"))
    await worker.deliver(quiet.tenant_id)
    quiet.clock.advance(6)
    await worker.deliver(quiet.tenant_id)
    assert (await row(quiet)).status == "sent"
    assert [reply.text for reply in quiet.slack.sent] == ["Hello", "Hello"]


@pytest.mark.req("S3-22")
async def test_many_workers_send_each_row_once_and_in_order(quiet: Stage) -> None:
    for recipient in ("DU1", "DU2", "DU3"):
        await enqueue(quiet, *(f"{recipient} {number}" for number in range(6)), recipient=recipient)
    workers = [another_worker(quiet) for _ in range(4)]
    while sum(await asyncio.gather(*(worker.deliver(quiet.tenant_id) for worker in workers))):
        pass
    shown = [reply.text for reply in quiet.slack.sent]
    assert len(shown) == quiet.slack.calls == 18
    for recipient in ("DU1", "DU2", "DU3"):
        assert [text for text in shown if text.startswith(recipient)] == [
            f"{recipient} {number}" for number in range(6)
        ]


@pytest.mark.req("S3-22")
async def test_a_stale_claim_is_taken_over(quiet: Stage) -> None:
    await enqueue(quiet, "Hello")
    await quiet.system.claim_outbox("a worker that died", until=quiet.clock.after(30))
    worker = another_worker(quiet)
    assert await worker.deliver(quiet.tenant_id) == 0
    quiet.clock.advance(30)
    assert await worker.deliver(quiet.tenant_id) == 1
    assert (await row(quiet)).status == "sent"


async def test_a_long_reply_arrives_in_pieces_and_in_order(small_stage: Stage) -> None:
    await small_stage.link(small_stage.telegram)
    paragraphs = [f"Paragraph {number}. " + "word " * 150 for number in range(20)]
    small_stage.agent.lines = ["\n\n".join(paragraphs)]
    await small_stage.telegram.say("Tell me everything")
    shown = "\n\n".join(reply.text for reply in await small_stage.telegram.replies(4))
    found = [shown.index(f"Paragraph {number}.") for number in range(20)]
    assert found == sorted(found)


async def test_without_credentials_a_delivery_waits(quiet: Stage) -> None:
    await enqueue(quiet, "Hello")
    await quiet.system.delete_credentials("slack")
    worker = another_worker(quiet)
    await worker.deliver(quiet.tenant_id)
    assert ((await row(quiet)).status, (await row(quiet)).attempts) == ("waiting", 1)
    assert "credentials" in ((await row(quiet)).last_error or "")
