"""Failed requests to providers: what they mean in words for the user, and when to retry.

A round is retried only before its first event, because text that a user has seen must not be replaced by another
attempt. Delays double, are randomised, and are never shorter than the provider asked for. If the provider asks for
more than `longest_delay`, the request fails instead.
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

_REASON_LENGTH = 300


class RequestFailed(Exception):
    """A request failed. `transient` means that another attempt may succeed; `retry_after` is the delay in seconds that
    the provider asked for."""

    def __init__(self, text: str, *, transient: bool = False, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.transient = transient
        self.retry_after = retry_after


class RetryPolicy(msgspec.Struct, frozen=True):
    """Exponential backoff: at most `attempts` attempts, delays in seconds."""

    attempts: int = 4
    first_delay: float = 1.0
    longest_delay: float = 30.0

    def delay(self, failures: int, error: RequestFailed, jitter: float) -> float | None:
        """Seconds before the next attempt; None if there is none. `jitter` is a random number from 0 to 1."""
        requested = error.retry_after or 0.0
        if not error.transient or failures >= self.attempts or requested > self.longest_delay:
            return None
        # Half of the backoff is random, so that clients which failed together do not retry together.
        backoff = min(self.first_delay * 2.0 ** (failures - 1), self.longest_delay) * (0.5 + jitter / 2)
        return max(backoff, requested)


class Retrier:
    """Repeats an attempt until it yields its first event or the policy ends it. Tests replace `sleep` and `jitter`."""

    def __init__(
        self,
        policy: RetryPolicy | None = None,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._policy = policy or RetryPolicy()
        self._sleep = sleep
        self._jitter = jitter

    async def run(self, attempt: Callable[[], AsyncGenerator[Event, None]]) -> AsyncGenerator[Event, None]:
        """The events of the first attempt that yields one, with a Status before each retry. AgentFailed if no attempt
        succeeds, or if one fails after its first event."""
        failures = 0
        while True:
            has_started = False
            try:
                async with aclosing(attempt()) as events:
                    async for event in events:
                        has_started = True
                        yield event
                return
            except RequestFailed as error:
                failures += 1
                delay = None if has_started else self._policy.delay(failures, error, self._jitter())
                if delay is None:
                    _raise_final(error)
                reason = str(error)
            yield Status(f"{reason}; retrying in {delay:.0f} s")
            await self._sleep(delay)


def _raise_final(error: RequestFailed) -> NoReturn:
    hint = "" if error.retry_after is None else f"; try again in {error.retry_after:.0f} s"
    raise AgentFailed(f"{error}{hint}") from error


def error_for_status(
    who: str, status: int, reason: str = "", headers: Mapping[str, str] | None = None
) -> RequestFailed:
    """The error for an HTTP status other than success. `reason` is the provider's own text."""
    retry_after = parse_retry_after(headers or {})
    quoted = f": {shorten(reason)}" if reason.strip() else ""
    match status:
        case 401 | 403:
            # The reason is left out: some providers repeat the key in it.
            return RequestFailed(f"{who} rejected the key (HTTP {status}): check the agent's key and its permissions")
        case 404:
            return RequestFailed(f"{who} does not have this model or address (HTTP 404){quoted}")
        case 413:
            return RequestFailed(f"{who} rejected the prompt as too large (HTTP 413){quoted}")
        case 429:
            text = f"{who} is limiting requests (HTTP 429){quoted}"
            return RequestFailed(text, transient=True, retry_after=retry_after)
        case 408 | 409 | 425:
            text = f"{who} is temporarily unavailable (HTTP {status}){quoted}"
            return RequestFailed(text, transient=True, retry_after=retry_after)
        case _ if status >= 500:
            text = f"{who} had an internal error (HTTP {status}){quoted}"
            return RequestFailed(text, transient=True, retry_after=retry_after)
    return RequestFailed(f"{who} rejected the request (HTTP {status}){quoted}")


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """The delay a response asks for: `retry-after-ms`, or `retry-after` in seconds or as a date."""
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


def shorten(text: str) -> str:
    """A provider's text on one line of at most 300 characters, without a full stop at the end."""
    line = " ".join(sanitize_text(text).split()).rstrip(".")
    return line if len(line) <= _REASON_LENGTH else line[: _REASON_LENGTH - 1] + "…"
