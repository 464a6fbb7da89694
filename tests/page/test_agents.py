"""Agents and models on the page: chosen before the first message or later, and named at each reply."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.page.browser import Service
from tests.page.conftest import Person, say, settled
from threadline.core.channels import Agent as AgentRow
from threadline.core.threads import Scope


@pytest.fixture
def porter(service: Service, person: Person) -> Iterator[None]:
    """An agent with two models."""
    agents = service.threadline.tenant_agents(Scope("local", "root", "admin"))
    row = AgentRow(id="porter", provider="rehearsal", name="Porter", model="small", settings={"models": ["large"]})
    service.do(agents.create(row))
    yield
    service.do(agents.delete("porter"))


@pytest.mark.usefixtures("porter")
def test_agent_and_model_can_be_changed_within_a_thread(person: Person) -> None:
    page = person.open()
    page.get_by_role("combobox", name="Agent").select_option("Porter")
    page.get_by_role("combobox", name="Model").select_option("large")
    say(page, "Hello")
    settled(page)
    byline = page.locator(".message-assistant .byline")
    expect(byline.first).to_contain_text("Porter")
    expect(byline.first).to_contain_text("large")
    expect(page.get_by_role("combobox", name="Model")).to_have_value("large")
    page.get_by_role("combobox", name="Model").select_option("default")
    say(page, "Hello again")
    expect(byline.nth(1)).to_contain_text("small")
    settled(page)
    page.get_by_role("combobox", name="Agent").select_option("parrot")
    expect(page.get_by_role("combobox", name="Model")).to_be_hidden()
    say(page, "Repeat me")
    expect(byline.nth(2)).to_contain_text("parrot")
    settled(page)
    page.reload()
    expect(page.get_by_role("combobox", name="Agent")).to_have_value("parrot")
    expect(byline.locator(".who")).to_have_text(["Porter", "Porter", "parrot"])
