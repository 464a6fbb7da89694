"""The bench's arithmetic: a wrong median would make every claim in the README wrong."""

from __future__ import annotations

import pytest

from bench.measure import Samples, interleave


def test_median_best_and_p99_are_those_of_all_rounds_together() -> None:
    samples = Samples([[float(n) for n in range(1, 101)], [float(n) for n in range(101, 201)]])
    assert (samples.median, samples.best, samples.p99, len(samples)) == (100.5, 1.0, 198.0, 200)


def test_p99_of_few_samples_is_the_slowest() -> None:
    assert Samples([[3.0, 1.0, 2.0]]).p99 == 3.0


def test_a_ratio_compares_rounds_so_that_a_slow_minute_cancels_out() -> None:
    weather = [1.0, 1.0, 10.0, 10.0, 1.0]
    quick = Samples([[0.1 * slow] for slow in weather])
    slow = Samples([[0.3 * slow] for slow in weather])
    assert slow.ratio_to(quick) == pytest.approx(3.0)
    assert quick.ratio_to(slow) == pytest.approx(1 / 3)


def test_one_bad_round_does_not_move_a_ratio() -> None:
    quick = Samples([[0.1], [0.1], [0.1]])
    hit_once = Samples([[0.2], [9.0], [0.2]])
    assert hit_once.ratio_to(quick) == pytest.approx(2.0)


def test_contenders_that_did_not_share_their_rounds_are_not_compared() -> None:
    with pytest.raises(ValueError):
        Samples([[1.0]]).ratio_to(Samples([[1.0], [1.0]]))


def test_an_empty_round_is_refused() -> None:
    with pytest.raises(ValueError):
        Samples([[1.0], []])


async def test_contenders_take_turns_in_a_fixed_order_and_the_warm_up_is_not_counted() -> None:
    calls: list[str] = []

    async def first() -> None:
        calls.append("a")

    async def second() -> None:
        calls.append("b")

    taken = await interleave({"first": first, "second": second}, rounds=2, repeats=2, warmup=1)
    assert "".join(calls) == "aabb" * 3
    assert [len(samples.rounds) for samples in taken.values()] == [2, 2]
    assert all(len(times) == 2 for samples in taken.values() for times in samples.rounds)


async def test_background_work_is_waited_for_and_not_timed() -> None:
    calls: list[str] = []

    async def first() -> None:
        calls.append("a")

    async def background() -> None:
        calls.append("-")

    async def second() -> None:
        calls.append("b")

    taken = await interleave(
        {"first": first, "second": second}, rounds=2, repeats=2, warmup=0, afterwards={"first": background}
    )
    assert "".join(calls) == "aa-bb" * 2
    assert len(taken["first"]) == 4
