""" "Continue on my phone": the thread becomes the one that private chats on platforms continue."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.page.browser import Service
from tests.page.conftest import EVERY_SCREEN, Person, say, settled
from threadline.core.threads import Scope


def dialog(page: Page) -> Any:
    return page.get_by_role("dialog", name="Continue on my phone")


def open_dialog(page: Page) -> Any:
    page.get_by_role("button", name="Continue on my phone").click()
    return dialog(page)


async def home_title(person: Person) -> str | None:
    home = await person.view.home_thread()
    return None if home is None else home.title


async def link_telegram(person: Person, service: Service) -> None:
    administrator = Scope(person.view.scope.tenant_id, "root", "admin")
    await service.threadline.messaging.links.put(
        administrator, "telegram", "4711", person.view.scope.user_id, revoked=False
    )


@pytest.mark.req("H-06")
@EVERY_SCREEN
def test_a_thread_is_continued_on_the_phone(person: Person, service: Service) -> None:
    service.do(link_telegram(person, service))
    page = person.open()
    expect(page.get_by_role("textbox", name="Message")).to_be_visible()
    expect(page.get_by_role("button", name="Continue on my phone")).to_have_count(0)
    say(page, "My favourite colour is green")
    settled(page)
    shown = open_dialog(page)
    expect(shown.get_by_role("list", name="Linked accounts")).to_contain_text("4711")
    shown.get_by_role("button", name="Continue this thread there").click()
    expect(shown.get_by_text("This is your home thread")).to_be_visible()
    assert service.do(home_title(person)) == "My favourite colour is green"
    shown.get_by_role("button", name="Close").click()
    expect(dialog(page)).to_have_count(0)
    page.reload()
    expect(open_dialog(page).get_by_text("This is your home thread")).to_be_visible()


@pytest.mark.req("H-06")
def test_a_user_without_a_linked_account_gets_a_code(person: Person) -> None:
    page = person.open()
    say(page, "Hello")
    settled(page)
    shown = open_dialog(page)
    shown.get_by_role("button", name="Create a link code").click()
    expect(shown.get_by_text("!link ")).to_be_visible()


@pytest.mark.req("H-06")
def test_new_threads_become_the_home_thread_if_their_user_wants_that(person: Person, service: Service) -> None:
    page = person.open()
    say(page, "First")
    settled(page)
    wish = open_dialog(page).get_by_role("checkbox", name="Do this for every thread that I begin on this page")
    with page.expect_response("**/ai/values") as written:
        wish.check()
    assert written.value.ok
    assert service.do(home_title(person)) is None
    page.keyboard.press("Escape")
    # Another tab, as on another device.
    other = person.open()
    with other.expect_response("**/me/home") as chosen:
        say(other, "Second")
    assert chosen.value.request.method == "PUT"
    settled(other)
    assert service.do(home_title(person)) == "Second"
    wish = open_dialog(other).get_by_role("checkbox", name="Do this for every thread that I begin on this page")
    expect(wish).to_be_checked()
    with other.expect_response("**/ai/values") as removed:
        wish.uncheck()
    assert removed.value.ok
    third = person.open()
    with third.expect_response("**/ai/values?*"):
        say(third, "Third")
    settled(third)
    shown = open_dialog(third)
    expect(shown.get_by_role("button", name="Continue this thread there")).to_be_visible()
    assert service.do(home_title(person)) == "Second"
