"""Pages of another origin: refused with the name of the setting, and served once it allows them."""

from __future__ import annotations

import asyncio
import functools
import re
import threading
from collections.abc import Iterator
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.async_api import async_playwright

from tests.page.browser import FLAGS, chromium
from tests.scripted_agent import ScriptedAgent, make_agent
from tests.service.conftest import SERVICE
from tests.service.running_service import CHAT, Client, serving
from threadline.bootstrap import open as open_threadline
from threadline.core.errors import SettingsInvalid
from threadline.service.middleware.headers import read_origins
from threadline.settings import Settings, load

ROOT = Path(__file__).parents[2]
DOCUMENTED = re.compile(r"`((?:X-[A-Za-z-]+|Idempotency-Key|Last-Event-ID|Authorization|Content-Type)(?=[:`]))")
# Headers of platforms, proxies and responses, which no page sends.
NOT_SENT_BY_PAGES = re.compile(r"x-(slack|hub|telegram|forwarded|accel|vercel|frame|content)")
STREAM_FROM_A_PAGE = """async ([url, headers]) => {
  const body = JSON.stringify({ message: { role: "user", parts: [{ type: "text", text: "Hi" }] } });
  const all = { "content-type": "application/json", ...headers };
  const response = await fetch(url, { method: "POST", headers: all, body });
  return [response.status, response.headers.get("x-state-key"), await response.text()];
}"""


def preflight(origin: str, headers: str = "content-type") -> dict[str, str]:
    return {"origin": origin, "access-control-request-method": "POST", "access-control-request-headers": headers}


@pytest.mark.req("C-03")
async def test_the_refusal_names_the_setting(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    origin = "http://localhost:3000"
    answers = [
        await client.http.options(CHAT, headers=preflight(origin)),
        await client.post_chat("Hi", headers={"origin": origin}),
    ]
    for answer in answers:
        assert (answer.status_code, answer.json()["code"]) == (403, "origin_refused")
        assert "`origins` under [service]" in answer.json()["detail"]
        assert "THREADLINE_SERVICE__ORIGINS" in answer.json()["detail"]
    lines = [record for record in caplog.records if "origin refused" in record.getMessage()]
    assert [vars(record)["origin"] for record in lines] == [origin]


def documented_headers() -> list[str]:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    found = {name.lower() for page in pages for name in DOCUMENTED.findall(page.read_text())}
    return sorted(name for name in found if not NOT_SENT_BY_PAGES.match(name))


@pytest.mark.req("C-03")
async def test_the_preflight_allows_every_documented_header(client: Client) -> None:
    answer = await client.http.options(CHAT, headers=preflight("http://page"))
    allowed = answer.headers["access-control-allow-headers"].lower().split(", ")
    assert len(documented_headers()) >= 5
    for name in (*documented_headers(), "authorization", "last-event-id", "idempotency-key", "x-ai-sdk", "x-state-key"):
        assert name in allowed


async def test_the_preflight_allows_headers_that_the_service_does_not_know(client: Client) -> None:
    answer = await client.http.options(CHAT, headers=preflight("http://page", "sentry-trace, x y, x-ai-sdk"))
    allowed = answer.headers["access-control-allow-headers"].lower().split(", ")
    assert allowed.count("x-ai-sdk") == 1
    assert "sentry-trace" in allowed
    assert "x y" not in allowed


def test_an_origin_that_no_browser_sends_is_refused_at_the_start() -> None:
    assert read_origins(["http://localhost:3000/", "https://App.example.com"]) == {
        "http://localhost:3000",
        "https://app.example.com",
    }
    for wrong in ("*", "localhost:3000", "http://localhost:3000/app", "http://"):
        with pytest.raises(SettingsInvalid, match=r"scheme and host such as http://localhost:3000"):
            read_origins([wrong])


def test_a_variable_sets_several_origins(tmp_path: Path) -> None:
    variables = {"HOME": str(tmp_path), "THREADLINE_SERVICE__ORIGINS": "http://localhost:3000, https://app.example.com"}
    assert load(environ=variables).service.origins == ("http://localhost:3000", "https://app.example.com")
    variables["THREADLINE_GUARD__PATTERNS"] = '["a{1,2}", "b"]'
    assert load(environ=variables).guard.patterns == ("a{1,2}", "b")


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def other_origin(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "index.html").write_text("<!doctype html><title>Another origin</title>")
    server = HTTPServer(("127.0.0.1", 0), functools.partial(QuietHandler, directory=tmp_path))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://localhost:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.req("C-03")
async def test_a_page_of_another_origin_chats_after_one_setting(other_origin: str) -> None:
    """In Chromium, with every header that the documentation mentions."""
    path = await asyncio.to_thread(chromium)
    settings = Settings(
        database=":memory:", agent="scripted", service=msgspec.structs.replace(SERVICE, origins=(other_origin,))
    )
    headers = {"idempotency-key": "k", "x-ai-sdk": "6", "x-state-key": "lisbon", "accept": "text/plain"}
    agents = {"scripted": make_agent(ScriptedAgent())}
    async with (
        open_threadline(settings=settings, agents=agents) as threadline,
        serving(threadline) as client,
        async_playwright() as playwright,
    ):
        browser = await playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        page = await browser.new_page()
        await page.goto(other_origin)
        status, key, text = await page.evaluate(STREAM_FROM_A_PAGE, [client.url + CHAT, headers])
        await browser.close()
    assert (status, key) == (200, "lisbon")
    assert text.endswith("data: [DONE]\n\n")
