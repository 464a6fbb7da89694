"""Hostile text from models and users is shown as text: it loads nothing, and links show their host."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Browser, Page, expect

import threadline
from tests.page.browser import Service
from tests.page.conftest import EVERY_SCREEN, Person, tabs

HOSTILE = """<img src=x onerror="window.__owned = 1"><script>window.__owned = 1</script>

<iframe src="javascript:window.__owned=1"></iframe> [click](javascript:window.__owned=1)

[data](data:text/html,<script>1</script>)

![spy](https://spy.example/pixel.png) [a bank](https://evil.example/login) <a href="https://evil.example">x</a>

<https://plain.example/> [relative](/t/other) [//host](//evil.example/)

| a | b |
|---|---|
| <b onmouseover=alert(1)>c</b> | `</code><script>` |

```html
<script>window.__owned = 1</script>
```
"""


def open_hostile(person: Person, service: Service) -> tuple[Page, list[str]]:
    async def make() -> None:
        thread = await person.view.create_thread(title="<script>window.__owned = 1</script>", state_key="hostile")
        await thread.append(HOSTILE, threadline.assistant(HOSTILE))

    service.do(make())
    asked: list[str] = []
    page = person.open("about:blank")
    page.on("request", lambda request: asked.append(request.url))
    page.goto("/t/hostile")
    expect(page.locator(".message")).to_have_count(2)
    expect(page.locator(".hljs-tag").first).to_be_visible()
    return page, asked


@EVERY_SCREEN
def test_a_hostile_message_shows_as_text(person: Person, service: Service) -> None:
    page, asked = open_hostile(person, service)
    assert page.evaluate("window.__owned") is None
    assert page.locator(".messages :is(script, iframe, img, [onerror], [onmouseover])").count() == 0
    expect(page.locator(".message-assistant")).to_contain_text("window.__owned = 1</script>")
    expect(page.get_by_role("heading", name="<script>window.__owned")).to_be_visible()
    assert [url for url in asked if not url.startswith(service.url)] == []


def test_links_show_their_host_and_only_web_and_mail_links_work(person: Person, service: Service) -> None:
    page, _ = open_hostile(person, service)
    links: list[Any] = page.locator(".message-assistant a").evaluate_all(
        "all => all.map(a => [a.getAttribute('href'), a.textContent, a.rel, a.target])"
    )
    assert {href for href, *_ in links} == {
        "https://spy.example/pixel.png",
        "https://evil.example/login",
        "https://plain.example/",
    }
    assert ["https://evil.example/login", "a bank (evil.example)", "noopener noreferrer", "_blank"] in links
    expect(page.locator(".message-assistant .picture-note")).to_contain_text("not loaded: https://spy.example")


def test_code_is_copied_unchanged(person: Person, service: Service) -> None:
    page, _ = open_hostile(person, service)
    page.get_by_role("button", name="Copy code").first.click()
    assert page.evaluate("navigator.clipboard.readText()") == "<script>window.__owned = 1</script>"


@EVERY_SCREEN
def test_the_sign_in_token_is_sent_in_a_header_and_never_in_a_url(
    service: Service, browser: Browser, screen: str
) -> None:
    with tabs(browser, service.url, None, screen) as open_tab:
        page = open_tab()
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("This token is not valid")
        page.get_by_label("Token").fill("ada")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_text("Start a conversation")).to_be_visible()
        assert "ada" not in page.url
        assert page.evaluate("document.cookie + JSON.stringify(localStorage)").count("ada") == 0
        page.reload()
        expect(page.get_by_text("Start a conversation")).to_be_visible()


def test_the_page_has_a_strict_content_security_policy(service: Service, person: Person) -> None:
    page = person.open()
    answer = page.request.get(page.url)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "require-trusted-types-for 'script'" in policy
    assert answer.headers["cache-control"] == "no-cache"
    script = page.locator("script[src]").get_attribute("src") or ""
    assert "immutable" in page.request.get(script).headers["cache-control"]
