"""The service's log: one line per request, without user content."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tests.scripted_agent import ScriptedAgent
from tests.service.running_service import CHAT, THREADS, Client, wait_until_idle
from threadline.bootstrap import Threadline
from threadline.core.errors import AgentFailed, StoreUnavailable
from threadline.service.process.logs import LogFormat, LogFormatter, configure, describe_exception

WORD = "xylophone"
TOKEN = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.fixture(params=["json", "human"])
def log(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    """The log output of the test."""
    written = io.StringIO()
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    configure(request.param, written)
    yield written
    root.handlers[:] = before
    root.setLevel(level)


def records(log: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.getvalue().splitlines()]


@pytest.mark.parametrize("log", ["json"], indirect=True)
async def test_each_request_is_one_line(threadline: Threadline, client: Client, log: io.StringIO) -> None:
    await client.ask("Hi", "key", headers={"x-request-id": "abc-1"})
    await client.http.get("/nowhere")
    await wait_until_idle(threadline)
    first, second = [each for each in records(log) if each["logger"] == "threadline.access"]
    assert {key: first[key] for key in ("event", "level", "method", "route", "status", "request_id", "tenant")} == {
        "event": "request",
        "level": "info",
        "method": "POST",
        "route": "/api/v1/ai/chat",
        "status": 200,
        "request_id": "abc-1",
        "tenant": "local",
    }
    assert first["ms"] >= 0
    assert (second["status"], second["route"], "tenant" in second) == (404, "unknown", False)


async def test_a_valid_request_id_is_echoed_and_others_are_replaced(client: Client) -> None:
    assert (await client.http.get("/healthz", headers={"x-request-id": "abc-1"})).headers["x-request-id"] == "abc-1"
    for odd in ("", "a b", "x" * 129, 'quoted"', "a\tb"):
        made = (await client.http.get("/healthz", headers={"x-request-id": odd})).headers["x-request-id"]
        assert made != odd
        assert len(made) == 26
    refused = await client.http.get("/healthz", headers={"host": "rebound.example", "x-request-id": "abc-1"})
    assert (refused.status_code, refused.headers["x-request-id"]) == (421, "abc-1")


async def test_message_text_is_never_logged(
    threadline: Threadline, client: Client, scripted_agent: ScriptedAgent, log: io.StringIO
) -> None:
    secret = f"{WORD} {TOKEN}"
    bearer = {"authorization": f"Bearer {TOKEN}"}
    scripted_agent.lines = [f"You said {secret}."]
    await client.ask(f"Remember {secret}", WORD, headers=bearer)
    await client.http.patch(f"{THREADS}/{WORD}", json={"title": f"About {WORD}"})
    await client.http.put(f"/api/v1/ai/saves/my {WORD}", json={"stateKey": WORD})
    await client.http.get(THREADS, params={"q": WORD})
    await client.http.post("/api/v1/agents/scripted/context", json={"context": secret})
    scripted_agent.lines = [AgentFailed(f"the model refused {secret}")]
    await client.post_chat(f"Again {secret}", WORD)
    await client.http.post("/api/v1/agents/scripted/message", json={"content": secret})
    scripted_agent.lines = [ValueError(f"cannot read {secret}")]
    await client.post_chat(f"Again {secret}", WORD)
    await client.http.post("/api/v1/agents/scripted/message", json={"content": secret})
    for body in (b"{" + secret.encode(), json.dumps({"id": "x", "message": secret}).encode()):
        await client.http.post(CHAT, content=body, headers={"content-type": "application/json", **bearer})
    await wait_until_idle(threadline)
    written = log.getvalue()
    assert written.count("threadline.access") == 11
    assert WORD not in written
    assert TOKEN not in written


def test_exceptions_are_logged_without_messages_except_of_the_store() -> None:
    try:
        try:
            raise ValueError(WORD)
        except ValueError as exc:
            raise StoreUnavailable("the file is locked") from exc
    except StoreUnavailable as exc:
        said = describe_exception(exc)
    assert said[0] == "StoreUnavailable: the file is locked"
    assert "ValueError" in said
    assert any("test_logs.py" in place for place in said)
    assert WORD not in "".join(said)


@pytest.mark.parametrize("form", ["json", "human"])
def test_tokens_and_line_breaks_in_library_records_are_neutralised(form: LogFormat) -> None:
    record = logging.makeLogRecord({"name": "other", "levelname": "INFO", "msg": f"calls {TOKEN}\nfaked line"})
    line = LogFormatter(form).format(record)
    assert TOKEN not in line
    assert "\n" not in line


@pytest.mark.parametrize("log", ["human"], indirect=True)
def test_the_text_format_has_one_line_with_values(log: io.StringIO) -> None:
    logging.getLogger("threadline.test").warning("lease lost", extra={"turn_id": "t1"})
    assert log.getvalue().endswith("Z WARNING threadline.test: lease lost turn_id=t1\n")
