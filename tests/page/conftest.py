"""One browser and one service for all tests of the page; each test gets a new user.

A page that violates its content security policy, throws or logs an error fails its test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Route, expect

from tests.page.browser import Service, browsing
from threadline.library import UserView
from tools import page as page_builder

PHONE = (390, 780)
DESKTOP = (1280, 800)
_TIMEOUT_MS = 30_000
_WATCH_POLICY = """
window.__violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.__violations.push(`${event.violatedDirective} ${event.blockedURI}`));
"""
_numbers = count(1)


@pytest.fixture(scope="session")
def built() -> None:
    page_builder.build()


@pytest.fixture(scope="session")
def service(built: None) -> Iterator[Service]:
    service = Service()
    service.start()
    yield service
    service.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One per module: while Playwright runs, no other event loop can run here, and other tests need theirs."""
    expect.set_options(timeout=_TIMEOUT_MS)
    with browsing() as found:
        yield found


class Person(NamedTuple):
    """A user at a screen. `open` opens a tab; `view` accesses their data directly."""

    name: str
    view: UserView
    open: Callable[..., Page]


@pytest.fixture(params=["desktop"])
def screen(request: pytest.FixtureRequest) -> str:
    """`phone` or `desktop`, with `-dark` for dark mode."""
    found: str = request.param
    return found


@pytest.fixture
def person(service: Service, browser: Browser, screen: str) -> Iterator[Person]:
    name = f"person{next(_numbers)}"
    with tabs(browser, service.url, name, screen) as open_tab:
        yield Person(name, service.user(name), open_tab)


@contextmanager
def tabs(browser: Browser, url: str, token: str | None, screen: str) -> Iterator[Callable[..., Page]]:
    """Opens tabs of one user, and fails if one of them had an unexpected error."""
    width, height = PHONE if screen.startswith("phone") else DESKTOP
    context = browser.new_context(
        base_url=url,
        viewport={"width": width, "height": height},
        color_scheme="dark" if screen.endswith("dark") else "light",
        has_touch=screen.startswith("phone"),
        reduced_motion="reduce",
        permissions=["clipboard-read", "clipboard-write"],
    )
    context.set_default_timeout(_TIMEOUT_MS)
    context.add_init_script(_WATCH_POLICY)
    if token is not None:
        context.add_init_script(f"if (origin !== 'null') sessionStorage.setItem('threadline.token', {token!r})")
    errors: list[str] = []
    opened: list[Page] = []

    def note(message: ConsoleMessage) -> None:
        # A status above 399 is logged by the browser and told to the user by the page.
        if message.type == "error" and "Failed to load resource" not in message.text:
            errors.append(message.text)

    def open_tab(path: str = "/") -> Page:
        tab = context.new_page()
        tab.on("console", note)
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.goto(path)
        opened.append(tab)
        return tab

    yield open_tab
    violations: list[Any] = [each for tab in opened for each in tab.evaluate("window.__violations")]
    context.close()
    assert (violations, errors) == ([], [])


def say(page: Page, text: str) -> None:
    page.get_by_role("textbox", name="Message").fill(text)
    page.keyboard.press("Enter")


def settled(page: Page) -> None:
    """Waits until the answer is complete and the page shows what is stored."""
    expect(page.get_by_role("button", name="Send")).to_be_visible()


def shown(page: Page, text: str) -> Locator:
    """A text in the list of messages."""
    return page.locator(".messages").get_by_text(text)


def hold_chat_request(page: Page) -> Callable[[], None]:
    """Holds the next chat request until the returned function is called."""
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    def release() -> None:
        while not held:
            page.wait_for_timeout(10)  # Playwright only handles events inside its own calls.
        held[0].continue_()

    page.route("**/api/v1/ai/chat", hold, times=1)
    return release


def on_screens(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("screen", names, indirect=True)


EVERY_SCREEN = on_screens("desktop", "phone-dark")
