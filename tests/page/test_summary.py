"""The summary that an agent is shown in the place of older messages, in the panel."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

import threadline
from tests.page.browser import Service
from tests.page.conftest import EVERY_SCREEN, Person
from tests.page.test_branches import details


async def create_long_thread(person: Person) -> None:
    thread = await person.view.create_thread(title="Long", state_key="long")
    for number in range(12):
        await thread.append(f"Question {number} {'word ' * 1_000}", threadline.assistant(f"Answer {number}"))


async def edit_elsewhere(person: Person) -> None:
    thread = await person.view.open_thread("long")
    await thread.set_summary("Written elsewhere.")


async def read_summary(person: Person) -> str:
    summary = await (await person.view.open_thread("long")).summary()
    assert summary is not None
    return summary.text


@pytest.mark.req("A-05")
@EVERY_SCREEN
def test_the_summary_is_written_read_and_edited(person: Person, service: Service) -> None:
    service.do(create_long_thread(person))
    page = person.open("/t/long")
    panel = details(page)
    expect(panel.get_by_text("The agent is shown every message.")).to_be_visible()
    panel.get_by_role("button", name="Summarise now").click()
    field = panel.get_by_label("Summary", exact=True)
    expect(field).to_have_value(re.compile("Question 0"))
    expect(panel.get_by_text("because no model could write a summary")).to_be_visible()
    field.fill("We chose Porto.")
    panel.get_by_role("button", name="Save", exact=True).click()
    expect(panel.get_by_text("edited by you")).to_be_visible()
    assert service.do(read_summary(person)) == "We chose Porto."
    # Written elsewhere while it is being edited: that text is not replaced unseen.
    field.fill("We chose Lisbon.")
    service.do(edit_elsewhere(person))
    panel.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("The summary was written again meanwhile.")).to_be_visible()
    assert service.do(read_summary(person)) == "Written elsewhere."
    panel.get_by_role("button", name="Cancel").click()
    expect(field).to_have_value("Written elsewhere.")
