"""Exceptions of the official clients of OpenAI and Anthropic as RequestFailed. One generator writes both clients, so
their exceptions have the same names and attributes.

Imported by the adapters only: it needs packages that their extras install.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import httpx2

from threadline.net.retry import RequestFailed, error_for_status, shorten


@contextmanager
def translate_sdk_errors(sdk: ModuleType, who: str) -> Iterator[None]:
    try:
        yield
    except sdk.APIStatusError as exc:
        raise _error_for(who, exc) from exc
    except (sdk.APITimeoutError, httpx2.TimeoutException) as exc:
        raise RequestFailed(f"{who} did not reply in time", transient=True) from exc
    except (sdk.APIConnectionError, httpx2.HTTPError) as exc:
        raise RequestFailed(f"{who} could not be reached or closed the connection", transient=True) from exc
    except sdk.APIError as exc:
        raise RequestFailed(f"{who} stopped with an error: {shorten(exc.message)}", transient=True) from exc
    except (ValueError, RecursionError) as exc:
        raise RequestFailed(f"{who} sent a reply that cannot be read", transient=True) from exc


def _error_for(who: str, exc: Any) -> RequestFailed:
    body: dict[str, Any] = exc.body if isinstance(exc.body, dict) else {}
    nested = body.get("error")
    error: dict[str, Any] = nested if isinstance(nested, dict) else body
    reason, kind = error.get("message"), error.get("type")
    if error.get("code") == "insufficient_quota":
        return RequestFailed(f"{who} reports that the account's quota is used up")
    status = exc.status_code
    if status == 200:
        # An error inside a stream has the status of the stream; its kind is in the body.
        status = 429 if kind == "rate_limit_error" else 503
    return error_for_status(who, status, reason if isinstance(reason, str) else "", exc.response.headers)


def as_json(chunk: Any) -> Any:
    """A client's object as the JSON it was made from. Not validated: the clients do not validate what they read."""
    return chunk.model_dump(exclude_unset=True, warnings=False) if hasattr(chunk, "model_dump") else chunk
