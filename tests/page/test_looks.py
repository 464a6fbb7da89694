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


def test_a_url_without_a_thread_says_so(person: Person) -> None:
    page = person.open("/t/never-there")
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("There is no such thread")
    alert.get_by_role("button", name="New thread").click()
    expect(page.get_by_text("Start a conversation")).to_be_visible()


@on_screens("phone")
def test_tables_scroll_instead_of_breaking_words(person: Person, service: Service) -> None:
    columns = ["Region", "Revenue", "Customers", "Trend", "Responsible", "Comment"]
    rows = [columns, ["---"] * len(columns), ["Lisbon", "1,204,331", "12,044", "rising", "Esperança", "none"]]

    async def make() -> None:
        thread = await person.view.create_thread(state_key="table")
        table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
        await thread.append("How did we do?", threadline.assistant(table))

    service.do(make())
    page = person.open("/t/table")
    table = page.get_by_role("group", name="Table")
    expect(table).to_be_visible()
    # Each cell holds one word, so each has the height of one line.
    heights = table.locator("th, td").evaluate_all("cells => cells.map(cell => cell.offsetHeight)")
    assert max(heights) < 48, heights
    assert table.evaluate("box => box.scrollWidth > box.clientWidth")
    assert not page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")


def test_text_has_its_own_direction(person: Person, service: Service) -> None:
    async def make() -> None:
        thread = await person.view.create_thread(state_key="arabic")
        reply = "مرحبا بكم.\n\n1. أولا\n\n2. ثانيا\n\nAnd in English."
        await thread.append("كيف حالك؟", threadline.assistant(reply))

    service.do(make())
    page = person.open("/t/arabic")
    direction = "element => getComputedStyle(element).direction"
    expect(page.locator(".message-assistant ol")).to_be_visible()
    for selector in (".message-user p:not(.byline)", ".message-assistant .prose > p", ".message-assistant ol"):
        assert page.locator(selector).first.evaluate(direction) == "rtl", selector
    assert page.locator(".message-assistant .prose > p").last.evaluate(direction) == "ltr"
    composer = page.get_by_role("textbox", name="Message")
    composer.fill("شكرا")
    assert composer.evaluate(direction) == "rtl"


def test_a_thread_of_five_surfaces_stays_on_its_line(person: Person) -> None:
    page = person.open()
    surfaces = ["web", "terminal", "telegram", "whatsapp", "mattermost"]
    thread = {"id": "one", "stateKey": "one", "title": "Everywhere", "updatedAt": "2026-01-01T00:00:00Z"}
    listed = {"threads": [{**thread, "surfaces": surfaces}]}
    page.route("**/api/v1/ai/threads?limit=*", lambda route: route.fulfill(json=listed))
    page.reload()
    row = page.get_by_role("navigation").get_by_role("listitem").filter(has_text="Everywhere")
    expect(row.locator(".surface")).to_have_text(["terminal", "telegram", "+2"])
    more = row.locator(".row-more")
    assert more.evaluate("box => box.scrollWidth <= box.clientWidth")
    assert more.evaluate("box => box.offsetHeight") < 30


@on_screens("desktop", "phone")
def test_a_toast_does_not_cover_the_composer(person: Person) -> None:
    page = person.open()
    page.route("**/api/v1/ai/chat", lambda route: route.abort())
    say(page, "Are you there?")
    toast = page.locator(".toast").filter(has_text="Not sent")
    expect(toast).to_be_visible()
    below = toast.bounding_box()
    field = page.locator(".composer").bounding_box()
    assert below is not None
    assert field is not None
    assert below["y"] + below["height"] <= field["y"]


def test_an_invalid_url_shows_an_error(person: Person) -> None:
    page = person.open("/t/a%20b")
    expect(page.get_by_role("alert")).to_contain_text("This thread could not be loaded")
