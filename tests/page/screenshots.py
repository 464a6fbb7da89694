"""`make screenshots`: the pictures of the README, of the real page with a sample conversation."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator

from playwright.sync_api import Browser, Page, expect

import threadline
from tests.page.browser import Service, browsing, install
from threadline.core.events import (
    Event,
    Finish,
    ReasoningDelta,
    ReasoningEnd,
    Source,
    ToolCall,
    ToolResult,
    Usage,
)
from threadline.core.parts import plain_text
from threadline.core.prompts import Prompt
from threadline.core.turns import Surface
from tools import page as page_builder

FONTS = {"Inter": "fonts-inter", "JetBrains Mono": "fonts-jetbrains-mono"}
"""The fonts that the page prefers, and the Debian packages that contain them."""
IMAGES = page_builder.ROOT / "docs" / "images"

WHERE = "We have three days in Lisbon in May. Where should we stay?"
STAY = """**Alfama**, if you like to walk and do not mind stairs: everything old is at the door, and mornings are quiet.

| | on foot to the river | evenings | a room for two |
|---|---|---|---|
| Alfama | 8 minutes | fado, small | 110 € |
| Príncipe Real | 25 minutes | bars, gardens | 160 € |
| Graça | 20 minutes | calm, the view | 95 € |

With three days I would take Alfama and go up to Graça for the sunset."""
PORTO = "We have three days in Porto in May. Where should we stay?"
RIBEIRA = "**Ribeira** for the river, **Cedofeita** for the cafés. Three days are enough for both."
TRAM = "And how long is it to Belém from there?"
CODE = """Three days, one plan each. It is a small function:

```python
def plan(days: int, places: list[str]) -> dict[int, list[str]]:
    \"\"\"Spread the places evenly over the days.\"\"\"
    return {day + 1: places[day::days] for day in range(days)}
```

`plan(3, [...])` gives each day every third place, so neighbours in the list end up on different days."""


async def guide(prompt: Prompt) -> AsyncGenerator[Event | str, None]:
    """An agent with prepared answers."""
    asked = plain_text(prompt.messages[-1].parts)
    yield Usage(input_tokens=180 + 3 * len(prompt.messages), output_tokens=96)
    if asked == WHERE:
        yield ReasoningDelta("Three days, May, walking. Price matters, noise too.")
        yield ReasoningEnd()
        yield STAY
    elif asked == PORTO:
        yield RIBEIRA
    elif asked == TRAM:
        yield ToolCall("c1", "route", {"from": "Alfama", "to": "Belém", "by": "tram"})
        yield ToolResult("c1", {"minutes": 31, "line": "15E", "changes": 0})
        yield "**31 minutes** with tram 15E, without a change. Go before ten, the queue at the tower is short then."
        yield Source("s1", "https://carris.example/15E", "Timetable of line 15E")
    else:
        yield CODE
    yield Finish("stop")


async def seed(service: Service, name: str) -> None:
    others: tuple[tuple[str, Surface], ...] = (
        ("What changed in the release notes?", "slack"),
        ("Draft of the weekly report", "matrix"),
        ("Why does the importer keep two copies?", "cli"),
        ("A birthday present for Ada", "telegram"),
    )
    me = service.user(name)
    for title, surface in reversed(others):
        thread = await me.create_thread(title=title, agent_id="guide")
        await thread.ask("Hello", surface=surface)
    thread = await me.create_thread(state_key="code", title="Three days, evenly spread", agent_id="guide")
    await thread.ask("Write me a function that spreads places over days.", surface="cli")
    lisbon = await me.create_thread(state_key="lisbon", title="Three days in Lisbon", agent_id="guide")
    await me.contexts.set("guide", "We are two, we walk a lot, and we are awake early.")
    await lisbon.ask(PORTO, surface="web")
    await lisbon.undo()
    await lisbon.ask(WHERE, surface="slack")
    await lisbon.save("Before booking")
    await lisbon.ask(TRAM, surface="web")
    await lisbon.undo()
    await lisbon.ask(TRAM, surface="web")
    scope = threadline.Scope("local", name)
    await service.threadline.store.scoped(scope).bind("slack", "C1", lisbon.id, label="#travel")


def shoot(browser: Browser, url: str, name: str, path: str, *, size: tuple[int, int], dark: bool, file: str) -> None:
    context = browser.new_context(
        base_url=url,
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if dark else "light",
        has_touch=size[0] < 600,
        device_scale_factor=1.25,
        reduced_motion="reduce",
    )
    context.add_init_script(f"sessionStorage.setItem('threadline.token', {name!r})")
    page = context.new_page()
    page.goto(path)
    expect(page.locator(".byline time").first).to_be_visible()
    if "code" in path:
        expect(page.locator(".hljs-keyword").first).to_be_visible()
    page.locator("body").click(position={"x": 2, "y": 2})
    page.evaluate("document.activeElement?.blur()")
    IMAGES.mkdir(exist_ok=True)
    _to_start(page)
    page.screenshot(path=IMAGES / file)
    print(f"{IMAGES / file}: {(IMAGES / file).stat().st_size // 1024} kB")
    context.close()


def _to_start(page: Page) -> None:
    page.evaluate("document.querySelector('.scroller').scrollTop = 0")
    page.wait_for_timeout(300)


def missing_fonts() -> list[str]:
    lister = shutil.which("fc-list")
    listed = subprocess.run([lister, ":", "family"], capture_output=True, text=True, check=True) if lister else None
    families = set() if listed is None else {name for line in listed.stdout.splitlines() for name in line.split(",")}
    return [font for font in FONTS if font not in families]


def main() -> int:
    if missing_fonts():
        install("fontconfig", *FONTS.values())
    if missing := missing_fonts():
        print(f"the pictures are taken in other fonts: install {' and '.join(missing)} first", file=sys.stderr)
        return 1
    page_builder.build()
    service = Service({"guide": guide})
    service.start()
    try:
        service.do(seed(service, "ada"))
        with browsing() as browser:
            desktop, phone = (1280, 800), (390, 780)
            shoot(browser, service.url, "ada", "/t/lisbon", size=desktop, dark=False, file="page.png")
            shoot(browser, service.url, "ada", "/t/lisbon", size=desktop, dark=True, file="page-dark.png")
            shoot(browser, service.url, "ada", "/t/code", size=phone, dark=True, file="page-phone.png")
    finally:
        service.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
