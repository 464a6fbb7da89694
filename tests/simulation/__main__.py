"""Runs the simulation: `python -m tests.simulation`, or `make simulate`.

--seeds 1-200     runs these seeds and reports the failing ones
--seed 17         runs this seed and prints its trace
--defects         plants each defect in turn and reports which seed finds it
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.defects import DEFECTS
from tests.simulation.world import Result, simulate

_SEEDS_PER_DEFECT = 60


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", default="1-100", help="the first and the last seed, or one")
    parser.add_argument("--seed", type=int, help="one seed, with its trace")
    parser.add_argument("--jobs", type=int, default=1, help="Python processes that share the seeds")
    parser.add_argument("--defects", action="store_true", help="plant defects that must be found")
    options = parser.parse_args()
    # What is imported stays: the collections between two runs need not look at it.
    gc.freeze()
    if options.defects:
        return find_defects()
    if options.seed is not None:
        return show(options.seed)
    first, _, last = options.seeds.partition("-")
    return run(range(int(first), int(last or first) + 1), options.jobs)


def run(seeds: range, jobs: int) -> int:
    began, steps, seconds, failed = time.monotonic(), 0, 0.0, 0
    faults: Counter[str] = Counter()
    with ProcessPoolExecutor(jobs) as workers:
        for result in workers.map(simulate_without_trace, seeds):
            steps, seconds, faults = steps + result.steps, seconds + result.seconds, faults + result.faults
            failed += bool(result.violations)
            print(f"seed {result.seed}: {result.steps} steps, digest {result.digest}")
            for violation in result.violations:
                print(f"  seed {result.seed}: {violation}")
    rate = steps / (time.monotonic() - began)
    injected = ", ".join(f"{count} {kind}" for kind, count in sorted(faults.items()))
    print(f"{len(seeds)} seeds, {failed} failed, {steps} steps ({rate:.0f} a second), {seconds:.0f} virtual seconds")
    print(f"injected: {injected}")
    if failed:
        print("replay one with its trace: make simulate SEED=…")
    return 1 if failed else 0


def simulate_without_trace(seed: int) -> Result:
    """Traces are long: a process of the pool keeps them to itself."""
    return simulate(seed)._replace(trace=[])


def show(seed: int) -> int:
    result = simulate(seed)
    print("\n".join(result.trace))
    print(f"seed {seed}: {result.steps} steps, digest {result.digest}, {len(result.violations)} violations")
    return 1 if result.violations else 0


def find_defects() -> int:
    missed = 0
    for name, replacements in DEFECTS.items():
        runs = (simulate(seed, replacements) for seed in range(1, _SEEDS_PER_DEFECT + 1))
        found = next((result for result in runs if result.violations), None)
        missed += found is None
        print(f"{name}: " + ("not found" if found is None else f"seed {found.seed}: {found.violations[0]}"))
    return 1 if missed else 0


if __name__ == "__main__":
    # The order of a set of strings depends on the hash seed, which must be the same in every run.
    if os.environ.get("PYTHONHASHSEED") != "0":
        command = [sys.executable, "-m", "tests.simulation", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})
    sys.exit(main())
