"""Faults of providers: what they mean, in words for the user, and whether trying again may help.

A round is tried again only before its first event: what a user has seen begin is never begun anew. Waits double, are
spread by chance, and are never shorter than the provider asked for; one that asks for too long is not waited for.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import NoReturn

import msgspec

from threadline.core.errors import AgentFailed
from threadline.core.events import Event, Status
from threadline.core.sanitize import sanitize_text

_WORDS = 300


class Fault(Exception):
    """A round went wrong. `passing` says that the next attempt may go well, `retry_after` when the provider said so."""

    def __init__(self, text: str, *, passing: bool = False, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.passing = passing
        self.retry_after = retry_after


class RetryPolicy(msgspec.Struct, frozen=True):
    attempts: int = 4
    first_wait: float = 1.0
    longest_wait: float = 30.0

    def wait(self, failed: int, fault: Fault, chance: float) -> float | None:
        """Seconds before the next attempt after so many failed ones; None to give up."""
        asked = fault.retry_after or 0.0
        if not fault.passing or failed >= self.attempts or asked > self.longest_wait:
            return None
        backoff = min(self.first_wait * 2.0 ** (failed - 1), self.longest_wait) * (0.5 + chance / 2)
        return max(backoff, asked)


class Retrier:
    """Tries a round until it begins, or patience ends. `sleep` and `chance` are replaced in tests."""

    def __init__(
        self,
        patience: RetryPolicy | None = None,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._patience = patience or RetryPolicy()
        self._sleep = sleep
        self._chance = chance

    async def run(self, attempt: Callable[[], AsyncGenerator[Event, None]]) -> AsyncGenerator[Event, None]:
        """The events of the first attempt that begins; AgentFailed where none does, or where that one breaks off."""
        failed = 0
        while True:
            begun = False
            try:
                async with aclosing(attempt()) as events:
                    async for event in events:
                        begun = True
                        yield event
                return
            except Fault as fault:
                failed += 1
                wait = None if begun else self._patience.wait(failed, fault, self._chance())
                if wait is None:
                    _give_up(fault)
                reason = str(fault).rstrip(".")
            yield Status(f"{reason}. Trying again in {wait:.0f} s.")
            await self._sleep(wait)


def _give_up(fault: Fault) -> NoReturn:
    if fault.retry_after is None:
        raise AgentFailed(str(fault)) from fault
    raise AgentFailed(f"{str(fault).rstrip('.')}. Try again in {fault.retry_after:.0f} s.") from fault


def status_fault(who: str, status: int, words: str = "", headers: Mapping[str, str] | None = None) -> Fault:
    """What an HTTP status other than success means. `words` are the provider's own, shown where they can help."""
    retry_after = seconds_asked(headers or {})
    said = f": {short(words)}" if words.strip() else "."
    match status:
        case 401 | 403:
            # Their words are left out: some providers repeat the key in them.
            return Fault(f"{who} refused the key (HTTP {status}). Check the agent's key and its rights.")
        case 404:
            return Fault(f"{who} does not know this model or address (HTTP 404){said}")
        case 413:
            return Fault(f"{who} finds the prompt too large (HTTP 413){said}")
        case 429:
            return Fault(f"{who} is limiting requests (HTTP 429){said}", passing=True, retry_after=retry_after)
        case 408 | 409 | 425:
            return Fault(f"{who} could not answer now (HTTP {status}){said}", passing=True, retry_after=retry_after)
        case _ if status >= 500:
            return Fault(f"{who} has a problem of its own (HTTP {status}){said}", passing=True, retry_after=retry_after)
    return Fault(f"{who} refused the request (HTTP {status}){said}")


def seconds_asked(headers: Mapping[str, str]) -> float | None:
    """How long a provider asks to wait: `retry-after-ms`, or `retry-after` in seconds or as a date."""
    try:
        if "retry-after-ms" in headers:
            return max(float(headers["retry-after-ms"]) / 1000, 0.0)
        value = headers.get("retry-after", "").strip()
        if not value:
            return None
        if value.replace(".", "", 1).isdigit():
            return float(value)
        moment = parsedate_to_datetime(value)
    except (ValueError, TypeError, OverflowError):
        return None
    at = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max((at - datetime.now(UTC)).total_seconds(), 0.0)


def short(words: str) -> str:
    """A provider's words on one line of a bounded length."""
    line = " ".join(sanitize_text(words).split())
    return line if len(line) <= _WORDS else line[: _WORDS - 1] + "…"
