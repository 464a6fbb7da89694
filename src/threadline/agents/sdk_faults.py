"""What the official clients raise, told as faults. The two come from one generator, so their errors have one shape.

Imported by the adapters alone: it needs what their extras bring.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import httpx2

from threadline.net.retry import Fault, short, status_fault


@contextmanager
def told_as_faults(sdk: ModuleType, who: str) -> Iterator[None]:
    try:
        yield
    except sdk.APIStatusError as exc:
        raise _status_fault(who, exc) from exc
    except (sdk.APITimeoutError, httpx2.TimeoutException) as exc:
        raise Fault(f"{who} did not answer in time.", passing=True) from exc
    except (sdk.APIConnectionError, httpx2.HTTPError) as exc:
        raise Fault(f"{who} could not be reached, or broke off.", passing=True) from exc
    except sdk.APIError as exc:
        raise Fault(f"{who} broke off with an error: {short(exc.message)}", passing=True) from exc
    except (ValueError, RecursionError) as exc:
        raise Fault(f"{who} sent an answer that cannot be read.", passing=True) from exc


def _status_fault(who: str, exc: Any) -> Fault:
    """An error that came inside a stream has the stream's own status, 200, and its kind in the body."""
    body: dict[str, Any] = exc.body if isinstance(exc.body, dict) else {}
    nested = body.get("error")
    error: dict[str, Any] = nested if isinstance(nested, dict) else body
    words, kind = error.get("message"), error.get("type")
    if error.get("code") == "insufficient_quota":
        return Fault(f"{who} says that the account's quota is used up.")
    status = exc.status_code
    if status == 200:
        status = 429 if kind == "rate_limit_error" else 503
    return status_fault(who, status, words if isinstance(words, str) else "", exc.response.headers)


def as_json(chunk: Any) -> Any:
    """A client's object as the JSON it was made from; the clients do not check what they read, so neither is this."""
    return chunk.model_dump(exclude_unset=True, warnings=False) if hasattr(chunk, "model_dump") else chunk
