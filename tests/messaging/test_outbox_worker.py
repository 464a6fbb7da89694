"""The outbox: retries, dead letters, order at a place, and that nothing is sent by two workers."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest

from tests.messaging.conftest import Stage
from threadline.channel_wiring import PLATFORMS
from threadline.core.channels import AMBIGUOUS, OutboxRow
from threadline.core.errors import SettingsInvalid
from threadline.core.platform_messages import Ambiguous, HttpRequest, HttpResponse, Transient
from threadline.core.sealing import CleanText
from threadline.messaging.outbox_worker import OutboxWorker
from threadline.messaging.settlement import DeliveryRetry, Settlement
from threadline.observability.metrics import Metrics
from threadline.platform_http import PlatformHttp
from threadline.testing.platforms import Fault
from threadline.testing.platforms.loopback import Asked, LoopbackServer, Told

OUTBOX = "/api/v1/channels/outbox"


def another_worker(stage: Stage, **options: float) -> OutboxWorker:
    messaging = stage.threadline.messaging
    store, sealer = stage.threadline.store, stage.threadline.sealer
    retry = DeliveryRetry(**options)  # type: ignore[arg-type]
    return OutboxWorker(
        store,
        messaging.codecs,
        messaging.credentials,
        messaging.http,
        stage.clock,
        Settlement(store, sealer, stage.clock, Metrics(), retry, chance=lambda: 0.0),
        platforms=PLATFORMS,
        retry=retry,
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
    stage.threadline.messaging.outbox_worker.deliver = _nothing  # type: ignore[method-assign]
    return stage


async def _nothing(tenant_id: str) -> int:
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
async def test_what_fails_five_times_is_dead_and_can_be_requeued(quiet: Stage) -> None:
    worker = another_worker(quiet)
    await enqueue(quiet, "Hello")
    quiet.slack.fail_next(*[Fault("server_error")] * 5)
    for _ in range(5):
        assert await worker.deliver(quiet.tenant_id) == 1
        quiet.clock.advance(121)
    assert ((await row(quiet)).status, (await row(quiet)).attempts) == ("dead", 5)
    assert await worker.deliver(quiet.tenant_id) == 0
    admin = quiet.caller("root", "admin")
    listed = await quiet.http.get(OUTBOX, params={"status": "dead"}, headers=admin)
    (shown,) = listed.json()["deliveries"]
    assert (shown["id"], shown["attempts"], "payload" in shown) == ("row-DU1001-0", 5, False)
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


@pytest.mark.req("S3-22")
async def test_a_send_with_unknown_outcome_is_marked_and_shown_once(quiet: Stage) -> None:
    worker = another_worker(quiet)
    await enqueue(quiet, "Hello")
    quiet.slack.fail_next(Fault("silent"))
    await worker.deliver(quiet.tenant_id)
    doubtful = await row(quiet)
    assert (doubtful.status, (doubtful.last_error or "").startswith(AMBIGUOUS)) == ("waiting", True)
    quiet.clock.advance(6)
    await worker.deliver(quiet.tenant_id)
    sent = await row(quiet)
    assert (sent.status, (sent.last_error or "").startswith(AMBIGUOUS)) == ("sent", True)
    assert quiet.slack.calls == 2
    assert [reply.text for reply in quiet.slack.sent] == ["Hello"], "Slack knows our key"


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


class TestTheDoor:
    def test_a_stand_in_is_on_this_machine(self) -> None:
        for wrong in ("http://10.0.0.1/api", "https://example.org", "http://127.0.0.1.example.org/"):
            with pytest.raises(SettingsInvalid):
                PlatformHttp([wrong])

    @pytest.mark.parametrize(
        "url", ["http://slack.com/api", "https://example.org/", "http://127.0.0.1:9/", "https://slack.com.evil.org/"]
    )
    async def test_nothing_is_sent_to_anybody_but_a_platform(self, url: str) -> None:
        answered = await PlatformHttp().send(HttpRequest("POST", url, {}))
        assert isinstance(answered, Transient)
        assert "address" in answered.reason

    async def test_whether_something_was_sent_is_told_apart(self) -> None:
        async def hang_up(asked: Asked) -> Told:
            raise ConnectionResetError

        server = LoopbackServer(hang_up)
        await server.start()
        door = PlatformHttp([server.url])
        request = HttpRequest("POST", f"{server.url}/secret-in-the-path", {"authorization": "Bearer secret"}, b"{}")
        broken = await door.send(request)
        await server.close()
        unreachable = await door.send(request)
        assert isinstance(broken, Ambiguous)
        assert isinstance(unreachable, Transient)
        assert "secret" not in broken.reason + unreachable.reason

    async def test_an_answer_is_given_whatever_its_status(self) -> None:
        async def refuse(asked: Asked) -> Told:
            return Told(418, b"short and stout", {"retry-after": "7"})

        server = LoopbackServer(refuse)
        await server.start()
        answered = await PlatformHttp([server.url]).send(HttpRequest("POST", server.url, {}, b"{}"))
        await server.close()
        assert isinstance(answered, HttpResponse)
        assert (answered.status, answered.body, answered.headers["retry-after"]) == (418, b"short and stout", "7")
