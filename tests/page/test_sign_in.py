"""Sign-in in a real browser: with a link, and at a real identity provider from npm."""

from __future__ import annotations

import datetime as dt
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect

from tests.npm_packages import NODE, install
from tests.page.browser import Service
from tests.page.conftest import say, settled, shown, tabs
from threadline.core.channels import User
from threadline.core.oidc import OidcProvider
from threadline.core.sign_ins import SignInSettings, link_url
from threadline.core.threads import system_scope
from threadline.service.auth.session_cookies import SESSION_COOKIE
from threadline.settings import ServiceSettings, Settings

pytestmark = pytest.mark.req("K-08")
SECRET = "a secret of the test & client"
START = "Start a conversation"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def identity_provider(callback: str) -> Iterator[str]:
    """The issuer of a running `oidc-provider`."""
    home = install(Path(__file__).parent / "npm", "oidc")
    command: list[str | Path] = [NODE, home / "provider.mjs", str(free_port()), callback]
    with subprocess.Popen(command, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        issuer = process.stdout.readline().strip()
        assert issuer.startswith("http://localhost:")
        try:
            yield issuer
        finally:
            process.kill()


class SignInService(Service):
    """A service with authentication and the identity provider `npm`."""

    def __init__(self, port: int, providers: dict[str, OidcProvider]) -> None:
        super().__init__(authenticate=None)
        self.address = f"http://localhost:{port}"
        self._whole = Settings(
            database=":memory:",
            service=ServiceSettings(port=port, authentication=True, grace_seconds=1.0, heartbeat_seconds=0.2),
            sign_in=SignInSettings(url=self.address),
            oidc=providers,
        )

    def settings(self) -> Settings:
        return self._whole

    def link(self, user: str) -> str:
        """A sign-in link for a user, who is created."""

        async def make() -> str:
            system = self.threadline.store.scoped(system_scope("local"))
            if await system.user(user) is None:
                await system.put_user(User(user))
            sign_ins = self.threadline.administration(system_scope("local")).sign_ins
            return (await sign_ins.create_link(user, dt.timedelta(minutes=15))).secret

        return link_url(self.address, self.do(make()))

    def sign_out(self, user: str) -> None:
        self.do(self.threadline.administration(system_scope("local")).sign_ins.revoke_all(user))


class Stand(msgspec.Struct):
    service: SignInService
    issuer: str
    browser: Browser


@pytest.fixture(scope="module")
def stand(built: None, browser: Browser) -> Iterator[Stand]:
    port, unreachable = free_port(), free_port()
    callback = f"http://localhost:{port}/sign-in/npm/callback"
    with identity_provider(callback) as issuer:
        provider = OidcProvider(
            issuer,
            "threadline",
            SECRET,
            title="Example",
            user_claim="email",
            role_claim="groups",
            roles={"admins": "admin", "staff": "member"},
            allowed_domains=("example.com",),
        )
        away = OidcProvider(f"http://localhost:{unreachable}", "threadline", SECRET, title="Away", user_claim="email")
        service = SignInService(port, {"npm": provider, "away": away})
        service.start()
        yield Stand(service, issuer, browser)
        service.stop()


@pytest.fixture
def tab(stand: Stand) -> Iterator[Callable[..., Page]]:
    with tabs(stand.browser, stand.service.address, None, "desktop") as open_tab:
        yield open_tab


def sign_in_at_provider(page: Page, account: str) -> None:
    page.get_by_role("link", name="Continue with Example").click()
    log_in(page, account)


def log_in(page: Page, account: str) -> None:
    """The provider's own pages: login, then consent."""
    page.locator("input[name=login]").fill(account)
    page.locator("input[name=password]").fill("anything")
    page.locator("button[type=submit]").click()
    page.get_by_role("button", name="Continue").click()


def cookies_of(context: BrowserContext) -> dict[str, Any]:
    return {cookie["name"]: cookie for cookie in context.cookies()}


def test_a_person_signs_in_at_the_provider_and_stays_signed_in(stand: Stand, tab: Callable[..., Page]) -> None:
    page = tab("/t/holiday")
    sign_in_at_provider(page, "ada@example.com")
    expect(page).to_have_url(f"{stand.service.address}/t/holiday")
    page.goto("/")
    say(page, "Hello there")
    settled(page)
    expect(shown(page, "Hello there").first).to_be_visible()
    found = cookies_of(page.context)
    session = found[SESSION_COOKIE]
    assert (session["httpOnly"], session["secure"], session["sameSite"], session["path"]) == (True, True, "Lax", "/")
    assert not [name for name in found if "flow" in name]
    assert SESSION_COOKIE not in page.evaluate("document.cookie")
    second = tab("/")
    expect(second.get_by_text(START)).to_be_visible()
    me = second.evaluate("fetch('/api/v1/me').then((answer) => answer.json())")
    assert me == {"tenant": "local", "user": "ada@example.com", "role": "member", "displayName": "Ada"}


def test_the_providers_groups_decide_the_role(stand: Stand, tab: Callable[..., Page]) -> None:
    page = tab("/")
    sign_in_at_provider(page, "root@example.com")
    expect(page.get_by_text(START)).to_be_visible()
    assert page.evaluate("fetch('/api/v1/me').then((answer) => answer.json())")["role"] == "admin"


def test_a_person_of_another_domain_is_not_admitted(stand: Stand, tab: Callable[..., Page]) -> None:
    page = tab("/")
    sign_in_at_provider(page, "eve@evil.example")
    expect(page.get_by_text("Your account may not use this service")).to_be_visible()
    assert SESSION_COOKIE not in cookies_of(page.context)


def test_a_cancelled_sign_in_says_so(stand: Stand, tab: Callable[..., Page]) -> None:
    page = tab("/")
    page.get_by_role("link", name="Continue with Example").click()
    page.get_by_role("link", name="Cancel").click()
    expect(page.get_by_text("You cancelled the sign-in.")).to_be_visible()
    page.get_by_role("link", name="Try again").click()
    log_in(page, "ada@example.com")
    expect(page.get_by_text(START)).to_be_visible()


def test_a_provider_that_is_down_gets_a_page_at_once(stand: Stand, tab: Callable[..., Page]) -> None:
    page = tab("/")
    page.get_by_role("link", name="Continue with Away").click()
    expect(page.get_by_text("does not answer at the moment")).to_be_visible()
    page.get_by_role("link", name="Back to the start").click()
    expect(page.get_by_role("link", name="Continue with Example")).to_be_visible()


def test_a_disabled_user_cannot_sign_in_again(stand: Stand, tab: Callable[..., Page]) -> None:
    page = tab("/")
    sign_in_at_provider(page, "gone@example.com")
    expect(page.get_by_text(START)).to_be_visible()
    service = stand.service
    service.do(service.threadline.administration(system_scope("local")).users.disable("gone@example.com"))
    page.reload()
    page.get_by_role("link", name="Continue with Example").click()
    expect(page.get_by_text("Your account may not use this service")).to_be_visible()


@pytest.mark.parametrize("next_path", ["//evil.example", "https://evil.example", "/\\evil.example", "/\t/evil.example"])
def test_a_sign_in_never_leads_to_another_host(stand: Stand, tab: Callable[..., Page], next_path: str) -> None:
    page = tab("/")
    page.goto(f"/sign-in/npm?next={next_path.replace(chr(9), '%09')}")
    log_in(page, "ada@example.com")
    expect(page).to_have_url(f"{stand.service.address}/")


def test_a_return_of_another_browser_is_refused(stand: Stand, tab: Callable[..., Page]) -> None:
    """The address that the provider sent the attacker's browser to, opened by a victim; also a second time."""
    page = tab("/")
    returns: list[str] = []
    page.on("request", lambda request: returns.append(request.url) if "/callback?" in request.url else None)
    sign_in_at_provider(page, "ada@example.com")
    expect(page.get_by_text(START)).to_be_visible()
    page.goto(returns[0])
    expect(page.get_by_text("was begun in another browser")).to_be_visible()
    with tabs(stand.browser, stand.service.address, None, "desktop") as open_victims:
        victim = open_victims(urlsplit(returns[0]).path + "?" + urlsplit(returns[0]).query)
        expect(victim.get_by_text("was begun in another browser")).to_be_visible()
        assert SESSION_COOKIE not in cookies_of(victim.context)


@pytest.mark.parametrize("change", ["state", "iss", "code"])
def test_a_changed_return_is_refused(stand: Stand, tab: Callable[..., Page], change: str) -> None:
    page = tab("/")

    def altered(url: str) -> str:
        value = parse_qs(urlsplit(url).query)[change][0]
        wrong = "http://evil.example" if change == "iss" else value[:-4] + ("aaaa" if value[-4:] != "aaaa" else "bbbb")
        return re.sub(rf"([?&]{change}=)[^&]*", lambda found: found[1] + wrong, url)

    def alter(route: Route) -> None:
        """Follows the redirects from the provider's last page itself: Playwright cannot intercept those."""
        if "consent" not in (route.request.post_data or ""):
            route.continue_()
            return
        answer = route.fetch(max_redirects=0)
        while "/callback?" not in answer.headers["location"]:
            answer = page.request.get(answer.headers["location"], max_redirects=0)
        route.fulfill(status=303, headers={"location": altered(answer.headers["location"])})

    page.route("**/interaction/*", alter)
    sign_in_at_provider(page, "ada@example.com")
    expect(page.get_by_role("heading", name="You are not signed in")).to_be_visible()
    assert SESSION_COOKIE not in cookies_of(page.context)


def test_a_link_signs_in_once(stand: Stand, tab: Callable[..., Page]) -> None:
    link = stand.service.link("grace")
    page = tab(urlsplit(link).path + "#" + urlsplit(link).fragment)
    page.get_by_role("button", name="Sign in with the link").click()
    expect(page.get_by_text(START)).to_be_visible()
    assert page.url == f"{stand.service.address}/"
    with tabs(stand.browser, stand.service.address, None, "desktop") as open_others:
        other = open_others("/#" + urlsplit(link).fragment)
        other.get_by_role("button", name="Sign in with the link").click()
        expect(other.get_by_role("alert")).to_contain_text("The link is not valid")


def test_devices_are_listed_and_signed_out(stand: Stand, tab: Callable[..., Page]) -> None:
    page = tab("/#" + urlsplit(stand.service.link("hedy")).fragment)
    page.get_by_role("button", name="Sign in with the link").click()
    expect(page.get_by_text(START)).to_be_visible()
    with tabs(stand.browser, stand.service.address, None, "desktop") as open_phone:
        phone = open_phone("/#" + urlsplit(stand.service.link("hedy")).fragment)
        phone.get_by_role("button", name="Sign in with the link").click()
        expect(phone.get_by_text(START)).to_be_visible()
        page.get_by_role("button", name="Devices").click()
        expect(page.get_by_role("list", name="Devices").get_by_role("listitem")).to_have_count(2)
        page.get_by_role("button", name="Sign out this device").click()
        expect(page.get_by_role("list", name="Devices").get_by_role("listitem")).to_have_count(1)
        # The other browser learns it with its next request, in any tab.
        phone.reload()
        expect(phone.get_by_role("heading", name="Sign in")).to_be_visible()
    page.get_by_role("button", name="Sign out everywhere").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert SESSION_COOKIE not in cookies_of(page.context)


def test_signing_out_in_one_tab_signs_out_the_other(stand: Stand, tab: Callable[..., Page]) -> None:
    page = tab("/#" + urlsplit(stand.service.link("joan")).fragment)
    page.get_by_role("button", name="Sign in with the link").click()
    expect(page.get_by_text(START)).to_be_visible()
    second = tab("/")
    expect(second.get_by_text(START)).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    say(second, "Am I still here?")
    expect(second.get_by_role("heading", name="Sign in")).to_be_visible()


class _EvilPage(BaseHTTPRequestHandler):
    """A page of another origin that makes the browser send requests to the service."""

    target = ""

    def do_GET(self) -> None:
        body = f"""<form id=f method=post enctype=text/plain action="{self.target}/api/v1/ai/threads">
            <input name='{{"stateKey":"forged","a":"' value='"}}'></form><p>ready""".encode()
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


def test_a_page_of_another_origin_can_neither_read_nor_change_anything(stand: Stand, tab: Callable[..., Page]) -> None:
    """The other origin is another port of the same host: the same site, to which the browser does send the cookie."""
    page = tab("/#" + urlsplit(stand.service.link("mary")).fragment)
    page.get_by_role("button", name="Sign in with the link").click()
    expect(page.get_by_text(START)).to_be_visible()
    handler = type("Handler", (_EvilPage,), {"target": stand.service.address})
    server = ThreadingHTTPServer(("localhost", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        evil = page.context.new_page()
        evil.goto(f"http://localhost:{server.server_port}/")
        read = "(url) => fetch(url, {credentials: 'include'}).then((a) => a.text(), () => 'blocked')"
        assert evil.evaluate(read, f"{stand.service.address}/api/v1/me") == "blocked"
        for method in ("POST", "DELETE"):
            sent = f"""(url) => fetch(url, {{method: '{method}', credentials: 'include', mode: 'cors',
                headers: {{'content-type': 'text/plain'}}, body: '{{}}'}}).then((a) => a.status, () => 'blocked')"""
            assert evil.evaluate(sent, f"{stand.service.address}/api/v1/ai/threads") == "blocked"
        with evil.expect_navigation():
            evil.evaluate("document.getElementById('f').submit()")
        assert "forged" not in page.evaluate("fetch('/api/v1/ai/threads').then((answer) => answer.text())")
        assert "origin_refused" in evil.content()
    finally:
        server.shutdown()
        server.server_close()
    assert page.evaluate("fetch('/api/v1/me').then((answer) => answer.status)") == 200
