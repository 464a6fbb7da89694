"""The delivery loop: what a worker does that stops, fails, or is slow. No platform and no store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from threadline.core.errors import StoreUnavailable
from threadline.core.platform_messages import Outcome, Permanent, Released, Sent
from threadline.core.turns import Surface
from threadline.messaging.circuit_breaker import CircuitBreaker
from threadline.messaging.delivery_worker import DeliveryWorker
from threadline.messaging.settlement import DeliveryRetry
from threadline.testing.clock import ManualClock


class Parcel(NamedTuple):
    id: str
    platform: Surface = "slack"


class Queue:
    """Rows that are due, and what they were settled with. A claim waits for `open`, after it has taken its rows."""

    def __init__(self, *ids: str) -> None:
        self.due = [Parcel(id) for id in ids]
        self.settled: list[tuple[str, Outcome]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.claimed = asyncio.Event()
        self.failures = 0

    async def claim(self, platforms: Sequence[Surface], *, limit: int, holding: Sequence[str]) -> list[Parcel]:
        rows, self.due = self.due[:limit], self.due[limit:]
        self.claimed.set()
        await self.open.wait()
        return rows

    async def settle(self, delivery: Parcel, outcome: Outcome) -> bool:
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("the database is restarting")
        self.settled.append((delivery.id, outcome))
        return True

    def stop(self) -> None:
        """Its claims end by themselves."""


class Post:
    """Sends when `open` is set."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.began = asyncio.Event()
        self.sent: list[str] = []
        self.fault: Exception | None = None

    async def send(self, delivery: Parcel) -> Outcome:
        self.began.set()
        await self.open.wait()
        if self.fault is not None:
            raise self.fault
        self.sent.append(delivery.id)
        return Sent()


def worker_of(queue: Queue, post: Post) -> DeliveryWorker[Parcel]:
    return DeliveryWorker(queue, post, CircuitBreaker(ManualClock(), DeliveryRetry()), ["slack"])


@pytest.mark.req("S3-22")
async def test_a_claim_that_is_under_way_when_the_worker_stops_is_given_back() -> None:
    queue, post = Queue("a", "b"), Post()
    worker = worker_of(queue, post)
    queue.open.clear()
    task = asyncio.create_task(worker.drain())
    await queue.claimed.wait()
    task.cancel()
    closing = asyncio.create_task(worker.close(1.0))
    await asyncio.sleep(0)
    queue.open.set()
    await closing
    assert queue.settled == [("a", Released(may_be_sent=False)), ("b", Released(may_be_sent=False))]
    assert post.sent == []


@pytest.mark.req("S3-22")
async def test_a_send_that_ends_in_time_is_finished_when_the_worker_stops() -> None:
    queue, post = Queue("a"), Post()
    worker = worker_of(queue, post)
    post.open.clear()
    task = asyncio.create_task(worker.drain())
    await post.began.wait()
    closing = asyncio.create_task(worker.close(30.0))
    await asyncio.sleep(0)
    post.open.set()
    await asyncio.gather(closing, task)
    assert queue.settled == [("a", Sent())]


@pytest.mark.req("S3-22")
async def test_a_send_that_takes_too_long_is_given_back_as_ambiguous() -> None:
    queue, post = Queue("a"), Post()
    worker = worker_of(queue, post)
    post.open.clear()
    task = asyncio.create_task(worker.drain())
    await post.began.wait()
    await worker.close(0.0)
    await task
    assert queue.settled == [("a", Released(may_be_sent=True))]


async def test_a_row_that_becomes_due_while_another_is_being_sent_does_not_wait_for_it() -> None:
    queue, post = Queue("slow"), Post()
    worker = worker_of(queue, post)
    post.open.clear()
    task = asyncio.create_task(worker.drain())
    await post.began.wait()
    queue.due.append(Parcel("new"))
    queue.claimed.clear()
    worker.wake()
    await queue.claimed.wait()
    post.open.set()
    assert await task == 2
    assert sorted(post.sent) == ["new", "slow"]


async def test_a_settlement_is_repeated_until_the_store_is_up_and_the_row_is_sent_once() -> None:
    queue, post = Queue("a"), Post()
    queue.failures = 1
    assert await worker_of(queue, post).drain() == 1
    assert (queue.settled, post.sent) == ([("a", Sent())], ["a"])


async def test_a_defect_of_a_sender_is_a_dead_letter_and_does_not_block_the_rest() -> None:
    queue, post = Queue("a"), Post()
    post.fault = ZeroDivisionError()
    await worker_of(queue, post).drain()
    assert queue.settled == [("a", Permanent("ZeroDivisionError in the sender"))]
