"""In-chat commands: what each does to the place it comes from, and that a repeat does nothing more."""

from __future__ import annotations

import pytest

from tests.messaging.conftest import Stage, decisions, staging, texts
from threadline.core.channels import Binding
from threadline.core.commands import COMMANDS
from threadline.core.usage import Budget
from threadline.messaging.command_executor import HANDLERS
from threadline.ports import Store
from threadline.settings import AgentSettings, BudgetSettings
from threadline.testing.clock import ManualClock


@pytest.fixture
async def slack_user(stage: Stage) -> Stage:
    """Alice is linked on Slack and on WhatsApp, and has said something."""
    await stage.link(stage.slack)
    await stage.link(stage.whatsapp)
    await stage.say(stage.slack, "First")
    return stage


async def bound(stage: Stage, surface: str = "slack") -> Binding:
    (found,) = [each for each in await stage.as_user().bindings() if each.surface == surface]
    return found


async def said_here(stage: Stage, surface: str = "slack") -> list[str]:
    return texts(await stage.as_user().messages((await bound(stage, surface)).thread_id))


@pytest.mark.req("S3-24")
async def test_new_moves_this_place_and_no_other(slack_user: Stage) -> None:
    assert "Research" in await slack_user.say(slack_user.slack, "!new Research")
    await slack_user.say(slack_user.slack, "Second")
    await slack_user.say(slack_user.whatsapp, "Third")
    assert await said_here(slack_user) == ["Second", "Hello, you."]
    assert await slack_user.history() == ["First", "Hello, you.", "Third", "Hello, you."]
    assert slack_user.agent.prompt_texts(1) == [("user", "Second")]


async def test_branch_starts_with_this_chats_history(slack_user: Stage) -> None:
    await slack_user.say(slack_user.slack, "!branch Fork")
    await slack_user.say(slack_user.slack, "Second")
    assert await said_here(slack_user) == ["First", "Hello, you.", "Second", "Hello, you."]
    assert await slack_user.history() == ["First", "Hello, you."]


async def test_save_and_load_by_name_move_this_place_alone(slack_user: Stage) -> None:
    await slack_user.say(slack_user.slack, "!save start")
    await slack_user.say(slack_user.slack, "Second")
    assert "2 messages" in await slack_user.say(slack_user.slack, "!load start")
    await slack_user.say(slack_user.slack, "Another second")
    assert await said_here(slack_user) == ["First", "Hello, you.", "Another second", "Hello, you."]
    assert (await slack_user.history())[-2:] == ["Second", "Hello, you."]
    assert "Loaded: “start”" in await slack_user.say(slack_user.slack, "!context")
    # This place has a thread of its own now, so that one goes back itself.
    own = (await bound(slack_user)).thread_id
    await slack_user.say(slack_user.slack, "!load start")
    assert (await bound(slack_user)).thread_id == own
    assert await said_here(slack_user) == ["First", "Hello, you."]


@pytest.mark.req("S2-09")
async def test_load_without_a_name_offers_a_list(slack_user: Stage) -> None:
    await slack_user.say(slack_user.slack, "!save one")
    await slack_user.say(slack_user.slack, "!save two")
    offered = await slack_user.say(slack_user.slack, "!load")
    assert "1. one" in offered
    assert "2. two" in offered
    assert await slack_user.say(slack_user.slack, "7") == "Hello, you.", "a number outside the list is ordinary text"
    assert "two" in await slack_user.say(slack_user.slack, "2")
    assert await slack_user.say(slack_user.slack, "2") == "Hello, you.", "nothing is asked any more"
    await slack_user.say(slack_user.slack, "!load")
    assert "Nothing was changed" in await slack_user.say(slack_user.slack, "0")
    await slack_user.say(slack_user.slack, "!load")
    assert "Nothing was changed" in await slack_user.say(slack_user.slack, "!cancel")


async def test_a_question_is_asked_in_one_place(slack_user: Stage) -> None:
    await slack_user.say(slack_user.slack, "!save one")
    await slack_user.say(slack_user.slack, "!load")
    assert await slack_user.say(slack_user.whatsapp, "1") == "Hello, you."
    assert "one" in await slack_user.say(slack_user.slack, "1")


async def test_chats_lists_and_a_number_opens(slack_user: Stage) -> None:
    await slack_user.say(slack_user.slack, "!new Research")
    offered = await slack_user.say(slack_user.slack, "!chats")
    assert "Research" in offered
    number = next(line.split(".")[0] for line in offered.splitlines() if "First" in line)
    assert "2 messages" in await slack_user.say(slack_user.slack, number)
    assert (await bound(slack_user)).thread_id == (await slack_user.home()).id


async def test_open_takes_a_title_an_id_or_a_key(slack_user: Stage) -> None:
    home = await slack_user.home()
    await slack_user.say(slack_user.slack, "!new Research")
    research = (await bound(slack_user)).thread_id
    for wanted, thread_id in ((home.id, home.id), ("research", research), (home.state_key, home.id)):
        await slack_user.say(slack_user.slack, f"!open {wanted}")
        assert (await bound(slack_user)).thread_id == thread_id
    assert "did not work" in await slack_user.say(slack_user.slack, "!open nothing of this name")


async def test_another_users_chat_cannot_be_opened(slack_user: Stage) -> None:
    bob = await slack_user.threadline.as_user("bob", tenant=slack_user.tenant_id).create_thread(title="Private")
    for wanted in (bob.id, bob.info.state_key, "Private"):
        unknown = (await slack_user.say(slack_user.slack, "!open nobody")).replace("nobody", "X")
        assert (await slack_user.say(slack_user.slack, f"!open {wanted}")).replace(wanted, "X") == unknown


async def test_clear_asks_first_and_keeps_the_old(slack_user: Stage) -> None:
    home = await slack_user.home()
    assert "!yes" in await slack_user.say(slack_user.slack, "!clear")
    assert "Nothing was changed" in await slack_user.say(slack_user.slack, "!no")
    assert (await bound(slack_user)).thread_id == home.id
    await slack_user.say(slack_user.slack, "!clear")
    assert home.id in await slack_user.say(slack_user.slack, "!yes")
    assert await said_here(slack_user) == []
    assert await slack_user.history() == ["First", "Hello, you."]
    assert "no open question" in await slack_user.say(slack_user.slack, "!yes")


async def test_undo_rename_archive_and_context(slack_user: Stage) -> None:
    await slack_user.say(slack_user.slack, "Second")
    assert "2 messages" in await slack_user.say(slack_user.slack, "!undo")
    assert await slack_user.history() == ["First", "Hello, you."]
    await slack_user.say(slack_user.slack, "!rename Better name")
    await slack_user.say(slack_user.slack, "!archive")
    home = await slack_user.home()
    assert (home.title, home.archived_at is not None) == ("Better name", True)
    context = await slack_user.say(slack_user.slack, "!context")
    assert home.id in context
    assert "2 messages" in context


@pytest.mark.req("C-06")
async def test_the_model_of_a_chat_is_shown_and_chosen_among_those_that_its_agent_offers(
    store: Store, tenant_id: str, clock: ManualClock
) -> None:
    agents = {"scripted": AgentSettings("rehearsal", "small", settings={"models": ["large"]})}
    async with staging(store, tenant_id, clock, agents=agents) as stage:
        await stage.link(stage.slack)
        shown = await stage.say(stage.slack, "!model")
        assert shown == "Agent `scripted`, model `small`. You can choose `small`, `large`."
        assert "must be one of small, large" in await stage.say(stage.slack, "!model huge")
        assert "large" in await stage.say(stage.slack, "!model large")
        await stage.say(stage.slack, "Hello")
        assert stage.agent.prompts[-1].model == "large"
        (turn,) = await stage.turns()
        assert (turn.provider, turn.model) == ("rehearsal", "large")


@pytest.mark.req("C-07")
async def test_a_used_up_budget_is_answered_with_one_sentence_and_no_model(
    store: Store, tenant_id: str, clock: ManualClock
) -> None:
    budgets = BudgetSettings(user=Budget(tokens_per_day=20))
    async with staging(store, tenant_id, clock, budgets=budgets) as stage:
        await stage.link(stage.slack)
        assert await stage.say(stage.slack, "One") == "Hello, you."
        assert "is used up" in await stage.say(stage.slack, "The agent reports 12 tokens before it says anything")
        told = await stage.say(stage.slack, "Three")
        assert told.startswith("Your budget of 20 tokens a day is used up: it renews on")
        assert (told.endswith("UTC."), len(stage.agent.prompts)) == (True, 2)
        assert (await stage.turns())[0].status == "denied_budget"
        assert "chats" in await stage.say(stage.slack, "!help")


async def test_help_hints_and_misuse_do_nothing(slack_user: Stage) -> None:
    shown = await slack_user.say(slack_user.slack, "!help")
    assert all(f"!{spec.name}" in shown for spec in COMMANDS if "private" in spec.where and not spec.is_hidden)
    assert "!new" in await slack_user.say(slack_user.slack, "!neww")
    assert "needs" in await slack_user.say(slack_user.slack, "!open")
    assert "already linked" in await slack_user.say(slack_user.slack, "!link AAAA0000")
    assert "alice" in await slack_user.say(slack_user.slack, "!whoami")
    assert await slack_user.history() == ["First", "Hello, you."]
    assert len(slack_user.agent.prompts) == 1


@pytest.mark.req("S3-17")
@pytest.mark.parametrize("command", ["!new Once", "!branch Once", "!save Once", "!undo"])
async def test_a_command_delivered_again_acts_once(small_stage: Stage, command: str) -> None:
    await small_stage.link(small_stage.slack)
    await small_stage.say(small_stage.slack, "First")
    await small_stage.say(small_stage.slack, "Second")
    body = small_stage.slack.write(command)
    told = await small_stage.slack.deliver_often(body, 20)
    assert sorted(decision for each in told for decision in decisions(each)) == ["command"] + ["duplicate"] * 19
    await small_stage.slack.replies(3)
    counts = await small_stage.system.row_counts()
    assert counts["threads"] == (2 if command in ("!new Once", "!branch Once") else 1)
    assert len(await small_stage.outbox()) == 3
    assert len(await small_stage.history()) == (2 if command == "!undo" else 4)


async def test_what_a_command_could_not_do_leaves_nothing_but_its_answer(small_stage: Stage) -> None:
    await small_stage.link(small_stage.slack)
    before = await small_stage.system.row_counts()
    assert "did not work" in await small_stage.say(small_stage.slack, "!load nothing of this name")
    after = await small_stage.system.row_counts()
    assert {table for table in after if after[table] != before[table]} == {"inbox", "outbox"}


def test_every_command_of_a_chat_has_a_handler() -> None:
    answers, account = {"yes", "no"}, {"stop", "link", "unlink", "whoami", "model"}
    assert set(HANDLERS) | answers | account == {spec.name for spec in COMMANDS if "private" in spec.where}
