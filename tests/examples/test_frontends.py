"""The front ends in `examples/frontends`, built and driven in Chromium against a service of another origin."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import re
import shutil
import subprocess
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, Request, Route, expect

from tests.npm_packages import NODE, TOOLS, install
from tests.page.browser import Service, browsing
from threadline.core.events import Event, FinalText
from threadline.core.prompts import Prompt

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "examples" / "frontends"
FOLDERS = ("react", "assistant-ui", "plain")
PAGES = ("react", "assistant-ui", "assistant-ui?runtime=data-stream", "plain")
_TIMEOUT_MS = 30_000
# A build takes seconds; one that hangs has to fail sometime.
_BUILD_SECONDS = 120
_numbers = count(1)


@pytest.fixture(scope="session")
def built() -> Path:
    """The pages, built once for the present sources."""
    home = install(SOURCES, "frontends")
    files = sorted(path for folder in FOLDERS for path in (SOURCES / folder).rglob("*") if path.is_file())
    wanted = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    stamp = home / "built"
    # One process at a time: parallel test workers share the folder.
    with (TOOLS / "frontends.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.is_file() or stamp.read_text() != wanted:
            for folder in FOLDERS:
                shutil.copytree(SOURCES / folder, home / folder, dirs_exist_ok=True)
                _build(home, folder)
            stamp.write_text(wanted)
    return home / "dist"


def _build(home: Path, folder: str) -> None:
    vite: list[str | Path] = [NODE, home / "node_modules" / "vite" / "bin" / "vite.js", "build", folder]
    options = ["--outDir", f"../dist/{folder}", "--base", "./", "--emptyOutDir", "--logLevel", "warn"]
    done = subprocess.run(
        [*vite, *options], cwd=home, check=False, capture_output=True, text=True, timeout=_BUILD_SECONDS
    )
    assert done.returncode == 0, done.stderr


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="session")
def origin(built: Path) -> Iterator[str]:
    """A web server for the pages."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_QuietHandler, directory=str(built)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join(30)
    server.server_close()


async def corrected(prompt: Prompt) -> AsyncGenerator[Event | str, None]:
    """Streams one answer and ends with another one."""
    yield "It is in Lisbon."
    yield FinalText("It is in Porto.")


@pytest.fixture(scope="session")
def service(origin: str) -> Iterator[Service]:
    service = Service({"corrected": corrected}, origins=(origin,), authenticate=None)
    service.start()
    yield service
    service.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=_TIMEOUT_MS)
    with browsing() as found:
        yield found


Open = Callable[..., Page]


@pytest.fixture
def open_page(browser: Browser, service: Service, origin: str) -> Iterator[Open]:
    """Opens a page on a new chat with the given agent; fails if a script of the page failed."""
    context = browser.new_context(geolocation={"latitude": 46.9, "longitude": 7.4}, permissions=["geolocation"])
    context.set_default_timeout(_TIMEOUT_MS)
    errors: list[str] = []

    def open_it(name: str, agent_id: str | None = None) -> Page:
        key = f"chat{next(_numbers)}"
        if agent_id is not None:
            service.do(service.user("local").create_thread(agent_id=agent_id, state_key=key))
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        folder, _, query = name.partition("?")
        address = f"{origin}/{folder}/?service={service.url}&chat={key}&{query}"
        if query:
            page.goto(address)
        else:
            # useChat drops a message that is sent before it knows whether there is a stream to resume.
            with page.expect_response("**/stream"):
                page.goto(address)
        return page

    yield open_it
    context.close()
    assert errors == []


def say(page: Page, text: str) -> None:
    page.get_by_role("textbox", name="Message").fill(text)
    page.get_by_role("button", name="Send").click()


def replies(page: Page) -> Locator:
    return page.locator("li[data-role=assistant]")


def stored(service: Service, page: Page) -> list[str]:
    """The messages once every turn has ended: a page shows the end of a reply just before it is stored."""
    key = page.url.partition("chat=")[2].partition("&")[0]

    async def read() -> list[str]:
        thread = await service.user("local").thread(key)
        async with asyncio.timeout(60):
            while True:
                if not any(turn.is_active for turn in await thread.turns()):
                    return [message.text for message in await thread.messages()]
                await asyncio.sleep(0.05)

    return service.do(read())


@pytest.mark.req("C-03", "C-08", "S1-32")
@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_another_origin_asks_and_shows_the_history_after_a_reload(
    open_page: Open, service: Service, name: str
) -> None:
    page = open_page(name)
    say(page, "Hello there")
    expect(replies(page)).to_contain_text("You said: “Hello there”.")
    say(page, "What did I say first?")
    expect(replies(page).nth(1)).to_contain_text("The first thing you said was “Hello there”.")
    page.reload()
    expect(replies(page)).to_have_count(2)
    assert len(stored(service, page)) == 4


@pytest.mark.req("C-04", "C-08")
@pytest.mark.parametrize("name", PAGES)
def test_a_page_stops_an_answer_and_asks_on(open_page: Open, service: Service, name: str) -> None:
    page = open_page(name, "patient")
    with service.holding():
        say(page, "Take your time")
        expect(replies(page)).to_contain_text("I am taking my time")
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_role("button", name="Send")).to_be_visible()
    say(page, "Still there?")
    expect(replies(page).nth(1)).to_contain_text("and now I am done.")
    assert [text for text in stored(service, page) if text.endswith("done.")] == [
        "I am taking my time, and now I am done."
    ]


@pytest.mark.req("C-08", "S1-26")
@pytest.mark.parametrize("name", ["react", "assistant-ui", "plain"])
def test_a_page_that_is_reloaded_continues_the_answer(open_page: Open, service: Service, name: str) -> None:
    page = open_page(name, "patient")
    with service.holding():
        say(page, "Take your time")
        expect(replies(page)).to_contain_text("I am taking my time")
        page.reload()
        expect(replies(page)).to_contain_text("I am taking my time")
    expect(replies(page)).to_contain_text("I am taking my time, and now I am done.")
    expect(replies(page)).to_have_count(1)


@pytest.mark.req("C-08", "S1-29")
@pytest.mark.parametrize("name", ["react", "plain"])
def test_a_page_retries_a_message_that_was_lost(open_page: Open, service: Service, name: str) -> None:
    page = open_page(name)
    say(page, "One")
    expect(replies(page)).to_contain_text("You said: “One”.")
    page.route("**/api/v1/ai/chat", lambda route: route.abort())
    say(page, "Two")
    expect(page.get_by_role("alert")).to_contain_text("fetch")
    page.unroute("**/api/v1/ai/chat")
    page.get_by_role("button", name="Retry").click()
    expect(replies(page).nth(1)).to_contain_text("You said: “Two”.")
    assert stored(service, page)[::2] == ["One", "Two"]


@pytest.mark.req("C-08", "S1-29")
@pytest.mark.parametrize("name", ["react", "assistant-ui", "assistant-ui?runtime=data-stream"])
def test_a_page_edits_a_message(open_page: Open, service: Service, name: str) -> None:
    page = open_page(name)
    say(page, "One")
    expect(replies(page)).to_contain_text("You said: “One”.")
    page.on("dialog", lambda dialog: dialog.accept("Uno"))
    page.get_by_role("button", name="Edit").click()
    if name != "react":
        page.get_by_role("textbox", name="Edited message").fill("Uno")
        page.get_by_role("button", name="Save").click()
    expect(replies(page)).to_contain_text("You said: “Uno”.")
    assert stored(service, page)[::2] == ["Uno"]


@pytest.mark.req("C-08", "S1-32")
def test_a_page_decides_on_an_approval(open_page: Open) -> None:
    page = open_page("react")
    say(page, "stamp hello")
    page.get_by_role("button", name="Allow").click()
    expect(replies(page)).to_contain_text("Here it is, stamped: hello")


@pytest.mark.req("C-01", "C-08", "S1-32")
def test_a_page_runs_its_own_tool_and_the_reply_continues(open_page: Open, service: Service) -> None:
    page = open_page("react")
    requests = count_chat_requests(page)
    say(page, "use locate")
    expect(replies(page)).to_contain_text('The tool locate answered: {"latitude":46.9,"longitude":7.4}.')
    assert len(requests) == 2
    # A tool that the service runs is not sent back by the page.
    say(page, "calculate 6*7")
    expect(replies(page).nth(1)).to_contain_text("6*7 is 42.")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    assert len(requests) == 3
    assert len(stored(service, page)) == 4
    page.context.clear_permissions()
    say(page, "use locate")
    expect(replies(page).nth(2)).to_contain_text("The tool locate gave no result: User denied Geolocation.")


@pytest.mark.req("C-01", "C-08")
@pytest.mark.parametrize("name", ["assistant-ui", "assistant-ui?runtime=data-stream"])
def test_assistant_ui_runs_a_tool_of_the_page_and_the_reply_continues(
    open_page: Open, service: Service, name: str
) -> None:
    page = open_page(name)
    say(page, "use locate")
    expect(replies(page)).to_contain_text('The tool locate answered: {"latitude":46.9,"longitude":7.4}.')
    expect(replies(page)).to_have_count(1)
    say(page, "calculate 6*7")
    expect(replies(page).nth(1)).to_contain_text("6*7 is 42.")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    assert len(stored(service, page)) == 4
    page.context.clear_permissions()
    say(page, "use locate")
    expect(replies(page).nth(2)).to_contain_text("The tool locate gave no result")


@pytest.mark.req("C-01", "C-08")
def test_a_page_that_was_closed_before_its_tool_ran_runs_it_after_a_reload(open_page: Open) -> None:
    page = open_page("react")
    page.evaluate("navigator.geolocation.getCurrentPosition = () => undefined")
    say(page, "use locate")
    expect(replies(page)).to_contain_text("locate: input-available")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    page.reload()
    expect(replies(page)).to_contain_text('The tool locate answered: {"latitude":46.9,"longitude":7.4}.')
    expect(replies(page)).to_have_count(1)


@pytest.mark.req("C-08", "S1-20")
@pytest.mark.parametrize("name", ["react", "plain"])
def test_a_page_shows_the_final_text_instead_of_the_streamed_one(open_page: Open, name: str) -> None:
    page = open_page(name, "corrected")
    say(page, "Where?")
    expect(replies(page)).to_contain_text("It is in Porto.")
    expect(replies(page)).not_to_contain_text("Lisbon")


def count_chat_requests(page: Page) -> list[str]:
    seen: list[str] = []
    page.on("request", lambda request: seen.append(request.url) if is_chat(request) else None)
    return seen


def is_chat(request: Request) -> bool:
    return request.method == "POST" and request.url.endswith("/api/v1/ai/chat")


@pytest.mark.req("C-08")
def test_the_code_of_the_documentation_is_that_of_the_driven_pages() -> None:
    """Line by line, without comments and punctuation. Blocks marked `text` are not compared."""
    drivers = (ROOT / "tests" / "service" / "npm").glob("*.mjs")
    sources = [*SOURCES.glob("*/*.ts*"), *SOURCES.glob("*.ts"), *drivers]
    corpus = "".join(_bare(line) for path in sources for line in path.read_text().splitlines())
    page = (ROOT / "docs" / "frontend.md").read_text()
    blocks = re.findall(r"^```tsx?\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if len(_bare(line)) > 3]
    assert len(lines) > 25
    assert [line for line in lines if _bare(line) not in corpus] == []


def _bare(line: str) -> str:
    return re.sub(r"[\s\"',;`]", "", re.sub(r"(^|\s)//.*", "", line))


@pytest.mark.req("C-08")
def test_a_refusal_is_shown_as_a_sentence(open_page: Open) -> None:
    page = open_page("plain")
    refused = '{"code": "guard_refused", "detail": "This request was refused."}'

    def refuse(route: Route) -> None:
        headers = {"access-control-allow-origin": "*"}
        route.fulfill(status=403, content_type="application/problem+json", body=refused, headers=headers)

    page.route("**/api/v1/ai/chat", refuse)
    say(page, "Hello")
    expect(page.get_by_role("alert")).to_contain_text("This request was refused.")
