"""Circuit breaker for the platforms that one worker sends to, in one tenant.

After several failures in a row that are the platform's own (it is down, or does not answer), nothing more is claimed
for it: deliveries keep their attempts and wait. After a pause one delivery is sent as a probe. If that fails, the pause
is doubled; if it succeeds, everything that waits is sent, in order. A rate limit or a refusal says that the platform
works.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Iterable
from typing import NamedTuple

from threadline.core.platform_messages import Ambiguous, Outcome, Transient
from threadline.core.turns import Surface
from threadline.messaging.settlement import DeliveryRetry
from threadline.ports import Clock

# Fewer would let one slow response stop a platform; as many in a row are no coincidence.
_FAILURES = 5


class _Circuit:
    def __init__(self) -> None:
        self.failures = 0
        self.probe_at: dt.datetime | None = None
        """When to probe; None while the circuit is closed."""
        self.is_probing = False


class Claimable(NamedTuple):
    """Platforms that work, and platforms for which one probe may be sent now."""

    closed: tuple[Surface, ...]
    to_probe: tuple[Surface, ...]


class CircuitBreaker:
    def __init__(self, clock: Clock, retry: DeliveryRetry, chance: Callable[[], float] = random.random) -> None:
        self._clock = clock
        self._retry = retry
        self._chance = chance
        self._circuits: dict[Surface, _Circuit] = {}

    def claimable(self, platforms: Iterable[Surface]) -> Claimable:
        closed, to_probe = [], []
        for platform in platforms:
            circuit = self._circuits.get(platform)
            if circuit is None or circuit.probe_at is None:
                closed.append(platform)
            elif not circuit.is_probing and circuit.probe_at <= self._clock.now():
                to_probe.append(platform)
        return Claimable(tuple(closed), tuple(to_probe))

    def begin_probe(self, platform: Surface) -> None:
        """Until its outcome is recorded, no second probe is sent."""
        self._circuits[platform].is_probing = True

    def record(self, platform: Surface, outcome: Outcome) -> None:
        if not _is_outage(outcome):
            self._circuits.pop(platform, None)
            return
        circuit = self._circuits.setdefault(platform, _Circuit())
        if circuit.probe_at is not None and not circuit.is_probing:
            # A send that began before the circuit opened: it says nothing new.
            return
        circuit.failures += 1
        if circuit.failures >= _FAILURES:
            pause = self._retry.wait(circuit.failures - _FAILURES + 1, None, self._chance())
            circuit.probe_at = self._clock.now() + dt.timedelta(seconds=pause)
        circuit.is_probing = False

    @property
    def has_failures(self) -> bool:
        """Whether the last send to some platform failed."""
        return bool(self._circuits)

    @property
    def open_platforms(self) -> list[Surface]:
        return [platform for platform, circuit in self._circuits.items() if circuit.probe_at is not None]

    def seconds_to_probe(self) -> float | None:
        """Until the next probe may be sent; None if there is none to wait for."""
        times = [circuit.probe_at for circuit in self._circuits.values() if circuit.probe_at and not circuit.is_probing]
        return max(0.0, (min(times) - self._clock.now()).total_seconds()) if times else None


def _is_outage(outcome: Outcome) -> bool:
    return isinstance(outcome, Ambiguous) or (isinstance(outcome, Transient) and outcome.is_outage)
