"""Metrics: every request and turn is counted, without user data."""

from __future__ import annotations

import asyncio
import re

import pytest

from tests.conventions.rules import ROOT
from tests.scripted_agent import ScriptedAgent
from tests.service.conftest import held
from tests.service.running_service import CHAT, THREADS, Client, wait_until_idle
from threadline.bootstrap import Threadline
from threadline.observability.metrics import MOST_SERIES, Family, Metrics, Sample
from threadline.service.routes.monitoring import exposition

LINE = re.compile(r'(?P<name>[a-z_]+)(?:\{(?P<labels>(?:[a-z_]+="[^"]*",?)+)\})? (?P<value>[0-9.e+-]+|\+Inf)')


async def scraped(threadline: Threadline, client: Client) -> dict[str, float]:
    await wait_until_idle(threadline)
    return await scraped_now(client)


async def scraped_now(client: Client) -> dict[str, float]:
    answer = await client.http.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines(answer.text)}


def lines(text: str) -> list[str]:
    found = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(LINE.fullmatch(line) for line in found)
    return found


async def test_requests_turns_and_tokens_are_counted(threadline: Threadline, client: Client) -> None:
    await client.ask("Hi", "key")
    await client.ask("Again", "key")
    await client.http.get(f"{THREADS}/key")
    await client.http.get(f"{THREADS}/not valid")
    await client.http.get("/nowhere")
    found = await scraped(threadline, client)
    assert found['threadline_http_requests_total{method="POST",route="/api/v1/ai/chat",status="200"}'] == 2
    route = "/api/v1/ai/threads/{state_key}"
    assert found[f'threadline_http_requests_total{{method="GET",route="{route}",status="200"}}'] == 1
    assert found[f'threadline_http_requests_total{{method="GET",route="{route}",status="400"}}'] == 1
    assert found['threadline_http_requests_total{method="GET",route="unknown",status="404"}'] == 1
    assert found['threadline_turns_total{status="executed",surface="web"}'] == 2
    assert found['threadline_turn_duration_seconds_count{surface="web"}'] == 2
    bucket = 'threadline_http_request_duration_seconds_bucket{method="POST",route="/api/v1/ai/chat",le="+Inf"}'
    assert found[bucket] == 2
    assert 'threadline_tokens_total{direction="output",model="unknown"}' in found
    assert found['threadline_database_connections{state="open"}'] == 2
    assert found["threadline_snapshot_read_failures_total"] == 0


async def test_the_operations_page_lists_every_metric(threadline: Threadline, client: Client) -> None:
    await client.ask("Hi", "key")
    await wait_until_idle(threadline)
    told = re.findall(r"^\| `(threadline_\w+)`", (ROOT / "docs" / "operations.md").read_text(), re.MULTILINE)
    served = re.findall(r"^# TYPE (\w+)", (await client.http.get("/metrics")).text, re.MULTILINE)
    assert sorted(told) == sorted(served)


async def test_running_turns_and_readers_are_counted_while_they_last(
    threadline: Threadline, client: Client, scripted_agent: ScriptedAgent
) -> None:
    async with held(scripted_agent):
        asking = asyncio.create_task(client.post_chat("Hi", "key"))
        await scripted_agent.waiting.wait()
        during = await scraped_now(client)
    await asking
    after = await scraped(threadline, client)
    # The scrape itself is one of the open requests.
    names = ("threadline_turns_running", "threadline_stream_subscribers", "threadline_http_requests_open")
    assert [during[name] for name in names] == [1, 1, 2]
    assert [after[name] for name in names] == [0, 0, 1]


async def test_no_label_contains_user_input(client: Client) -> None:
    await client.ask("Hi", "mykey")
    await client.http.put("/api/v1/ai/saves/myname", json={"stateKey": "mykey"})
    await client.http.request("MYMETHOD", f"{THREADS}/mykey")
    text = (await client.http.get("/metrics")).text
    assert "my" not in text.lower()


async def test_metrics_need_an_admin_token_except_on_this_machine(people: dict[str, Client]) -> None:
    assert (await people["viewer"].http.get("/metrics")).status_code == 200
    for through_a_proxy in ({"x-forwarded-for": "1.2.3.4"}, {"host": "threads.example"}):
        refused = await people["alice"].http.get("/metrics", headers=through_a_proxy)
        assert (refused.status_code, refused.json()["code"]) == (403, "role_refused")
        assert (await people["admin"].http.get("/metrics", headers=through_a_proxy)).status_code == 200


@pytest.mark.req("S0-09")
async def test_context_read_failures_are_exported(threadline: Threadline, client: Client) -> None:
    threadline.metrics.counter("threadline_snapshot_read_failures_total", "").add()
    assert (await scraped(threadline, client))["threadline_snapshot_read_failures_total"] == 1


async def test_a_metric_keeps_a_bounded_number_of_series() -> None:
    counter = Metrics().counter("threadline_x_total", "X.", ("what",))
    for number in range(MOST_SERIES + 50):
        counter.add(str(number))
    family = await counter.family()
    assert len(family.samples) == MOST_SERIES + 1
    assert counter.value("other") == 50


async def test_a_worker_labels_every_line_with_its_number(threadline: Threadline, client: Client) -> None:
    threadline.metrics.add_common_label("worker", "1")
    found = await scraped(threadline, client)
    assert found
    assert all('{worker="1"' in name for name in found)


async def test_buckets_count_everything_below_their_bound() -> None:
    metrics = Metrics()
    histogram = metrics.histogram("threadline_x_seconds", "X.", bounds=(1.0, 2.5))
    for value in (0.5, 1.0, 2.0, 9.0):
        histogram.observe(value)
    assert lines(exposition(await metrics.families())) == [
        'threadline_x_seconds_bucket{le="1.0"} 2',
        'threadline_x_seconds_bucket{le="2.5"} 3',
        'threadline_x_seconds_bucket{le="+Inf"} 4',
        "threadline_x_seconds_sum 12.5",
        "threadline_x_seconds_count 4",
    ]


def test_texts_and_labels_are_escaped() -> None:
    family = Family("x", "counter", "a\nb", [Sample("", (("what", 'say "\\"\n'),), 1.5)])
    assert exposition([family]) == '# HELP x a\\nb\n# TYPE x counter\nx{what="say \\"\\\\\\"\\n"} 1.5\n'


async def test_a_stopped_turn_is_counted_by_how_it_ended(
    threadline: Threadline, client: Client, scripted_agent: ScriptedAgent
) -> None:
    async with held(scripted_agent):
        asking = asyncio.create_task(client.post_chat("Hi", "key"))
        await scripted_agent.waiting.wait()
        await client.http.post(f"{CHAT}/key/stop")
        await asking
    assert (await scraped(threadline, client))['threadline_turns_total{status="stopped",surface="web"}'] == 1
