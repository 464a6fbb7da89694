"""Versions, branches and saved points on the page: nothing is lost by an edit, an undo or a load."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect

import threadline
from tests.page.browser import Service
from tests.page.conftest import EVERY_SCREEN, PHONE, Person, say, settled, shown


def message(page: Page, number: int) -> Locator:
    return page.locator(".message").nth(number)


def press(page: Page, number: int, action: str) -> None:
    message(page, number).hover()
    message(page, number).get_by_role("button", name=action).click()


def talk(page: Page, *questions: str) -> None:
    for question in questions:
        count = page.locator(".message").count()
        say(page, question)
        expect(page.locator(".message")).to_have_count(count + 2)
        settled(page)


def details(page: Page) -> Locator:
    panel = page.get_by_role("complementary", name="Details")
    if page.viewport_size == {"width": PHONE[0], "height": PHONE[1]} and not panel.is_visible():
        page.get_by_role("button", name="Show details").click()
    return panel


@EVERY_SCREEN
def test_an_edited_message_is_a_second_version_and_the_first_can_be_restored(person: Person) -> None:
    page = person.open()
    talk(page, "Lisbon?", "Hotels?")
    press(page, 0, "Edit")
    page.get_by_role("textbox", name="Edit your message").fill("Porto?")
    page.keyboard.press("Enter")
    expect(shown(page, "You said: “Porto?”.")).to_be_visible()
    expect(page.locator(".message")).to_have_count(2)
    versions = page.get_by_role("group", name="Versions of this question")
    expect(versions).to_contain_text("2/2")
    versions.get_by_role("button", name="Previous version").click()
    expect(shown(page, "You said: “Lisbon?”.")).to_be_visible()
    expect(page.locator(".message")).to_have_count(4)
    expect(versions).to_contain_text("1/2")


def test_an_earlier_answer_is_regenerated_and_all_versions_are_kept(person: Person) -> None:
    page = person.open()
    talk(page, "calculate 6*7", "Hello")
    versions = page.get_by_role("group", name="Versions of this answer")
    for expected in ("2/2", "3/3"):
        press(page, 1, "Regenerate answer")
        expect(versions).to_contain_text(expected)
        expect(page.locator(".message")).to_have_count(2)
    versions.get_by_role("button", name="Previous version").click()
    expect(versions).to_contain_text("2/3")
    versions.get_by_role("button", name="Previous version").click()
    expect(versions).to_contain_text("1/3")
    expect(page.locator(".message")).to_have_count(4)


def test_a_branch_is_a_separate_thread_from_that_message_on(person: Person) -> None:
    page = person.open()
    talk(page, "Lisbon?", "Hotels?")
    first = page.url
    press(page, 1, "Branch from here")
    expect(page.locator(".message")).to_have_count(2)
    assert page.url != first
    talk(page, "By train?")
    page.goto(first)
    expect(shown(page, "Hotels?").first).to_be_visible()
    expect(page.locator(".message")).to_have_count(4)


def test_a_point_is_saved_loaded_and_deleted(person: Person) -> None:
    page = person.open()
    talk(page, "Lisbon?")
    press(page, 1, "Save this point")
    page.get_by_label("Name").fill("Before the booking")
    page.keyboard.press("Enter")
    panel = details(page)
    expect(panel.get_by_role("list", name="Saved points")).to_contain_text("Before the booking")
    talk(page, "Book it")
    panel.get_by_role("button", name="Load Before the booking").click()
    expect(page.locator(".message")).to_have_count(2)
    panel.get_by_role("button", name="Delete Before the booking").click()
    expect(panel.get_by_role("list", name="Saved points")).to_be_hidden()


@EVERY_SCREEN
def test_the_last_message_is_undone_and_restored_from_the_versions(person: Person) -> None:
    page = person.open()
    talk(page, "Lisbon?", "Hotels?")
    panel = details(page)
    panel.get_by_role("button", name="Undo the last message").click()
    expect(page.locator(".message")).to_have_count(2)
    ends = panel.get_by_role("list", name="Versions").get_by_role("button")
    expect(ends).to_have_count(2)
    ends.filter(has_text="4 messages").click()
    expect(page.locator(".message")).to_have_count(4)


def test_a_pinned_context_is_shown_in_what_the_model_saw(person: Person) -> None:
    page = person.open()
    panel = details(page)
    panel.get_by_label("Pinned for rehearsal").fill("I live in Bern.")
    panel.get_by_role("button", name="Pin", exact=True).click()
    talk(page, "what do you know about me?")
    expect(shown(page, "You pinned this for me: “I live in Bern.”")).to_be_visible()
    press(page, 1, "What the model saw")
    dialog = page.get_by_role("dialog", name="What the model saw")
    expect(dialog).to_contain_text("Persisted user context")
    expect(dialog).to_contain_text("what do you know about me?")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    panel.get_by_label("Pinned for rehearsal").fill("")
    panel.get_by_role("button", name="Pin", exact=True).click()
    talk(page, "what do you know about me?")
    expect(shown(page, "You have pinned no context for me.")).to_be_visible()


def test_counts_and_bound_places_are_shown(person: Person, service: Service) -> None:
    async def bind() -> None:
        thread = await person.view.create_thread(title="Bound", state_key="bound")
        await thread.append("Hello", threadline.assistant("Hi"))
        scope = threadline.Scope("local", person.name)
        await service.threadline.store.scoped(scope).bind("slack", "C1", thread.id, label="#travel")

    service.do(bind())
    page = person.open("/t/bound")
    panel = details(page)
    expect(panel.get_by_role("list", name="Places where this thread continues")).to_contain_text("#travel")
    expect(page.get_by_text("2 messages").first).to_be_visible()
    talk(page, "calculate 1+1")
    expect(page.locator(".head .counts")).to_contain_text("tokens")


@EVERY_SCREEN
def test_a_link_code_is_created_and_a_linked_account_removed(person: Person, service: Service) -> None:
    page = person.open()
    panel = details(page)
    expect(panel).to_contain_text("in Slack, Telegram, WhatsApp or Matrix.")
    panel.get_by_role("button", name="Create a link code").click()
    words = panel.locator(".link-code code").inner_text()

    async def link() -> None:
        admin = threadline.Scope("local", "root", "admin")
        await service.threadline.messaging.links.put(admin, "telegram", "4711", person.name, revoked=False)

    service.do(link())
    assert words.startswith("!link ")
    page.reload()
    panel = details(page)
    expect(panel.get_by_role("list", name="Linked accounts")).to_contain_text("4711")
    panel.get_by_role("button", name="Unlink 4711").click()
    expect(panel.get_by_role("list", name="Linked accounts")).to_be_hidden()
