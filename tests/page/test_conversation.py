"""A conversation on the page: the real `useChat` in a real browser against the real service."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

import threadline
from tests.page.browser import Service
from tests.page.conftest import EVERY_SCREEN, Person, say, settled, shown


@EVERY_SCREEN
@pytest.mark.req("S1-32")
def test_a_first_message_is_answered_and_its_url_opens_the_thread(person: Person) -> None:
    page = person.open()
    expect(page.get_by_text("Start a conversation")).to_be_visible()
    say(page, "Hello there")
    expect(shown(page, "You said: “Hello there”.")).to_be_visible()
    settled(page)
    expect(page.locator(".message-assistant .who")).to_have_text("rehearsal")
    assert re.search(r"/t/\w{16}$", page.url)
    expect(page).to_have_title("Hello there · Threadline")
    again = person.open(page.url)
    expect(shown(again, "You said: “Hello there”.")).to_be_visible()
    assert again.locator(".message").count() == 2


@pytest.mark.req("S1-32")
def test_tools_and_reasoning_are_folded_and_can_be_opened(person: Person) -> None:
    page = person.open()
    say(page, "calculate 2+3*4 and 1/0")
    good, bad = page.locator(".tool").first, page.locator(".tool").nth(1)
    expect(good).to_contain_text("done")
    expect(bad).to_contain_text("failed")
    expect(good.get_by_text("Output")).to_be_hidden()
    good.locator("summary").click()
    expect(good.get_by_label("Output", exact=True)).to_have_text("14")
    settled(page)
    say(page, "think about rain")
    thought = shown(page, "Reasoning")
    expect(thought).to_be_visible()
    expect(shown(page, "So, rain. Let me see.")).to_be_hidden()
    thought.click()
    expect(shown(page, "So, rain. Let me see.")).to_be_visible()


@pytest.mark.req("S1-32", "S1-14")
def test_a_reload_during_an_answer_continues_it_without_duplicates(person: Person, service: Service) -> None:
    service.do(person.view.create_thread(agent_id="patient", state_key="reloaded"))
    page = person.open("/t/reloaded")
    with service.holding():
        say(page, "Take your time")
        expect(shown(page, "I am taking my time")).to_be_visible()
        page.reload()
        expect(shown(page, "I am taking my time")).to_be_visible()
    expect(shown(page, "and now I am done.")).to_be_visible()
    settled(page)
    expect(page.locator(".message")).to_have_count(2)
    assert page.locator(".message-assistant").inner_text().count("I am taking my time") == 1


@pytest.mark.req("S1-32")
@pytest.mark.parametrize("cuts", [True, False])
def test_a_deploy_during_an_answer_continues_it_without_duplicates(
    person: Person, service: Service, cuts: bool
) -> None:
    """With `cuts` the connection breaks and the resumed stream starts again; otherwise the open stream says so."""
    service.do(person.view.create_thread(agent_id="patient", state_key="deployed"))
    page = person.open("/t/deployed")
    with service.holding():
        say(page, "Take your time")
        expect(shown(page, "I am taking my time")).to_be_visible()
        with page.expect_response(re.compile("/ai/chat/deployed/stream$")):
            service.do(service.hand_over(cuts=cuts))
        expect(shown(page, "I am taking my time")).to_be_visible()
        expect(page.get_by_role("button", name="Stop")).to_be_visible()
        assert page.locator(".message-assistant").inner_text().count("I am taking my time") == 1
    expect(shown(page, "and now I am done.")).to_be_visible()
    settled(page)
    expect(page.locator(".message")).to_have_count(2)
    assert page.locator(".message-assistant").inner_text().count("I am taking my time") == 1


@pytest.mark.req("S1-20", "S1-32", "C-02")
def test_a_final_text_replaces_what_was_streamed(person: Person, service: Service) -> None:
    service.do(person.view.create_thread(agent_id="corrector", state_key="corrected"))
    page = person.open("/t/corrected")
    with service.holding():
        say(page, "Where is it?")
        expect(shown(page, "It is in Porto.")).to_be_visible()
        expect(page.get_by_role("button", name="Stop")).to_be_visible()
        expect(shown(page, "It is in Lisbon.")).to_have_count(0)
    settled(page)
    expect(shown(page, "It is in Porto.")).to_have_count(1)
    say(page, "Are you sure?")
    expect(shown(page, "It is in Porto.")).to_have_count(2)
    settled(page)
    expect(shown(page, "It is in Lisbon.")).to_have_count(0)


@pytest.mark.req("S1-32")
def test_a_stopped_answer_keeps_its_output(person: Person, service: Service) -> None:
    service.do(person.view.create_thread(agent_id="patient", state_key="stopped"))
    page = person.open("/t/stopped")
    with service.holding():
        say(page, "Take your time")
        expect(shown(page, "I am taking")).to_be_visible()
        page.get_by_role("button", name="Stop").click()
        settled(page)
    expect(page.locator(".message-assistant")).to_contain_text("stopped")
    page.reload()
    expect(page.locator(".message-assistant")).to_contain_text("I am taking")


def test_a_failed_answer_shows_the_error_and_can_be_retried(person: Person) -> None:
    page = person.open()
    say(page, "fail")
    trouble = page.get_by_role("alert")
    expect(trouble).to_contain_text("the rehearsal agent failed, as requested")
    page.reload()
    expect(trouble).to_contain_text("the rehearsal agent failed, as requested")
    trouble.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("group", name="Versions of this answer")).to_contain_text("2/2")


def test_a_refused_message_returns_to_the_composer(person: Person, service: Service) -> None:
    service.do(person.view.create_thread(agent_id="patient", state_key="busy"))
    page = person.open("/t/busy")
    with service.holding():
        say(page, "Take your time")
        expect(shown(page, "I am taking")).to_be_visible()
        other = person.open()
        other.route("**/api/v1/ai/chat", lambda route: route.abort())
        say(other, "Are you there?")
        expect(other.get_by_role("status").filter(has_text="Not sent")).to_be_visible()
        expect(other.get_by_role("textbox", name="Message")).to_have_value("Are you there?")
        page.get_by_role("button", name="Stop").click()
        settled(page)


@pytest.mark.req("S1-32")
def test_two_tabs_show_the_same_conversation(person: Person, service: Service) -> None:
    thread = service.do(person.view.create_thread(agent_id="patient", state_key="shared"))
    service.do(thread.append("Hello from one", threadline.assistant("Hello, one.")))
    one, other = person.open("/t/shared"), person.open("/t/shared")
    expect(shown(other, "Hello, one.")).to_be_visible()
    with service.holding():
        say(one, "Take your time")
        expect(shown(other, "Take your time")).to_be_visible()
        expect(other.get_by_role("button", name="Stop")).to_be_visible()
    expect(shown(other, "and now I am done.")).to_be_visible()
    settled(other)
    assert other.locator(".message").count() == 4


def test_messages_from_elsewhere_appear_without_a_reload(person: Person, service: Service) -> None:
    page = person.open()
    say(page, "Hello")
    settled(page)
    expect(page.locator(".message")).to_have_count(2)
    state_key = page.url.rsplit("/", 1)[1]

    async def continue_in_a_terminal() -> None:
        thread = await person.view.thread(state_key)
        await thread.append("From the terminal", threadline.assistant("Heard."))

    service.do(continue_in_a_terminal())
    expect(shown(page, "From the terminal")).to_be_visible()
    expect(page.locator(".message")).to_have_count(4)


def test_sources_show_their_host(person: Person, service: Service) -> None:
    service.do(person.view.create_thread(agent_id="parrot", state_key="cited"))
    page = person.open("/t/cited")
    say(page, "Tell me")
    source = page.get_by_role("link", name="The documentation")
    expect(source).to_have_attribute("href", "https://threadline.example/docs")
    expect(source).to_have_attribute("rel", "noopener noreferrer")
    expect(source).to_contain_text("(threadline.example)")


def test_a_streamed_answer_is_announced_in_sentences(person: Person) -> None:
    page = person.open()
    say(page, "long 60")
    expect(page.locator("[data-announcer]")).to_contain_text("long answer")


def test_an_unreachable_service_is_reported_and_nothing_is_lost(person: Person) -> None:
    page = person.open()
    say(page, "Hello")
    expect(shown(page, "You said: “Hello”.")).to_be_visible()
    settled(page)
    expect(page.get_by_role("link", name="Hello")).to_be_visible()
    page.context.set_offline(True)
    expect(page.get_by_text("The service cannot be reached.")).to_be_visible()
    expect(shown(page, "You said: “Hello”.")).to_be_visible()
    page.context.set_offline(False)
    expect(page.get_by_text("The service cannot be reached.")).to_be_hidden()


@EVERY_SCREEN
def test_messages_sent_while_offline_return_to_the_composer(person: Person) -> None:
    page = person.open()
    say(page, "Hello")
    settled(page)
    page.context.set_offline(True)
    for text in ("Are you there?", "And now?"):
        with page.expect_event("requestfailed", lambda request: request.url.endswith("/ai/chat")):
            say(page, text)
        expect(page.locator(".trouble")).to_be_visible()
    page.context.set_offline(False)
    expect(page.get_by_role("textbox", name="Message")).to_have_value("Are you there?\n\nAnd now?")
    expect(page.locator(".message")).to_have_count(2)


def test_retrying_sends_a_message_that_never_arrived(person: Person) -> None:
    page = person.open()
    say(page, "Hello")
    settled(page)
    passing: list[str] = []
    page.route(
        "**/api/v1/ai/**",
        lambda route: route.continue_() if route.request.method in passing else route.abort(),
    )
    say(page, "Are you there?")
    retry = page.locator(".trouble").get_by_role("button", name="Try again")
    expect(retry).to_be_visible()
    # GET stays blocked, or the page would notice that the message was not stored.
    passing.append("POST")
    retry.click()
    expect(shown(page, "You said: “Are you there?”.")).to_be_visible()
    passing.append("GET")
    settled(page)
    expect(page.locator(".message")).to_have_count(4)


@EVERY_SCREEN
def test_a_new_message_scrolls_to_the_end(person: Person, service: Service) -> None:
    async def talk() -> None:
        thread = await person.view.create_thread(title="Long", state_key="up")
        await thread.append(*(f"Question {number}" for number in range(40)))

    service.do(talk())
    page = person.open("/t/up")
    expect(shown(page, "Question 39")).to_be_in_viewport()
    page.locator(".scroller").evaluate("scroller => scroller.scrollTo(0, 200)")
    expect(page.get_by_role("button", name="Jump to the newest message")).to_be_visible()
    say(page, "calculate 6*7")
    expect(shown(page, "6*7 is 42.")).to_be_in_viewport()


@EVERY_SCREEN
@pytest.mark.parametrize(("answer", "outcome"), [("Allow", "Here it is, stamped"), ("Deny", "You did not allow me")])
@pytest.mark.req("S1-32")
def test_a_pending_approval_survives_a_reload(person: Person, answer: str, outcome: str) -> None:
    page = person.open()
    say(page, "stamp hello")
    question = page.get_by_text("Allow stamp to run with this input?")
    expect(question).to_be_visible()
    settled(page)
    page.reload()
    expect(question).to_be_visible()
    page.get_by_role("button", name=answer).click()
    expect(shown(page, outcome)).to_be_visible()
    settled(page)
    expect(question).to_be_hidden()
    expect(page.locator(".message")).to_have_count(2)
