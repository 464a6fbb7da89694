"""What is written and not sent yet: drafts, messages that wait for the end of a reply, and how replies ended."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

import threadline
from tests.page.browser import Service
from tests.page.conftest import EVERY_SCREEN, Person, hold_chat_request, say, settled, shown


def composer(page: Page) -> Locator:
    return page.get_by_role("textbox", name="Message")


def make_thread(service: Service, person: Person, state_key: str, agent_id: str = "patient") -> None:
    async def make() -> None:
        thread = await person.view.create_thread(agent_id=agent_id, state_key=state_key, title=state_key)
        await thread.append(f"Hello {state_key}", threadline.assistant("Hello."))

    service.do(make())


def test_drafts_survive_navigation_and_a_reload(person: Person, service: Service) -> None:
    make_thread(service, person, "lisbon")
    make_thread(service, person, "porto")
    page = person.open("/t/lisbon")
    composer(page).fill("About Lisbon")
    page.get_by_role("link", name="porto").click()
    expect(shown(page, "Hello porto")).to_be_visible()
    expect(composer(page)).to_have_value("")
    composer(page).fill("About Porto")
    page.get_by_role("button", name="New thread").click()
    expect(composer(page)).to_have_value("")
    composer(page).fill("About something new")
    page.reload()
    expect(composer(page)).to_have_value("About something new")
    page.get_by_role("link", name="lisbon").click()
    expect(composer(page)).to_have_value("About Lisbon")
    page.reload()
    expect(composer(page)).to_have_value("About Lisbon")
    expect(page.locator(".message")).to_have_count(2)
    composer(page).press("Enter")
    settled(page)
    expect(page.locator(".message")).to_have_count(4)
    page.reload()
    expect(page.locator(".message")).to_have_count(4)
    expect(composer(page)).to_have_value("")
    page.go_back()
    page.get_by_role("link", name="porto").click()
    expect(composer(page)).to_have_value("About Porto")


def test_signing_out_removes_the_drafts(person: Person) -> None:
    page = person.open()
    composer(page).fill("A secret")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    assert page.evaluate("Object.values(sessionStorage).filter(text => text.includes('secret'))") == []


@EVERY_SCREEN
def test_a_message_written_during_a_reply_is_sent_after_it(person: Person, service: Service) -> None:
    make_thread(service, person, "braga")
    page = person.open("/t/braga")
    with service.holding():
        say(page, "Take your time")
        expect(shown(page, "I am taking my time")).to_be_visible()
        say(page, "And then?")
        expect(page.get_by_text("Will be sent when the reply is finished")).to_be_visible()
        expect(shown(page, "I am taking my time")).to_be_in_viewport()
        expect(composer(page)).to_have_value("")
        composer(page).fill("One more thing")
        page.get_by_role("button", name="Queue message").click()
        expect(page.locator(".queued")).to_contain_text("One more thing")
        expect(page.locator(".message-user")).to_have_count(2)
    expect(page.locator(".queued")).to_be_hidden()
    expect(page.locator(".message-user").last).to_contain_text("And then?")
    expect(page.locator(".message-user").last).to_contain_text("One more thing")
    expect(page.locator(".message")).to_have_count(6)
    settled(page)
    page.reload()
    expect(page.locator(".message")).to_have_count(6)
    expect(composer(page)).to_have_value("")


def test_a_queued_message_can_be_cancelled_and_survives_a_reload(person: Person, service: Service) -> None:
    make_thread(service, person, "madrid")
    page = person.open("/t/madrid")
    with service.holding():
        say(page, "Take your time")
        expect(shown(page, "I am taking my time")).to_be_visible()
        say(page, "And then?")
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator(".queued")).to_be_hidden()
        expect(composer(page)).to_have_value("And then?")
        composer(page).press("Enter")
        expect(page.locator(".queued")).to_contain_text("And then?")
        page.reload()
        expect(shown(page, "I am taking my time")).to_be_visible()
        expect(composer(page)).to_have_value("And then?")
    settled(page)
    expect(page.locator(".message")).to_have_count(4)


@pytest.mark.req("A-06")
@EVERY_SCREEN
def test_a_queued_message_can_be_sent_into_the_running_reply(person: Person, service: Service) -> None:
    make_thread(service, person, "evora", "describer")
    page = person.open("/t/evora")
    with service.holding():
        say(page, "What is there?")
        expect(shown(page, "look")).to_be_visible()
        say(page, "Only the left side.")
        page.get_by_role("button", name="Send now").click()
        expect(page.locator(".steered")).to_contain_text("Only the left side.")
        expect(page.get_by_text("Will be sent when the reply is finished")).to_be_hidden()
    expect(shown(page, "Told: Only the left side.")).to_be_visible()
    settled(page)
    expect(page.locator(".steered")).to_be_hidden()
    expect(page.get_by_text("Your message was taken in here")).to_be_visible()
    page.reload()
    expect(page.locator(".message")).to_have_count(5)
    expect(page.locator(".message-user").last).to_contain_text("Only the left side.")


@pytest.mark.req("A-06")
def test_a_message_that_the_reply_did_not_take_in_is_answered_next(person: Person, service: Service) -> None:
    make_thread(service, person, "sines")
    page = person.open("/t/sines")
    with service.holding():
        say(page, "Take your time")
        expect(shown(page, "I am taking my time")).to_be_visible()
        say(page, "And then?")
        page.get_by_role("button", name="Send now").click()
        expect(page.locator(".steered")).to_contain_text("And then?")
    expect(page.locator(".message")).to_have_count(6)
    settled(page)
    expect(shown(page, "and now I am done.")).to_have_count(2)


def test_stop_sends_the_queued_message_at_once(person: Person, service: Service) -> None:
    make_thread(service, person, "faro")
    page = person.open("/t/faro")
    with service.holding():
        say(page, "Take your time")
        expect(shown(page, "I am taking my time")).to_be_visible()
        say(page, "Rather this")
        page.get_by_role("button", name="Stop").click()
        expect(page.locator(".message-user").last).to_contain_text("Rather this")
        expect(page.locator(".message-assistant")).to_have_count(3)
        expect(page.locator(".message-assistant .ended")).to_have_text("stopped")
    settled(page)


def test_a_queued_message_waits_for_an_approval(person: Person) -> None:
    page = person.open()
    release = hold_chat_request(page)
    say(page, "stamp hello")
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    say(page, "Thank you")
    expect(page.locator(".queued")).to_be_visible()
    release()
    expect(page.get_by_text("Allow stamp to run with this input?")).to_be_visible()
    settled(page)
    expect(page.locator(".queued")).to_contain_text("Thank you")
    page.get_by_role("button", name="Allow").click()
    expect(shown(page, "You said: “Thank you”.")).to_be_visible()
    expect(shown(page, "Here it is, stamped")).to_be_visible()


def test_a_partial_reply_is_marked_also_in_a_branch(person: Person, service: Service) -> None:
    make_thread(service, person, "evora")
    page = person.open("/t/evora")
    with service.holding():
        say(page, "Take your time")
        expect(shown(page, "I am taking my time")).to_be_visible()
        page.get_by_role("button", name="Stop").click()
        settled(page)
    expect(page.locator(".message").last.locator(".ended")).to_have_text("stopped")
    expect(page.locator(".ended")).to_have_count(1)
    page.locator(".message").last.get_by_role("button", name="Branch from here").click()
    expect(page).not_to_have_url("/t/evora")
    expect(shown(page, "I am taking my time")).to_be_visible()
    expect(page.locator(".ended")).to_have_text("stopped")


def test_a_queued_message_returns_to_the_composer_if_the_reply_fails(person: Person) -> None:
    page = person.open()
    release = hold_chat_request(page)
    say(page, "fail")
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    say(page, "Next")
    expect(page.locator(".queued")).to_be_visible()
    release()
    expect(page.get_by_role("alert")).to_contain_text("the rehearsal agent failed, as requested")
    expect(page.locator(".queued")).to_be_hidden()
    expect(composer(page)).to_have_value("Next")
