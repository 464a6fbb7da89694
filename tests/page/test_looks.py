"""Accessibility on phone and desktop, in light and dark mode: axe finds nothing serious, and nothing overflows."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page, expect

import threadline
from tests.page.browser import Service
from tests.page.conftest import Person, on_screens, say, settled
from tools.page import MODULES

ALL = on_screens("desktop", "desktop-dark", "phone", "phone-dark")
RICH = """# A plan

Some **bold** and `code`, a [link](https://threadline.example/).

- one
- two

| day | where |
|---|---|
| 1 | Alfama, averylongwordthatdoesnotfitonthescreenofaphoneatall |

```python
def plan(days: int) -> str:
    return f"{days} days, and a line that is so long that it does not fit on the screen of a phone at all"
```
"""


def check(page: Page, what: str) -> None:
    # Evaluated, not added as a script: the page's policy would not let it in.
    page.evaluate((MODULES / "axe-core" / "axe.min.js").read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = page.evaluate("axe.run().then(r => r.violations)")
    serious = [
        (each["id"], [node["html"][:160] for node in each["nodes"]])
        for each in found
        if each["impact"] in ("serious", "critical")
    ]
    assert serious == [], what
    wide = page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
    assert not wide, f"{what} is wider than the screen"


@ALL
def test_pages_pass_the_accessibility_checks(person: Person, service: Service, screen: str) -> None:
    async def make() -> None:
        thread = await person.view.create_thread(title="Lisbon", state_key="rich")
        await thread.append("Where should we stay?", threadline.assistant(RICH))

    page = person.open()
    expect(page.get_by_text("Start a conversation")).to_be_visible()
    check(page, "the empty page")
    service.do(make())
    page.goto("/t/rich")
    expect(page.locator(".hljs-keyword").first).to_be_visible()
    say(page, "calculate 6*7")
    settled(page)
    page.locator(".tool summary").click()
    check(page, "a conversation")
    if screen.startswith("phone"):
        page.get_by_role("button", name="Show details").click()
        check(page, "the details")
        page.get_by_role("complementary").get_by_role("button", name="Hide details").click()
        page.get_by_role("button", name="Threads", exact=True).click()
    page.get_by_role("searchbox").fill("stay")
    expect(page.get_by_role("list", name="Search results")).to_be_visible()
    check(page, "a search")
    page.get_by_role("searchbox").fill("")
    page.get_by_role("button", name="Actions for Lisbon").click()
    check(page, "a menu")
    page.get_by_role("menuitem", name="Rename").click()
    check(page, "a dialog")


def test_a_url_without_a_thread_is_a_new_thread(person: Person) -> None:
    page = person.open("/t/never-there")
    expect(page.get_by_text("Start a conversation")).to_be_visible()


def test_an_invalid_url_shows_an_error(person: Person) -> None:
    page = person.open("/t/a%20b")
    expect(page.get_by_role("alert")).to_contain_text("This thread could not be loaded")
