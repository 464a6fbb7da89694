"""The list of threads: with the mouse, with the keyboard only, on a phone."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

import threadline
from tests.page.browser import Service
from tests.page.conftest import EVERY_SCREEN, Person, hold_chat_request, on_screens, say, settled, shown


def make_threads(service: Service, person: Person, *titles: str) -> None:
    async def make() -> None:
        for number, title in enumerate(titles):
            thread = await person.view.create_thread(title=title, state_key=f"thread-{number}")
            await thread.append(f"A question about {title}", threadline.assistant(f"An answer about {title}"))

    service.do(make())


def open_list(page: Page) -> None:
    threads = page.get_by_role("button", name="Threads", exact=True)
    if threads.is_visible():
        threads.click()


def choose(page: Page, title: str, action: str) -> None:
    row = page.get_by_role("navigation").get_by_role("listitem").filter(has_text=title)
    row.hover()
    row.get_by_role("button", name=f"Actions for {title}").click()
    page.get_by_role("menuitem", name=action).click()


@EVERY_SCREEN
def test_threads_are_listed_by_latest_activity(person: Person, service: Service) -> None:
    make_threads(service, person, "Lisbon", "Porto")
    page = person.open()
    open_list(page)
    rows = page.get_by_role("navigation").get_by_role("listitem")
    expect(rows).to_contain_text(["Porto", "Lisbon"])
    page.get_by_role("link", name="Lisbon").click()
    expect(shown(page, "An answer about Lisbon")).to_be_visible()
    assert page.url.endswith("/t/thread-0")
    say(page, "Hello")
    settled(page)
    open_list(page)
    expect(rows).to_contain_text(["Lisbon", "Porto"])
    expect(rows.first.locator(".surface")).to_have_count(0)
    page.go_back()
    expect(page.get_by_text("Start a conversation")).to_be_visible()


@EVERY_SCREEN
def test_search_as_you_type_shows_passages_and_opens_them(person: Person, service: Service) -> None:
    make_threads(service, person, "Lisbon", "Porto")
    page = person.open()
    open_list(page)
    page.get_by_role("searchbox").press_sequentially("answer porto")
    found = page.get_by_role("list", name="Search results").get_by_role("listitem")
    expect(found).to_have_count(1)
    expect(found).to_contain_text("Porto")
    expect(found.locator("mark").first).to_have_text(re.compile("porto", re.IGNORECASE))
    found.get_by_role("link", name="An answer about Porto").click()
    expect(page.locator(".message-found")).to_contain_text("An answer about Porto")


@pytest.mark.req("P-01")
def test_search_groups_results_and_finds_titles(person: Person, service: Service) -> None:
    async def make() -> None:
        for number in range(25):
            thread = await person.view.create_thread(title=f"Trip {number}")
            await thread.append(*(f"acquisition {number} {place}" for place in range(5)))
        await person.view.create_thread(title="Zebracorn drawing", state_key="drawing")

    service.do(make())
    page = person.open()
    page.get_by_role("searchbox").press_sequentially("acquis")
    found = page.get_by_role("list", name="Search results").get_by_role("listitem")
    expect(found).to_have_count(20)
    expect(page.get_by_text("20+ threads")).to_be_visible()
    expect(found.first).to_contain_text("5 messages")
    expect(found.first).to_contain_text("2 more in this thread")
    page.get_by_role("button", name="More results").click()
    expect(found).to_have_count(25)
    expect(page.get_by_text("25 threads")).to_be_visible()
    page.get_by_role("searchbox").fill("giraffe")
    expect(page.get_by_text("Nothing matches “giraffe”.")).to_be_visible()
    page.get_by_role("searchbox").fill("zebrac")
    expect(found).to_have_count(1)
    # Last: a thread that opens moves the focus to its composer.
    found.get_by_role("link", name="Zebracorn drawing").click()
    expect(page).to_have_url(re.compile("/t/drawing$"))


@pytest.mark.req("P-01")
def test_a_result_deep_in_a_long_thread_opens_a_window_around_it(person: Person, service: Service) -> None:
    async def make() -> None:
        thread = await person.view.create_thread(title="Long", state_key="long")
        for first in range(0, 5_000, 500):
            texts = (f"Line {number}" for number in range(first, first + 500))
            await thread.append(*(f"{text} zyxomma" if text == "Line 700" else text for text in texts))

    service.do(make())
    page = person.open()
    page.get_by_role("searchbox").press_sequentially("zyxomma")
    page.get_by_role("link", name="Line 700 zyxomma").click()
    expect(page.locator(".message-found")).to_contain_text("Line 700 zyxomma")
    messages = page.get_by_role("list", name="Messages").get_by_role("listitem")
    assert messages.count() <= 180
    newer = page.get_by_role("button", name="Load newer messages")
    shown_before = messages.count()
    newer.click()
    expect(messages).not_to_have_count(shown_before)
    expect(newer).to_be_visible()
    page.get_by_role("button", name="Jump to the newest message").click()
    expect(shown(page, "Line 4999")).to_be_visible()
    expect(newer).to_be_hidden()
    assert messages.count() <= 180


@pytest.mark.req("P-01")
def test_a_message_sent_beside_an_old_result_stands_at_the_end(person: Person, service: Service) -> None:
    async def make() -> None:
        thread = await person.view.create_thread(title="Long", state_key="long")
        await thread.append(*(f"Line {number}" for number in range(400)), "the end")
        await thread.append("Line with zyxomma", after=100)
        await thread.append(*(f"Later {number}" for number in range(300)))

    service.do(make())
    page = person.open()
    page.get_by_role("searchbox").press_sequentially("zyxomma")
    page.get_by_role("link", name="Line with zyxomma").click()
    expect(page.locator(".message-found")).to_contain_text("zyxomma")
    say(page, "Hello there")
    settled(page)
    expect(shown(page, "Later 298")).to_be_attached()
    expect(shown(page, "zyxomma")).to_have_count(0)


def test_a_thread_is_renamed_archived_and_unarchived(person: Person, service: Service) -> None:
    make_threads(service, person, "Lisbon", "Porto")
    page = person.open()
    choose(page, "Lisbon", "Rename")
    page.get_by_label("Title").fill("A week in Lisbon")
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="A week in Lisbon")).to_be_visible()
    choose(page, "A week in Lisbon", "Archive")
    expect(page.get_by_role("link", name="A week in Lisbon")).to_be_hidden()
    page.get_by_role("button", name="Archived threads").click()
    choose(page, "A week in Lisbon", "Unarchive")
    page.get_by_role("button", name="Back to all threads").click()
    expect(page.get_by_role("link", name="A week in Lisbon")).to_be_visible()


@on_screens("desktop", "phone")
def test_a_deleted_thread_can_be_restored(person: Person, service: Service) -> None:
    make_threads(service, person, "Lisbon")
    page = person.open("/t/thread-0")
    expect(shown(page, "An answer about Lisbon")).to_be_visible()
    open_list(page)
    choose(page, "Lisbon", "Delete")
    expect(page.get_by_text("Your threads will appear here.")).to_be_attached()
    page.get_by_role("button", name="Undo").click()
    page.get_by_role("link", name="Lisbon").click()
    expect(shown(page, "An answer about Lisbon")).to_be_visible()


def test_scrolling_loads_more_threads(person: Person, service: Service) -> None:
    make_threads(service, person, *(f"Number {number}" for number in range(90)))
    page = person.open()
    rows = page.get_by_role("navigation").get_by_role("listitem")
    expect(rows).to_have_count(40)
    for expected in (80, 90):
        rows.last.scroll_into_view_if_needed()
        expect(rows).to_have_count(expected)
    expect(rows.last).to_contain_text("Number 0")


def test_everything_can_be_reached_with_the_keyboard(person: Person, service: Service) -> None:
    make_threads(service, person, "Lisbon", "Porto")
    page = person.open()
    expect(page.get_by_role("link", name="Lisbon")).to_be_visible()
    page.locator("body").press("/")
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("link", name="Lisbon")).to_be_focused()
    page.keyboard.press("F2")
    expect(page.get_by_label("Title")).to_be_focused()
    page.keyboard.press("Control+a")
    page.keyboard.type("Home")
    page.keyboard.press("Enter")
    home = page.get_by_role("link", name="Home")
    expect(home).to_be_focused()
    page.keyboard.press("Enter")
    expect(shown(page, "An answer about Lisbon")).to_be_visible()
    page.keyboard.press("Alt+n")
    expect(page.get_by_role("heading", name="New thread")).to_be_visible()
    expect(page.get_by_role("textbox", name="Message")).to_be_focused()
    home.focus()
    page.keyboard.press("Delete")
    expect(home).to_be_hidden()


def test_a_thread_of_thousands_opens_at_its_end_and_loads_older_messages(person: Person, service: Service) -> None:
    async def make() -> None:
        thread = await person.view.create_thread(title="Long", state_key="long")
        for first in range(0, 5000, 1000):
            await thread.append(*(f"Message {first + number}" for number in range(1000)))

    service.do(make())
    page = person.open("/t/long")
    expect(shown(page, "Message 4999")).to_be_in_viewport()
    expect(page.locator(".message")).to_have_count(60)
    shown(page, "Message 4940").scroll_into_view_if_needed()
    expect(page.locator(".message")).to_have_count(120)


def test_a_new_thread_is_listed_at_once(person: Person) -> None:
    page = person.open()
    release = hold_chat_request(page)
    say(page, "Where is Lisbon?")
    rows = page.get_by_role("navigation").get_by_role("listitem")
    expect(rows).to_have_count(1)
    expect(rows.get_by_role("link", name="Where is Lisbon?")).to_have_attribute("aria-current", "page")
    expect(page.get_by_role("heading", name="Where is Lisbon?")).to_be_visible()
    release()
    settled(page)
    expect(rows.get_by_role("button", name="Actions for Where is Lisbon?")).to_be_attached()
    expect(rows).to_have_count(1)


def test_a_thread_whose_first_message_was_not_stored_is_not_listed(person: Person) -> None:
    page = person.open()
    page.route("**/api/v1/ai/chat", lambda route: route.abort(), times=1)
    say(page, "Where is Lisbon?")
    expect(page.locator(".toast")).to_contain_text("Not sent")
    expect(page.get_by_role("navigation").get_by_role("listitem")).to_have_count(0)
    page.reload()
    expect(page.get_by_role("textbox", name="Message")).to_have_value("Where is Lisbon?")
    page.get_by_role("textbox", name="Message").press("Enter")
    expect(shown(page, "You said: “Where is Lisbon?”.")).to_be_visible()
    settled(page)
    expect(page.get_by_role("navigation").get_by_role("listitem")).to_have_count(1)
