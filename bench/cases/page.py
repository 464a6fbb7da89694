"""The page in Debian's Chromium: how much it loads, how soon it shows, a thread of thousands, a fast stream.

Each load is a new browser context, so that nothing comes from a cache. What is timed is what the browser says of itself
(`performance`), not when this process got to hear of it. The service runs in a thread beside.
"""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import AsyncGenerator, Callable

from playwright.sync_api import Browser, BrowserContext, Page, expect

from bench.arena import Arena
from bench.budgets import OURS, PAGE_FRAMES, PAGE_INTERACTIVE, PAGE_LONG, PAGE_PAINT, PAGE_SIZE
from bench.measure import Samples
from bench.results import Row, timing
from tests.page.browser import Service, browsing
from threadline.core.prompts import Prompt
from tools import page as page_builder

WHO = "bench"
MESSAGES = 5_000
EVENTS_PER_SECOND = 500
_BATCH = 10
_PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
_FRAMES = """
window.frames = [];
const look = (before) => requestAnimationFrame((now) => { window.frames.push(now - before); look(now); });
requestAnimationFrame(look);
"""


async def page(arena: Arena) -> list[Row]:
    """Cold loads of the page, and what it does while it is busy."""
    return await asyncio.to_thread(_measure, arena.sized(15, 4), arena.sized(10, 3))


def _measure(loads: int, seconds: int) -> list[Row]:
    page_builder.build()
    service = Service({"fast": _fast(seconds)})
    service.start()
    try:
        service.do(_fill(service))
        with browsing() as browser:
            painted, interactive = zip(*(_load(browser, service.url) for _ in range(loads)), strict=True)
            opened = [_open_long(browser, service.url) for _ in range(loads)]
            frames = _stream(browser, service.url)
    finally:
        service.stop()
    return [
        Row(PAGE_SIZE.name, OURS, "kB", _size() / 1e3),
        timing(PAGE_PAINT, OURS, Samples([painted])),
        timing(PAGE_INTERACTIVE, OURS, Samples([interactive])),
        timing(PAGE_LONG, OURS, Samples([opened])),
        timing(PAGE_FRAMES, OURS, Samples([frames])),
    ]


def _fast(seconds: int) -> Callable[[Prompt], AsyncGenerator[str, None]]:
    async def answer(prompt: Prompt) -> AsyncGenerator[str, None]:
        for _ in range(seconds * EVENTS_PER_SECOND // _BATCH):
            for number in range(_BATCH):
                yield f"word{number} " if number else "\n\nA **paragraph** "
            await asyncio.sleep(_BATCH / EVENTS_PER_SECOND)
        yield "the end"

    return answer


async def _fill(service: Service) -> None:
    me = service.user(WHO)
    thread = await me.create_thread(state_key="long", title="Long")
    for first in range(0, MESSAGES, 1_000):
        await thread.append(*(f"Message **{first + number}** of a long thread" for number in range(1_000)))
    await me.create_thread(state_key="fast", agent_id="fast")


def _size() -> int:
    """What the first view loads, packed."""
    built = page_builder.PAGE
    index = (built / "index.html").read_text(encoding="utf-8")
    return sum(len(gzip.compress((built / name).read_bytes())) for name in re.findall(r'"\./(assets/[^"]+)"', index))


def _context(browser: Browser, url: str) -> BrowserContext:
    # Waiting for a condition evaluates it in the page, which the page's policy forbids.
    context = browser.new_context(base_url=url, viewport={"width": 1280, "height": 800}, bypass_csp=True)
    context.add_init_script(f"sessionStorage.setItem('threadline.token', {WHO!r})")
    return context


def _load(browser: Browser, url: str) -> tuple[float, float]:
    context = _context(browser, url)
    opened = context.new_page()
    opened.goto("/")
    ready = _when(opened, "document.activeElement?.id === 'composer'")
    # The browser reports a paint a little after it.
    painted: float = opened.wait_for_function(_PAINTED).json_value()
    context.close()
    return painted / 1e3, ready


def _open_long(browser: Browser, url: str) -> float:
    context = _context(browser, url)
    opened = context.new_page()
    opened.goto("/t/long", wait_until="commit")
    shown = _when(opened, f"document.querySelector('.message:last-child')?.innerText.includes('{MESSAGES - 1}')")
    context.close()
    return shown


def _when(page: Page, condition: str) -> float:
    """Seconds from the beginning of the navigation until it held, by the browser's clock."""
    found = page.wait_for_function(f"({condition}) && performance.now()", polling="raf")
    value: float = found.json_value()
    return value / 1e3


def _stream(browser: Browser, url: str) -> list[float]:
    """Seconds between the frames that were drawn while the answer came."""
    context = _context(browser, url)
    opened = context.new_page()
    opened.goto("/t/fast")
    opened.get_by_role("textbox", name="Message").fill("Go")
    opened.keyboard.press("Enter")
    expect(opened.get_by_role("button", name="Stop")).to_be_visible()
    opened.evaluate(_FRAMES)
    expect(opened.locator(".messages").get_by_text("the end")).to_be_visible(timeout=60_000)
    frames: list[float] = opened.evaluate("window.frames")
    context.close()
    return [milliseconds / 1e3 for milliseconds in frames]
