"""Linking accounts on platforms with users: codes that work once, links that end from either side, unlinked senders."""

from __future__ import annotations

import pytest

from tests.messaging.conftest import Stage, decisions
from threadline.core.threads import Scope
from threadline.testing.platforms import FakePlatform


async def made_code(stage: Stage, user: str = "alice", platform: str | None = None) -> str:
    return (await stage.threadline.messaging.links.new_code(Scope(stage.tenant_id, user), platform)).code


async def acts(stage: Stage) -> list[str]:
    return [act.act for act in await stage.system.acts()]


async def send_code(stage: Stage, fake: FakePlatform, code: str, sender: str | None = None) -> tuple[str, str]:
    """What became of it, and what the sender was told."""
    before = len(fake.sent)
    told = await fake.say(f"!link {code}", sender)
    assert told.status == 200
    return decisions(told)[0], (await fake.replies(before + 1))[before].text


@pytest.mark.req("S3-15")
async def test_a_code_links_the_account_that_sends_it(stage: Stage) -> None:
    code = await made_code(stage)
    assert len(code) == 8
    decision, said = await send_code(stage, stage.slack, f"{code[:4].lower()}-{code[4:]}")
    assert (decision, "linked now" in said) == ("linked", True)
    assert await stage.say(stage.slack, "Hello") == "Hello, you."
    link = await stage.system.link("slack", stage.slack.person)
    assert link is not None
    assert (link.owner_id, link.state) == ("alice", "verified")
    assert await acts(stage) == ["link.made"] + ["credentials.set"] * 3


@pytest.mark.req("S3-15")
async def test_a_code_works_once(stage: Stage) -> None:
    code = await made_code(stage)
    assert (await send_code(stage, stage.slack, code))[0] == "linked"
    assert (await send_code(stage, stage.slack, code, "U2002"))[0] == "link_refused"
    assert await stage.system.link("slack", "U2002") is None


@pytest.mark.req("S3-15", "S3-17")
async def test_a_code_delivered_again_changes_nothing(small_stage: Stage) -> None:
    code = await made_code(small_stage)
    body = small_stage.slack.write(f"!link {code}")
    told = await small_stage.slack.deliver_often(body, 10)
    found = sorted(decision for each in told for decision in decisions(each))
    # A delivery after the link exists is a linked user's command that was already executed.
    assert (found.count("linked"), found.count("duplicate")) == (1, 9)
    assert len(await small_stage.outbox()) == 1


@pytest.mark.req("S3-15")
async def test_a_code_expires(small_stage: Stage) -> None:
    code = await made_code(small_stage)
    small_stage.clock.advance(600)
    assert (await send_code(small_stage, small_stage.telegram, code))[0] == "link_refused"


@pytest.mark.req("S3-15")
async def test_a_code_for_one_platform_works_on_no_other(small_stage: Stage) -> None:
    code = await made_code(small_stage, platform="telegram")
    assert (await send_code(small_stage, small_stage.slack, code))[0] == "link_refused"
    assert (await send_code(small_stage, small_stage.telegram, code))[0] == "linked"


@pytest.mark.req("S3-15", "S3-05")
async def test_a_code_of_another_tenant_is_unknown_here(small_stage: Stage) -> None:
    other_tenant = Scope(f"{small_stage.tenant_id}-abroad", "alice")
    code = (await small_stage.threadline.messaging.links.new_code(other_tenant)).code
    assert (await send_code(small_stage, small_stage.slack, code))[0] == "link_refused"


@pytest.mark.req("S3-15")
async def test_a_sender_may_guess_a_few_times_and_then_has_to_wait(stage: Stage) -> None:
    told = [(await send_code(stage, stage.slack, f"AAAA000{number}"))[0] for number in range(7)]
    assert told == ["link_refused"] * 5 + ["link_limited"] * 2
    code = await made_code(stage)
    assert (await send_code(stage, stage.slack, code))[0] == "link_limited"
    assert (await send_code(stage, stage.slack, code, "U2002"))[0] == "linked", "others are not held up"
    stage.clock.advance(601)
    assert (await send_code(stage, stage.slack, await made_code(stage)))[0] == "linked"


@pytest.mark.req("S3-15")
async def test_unlinking_from_the_platform(stage: Stage) -> None:
    await stage.link(stage.slack)
    assert "no longer linked" in await stage.say(stage.slack, "!unlink")
    assert await stage.system.link("slack", stage.slack.person) is None
    assert decisions(await stage.slack.say("Still there?")) == ["denied_unverified"]
    assert (await acts(stage))[0] == "link.removed"


@pytest.mark.req("K-09", "S3-15")
@pytest.mark.parametrize("platform", ["slack", "telegram", "whatsapp"])
async def test_a_disabled_user_is_not_answered_until_an_administrator_links_them_again(
    stage: Stage, platform: str
) -> None:
    fake: FakePlatform = getattr(stage, platform)
    code = await made_code(stage)
    await stage.link(fake)
    assert await stage.say(fake, "Hello") == "Hello, you."
    admin = Scope(stage.tenant_id, "root", "admin")
    users = stage.threadline.administration(admin).users
    await users.disable("alice")
    assert decisions(await fake.say("Hello again"))[0].startswith("denied")
    assert decisions(await fake.say(f"!link {code}")) == ["link_refused"], "codes end too"
    await users.enable("alice")
    assert decisions(await fake.say("And now?"))[0].startswith("denied")
    assert decisions(await fake.say(f"!link {await made_code(stage)}")) == ["link_refused"]
    await stage.threadline.messaging.links.put(admin, platform, fake.person, "alice", revoked=False)
    assert decisions(await fake.say("And now?")) == ["accepted"]


@pytest.mark.req("S3-15")
async def test_unlinking_over_http_and_only_ones_own(stage: Stage) -> None:
    await stage.link(stage.slack)
    which = {"platform": "slack", "platformUserId": stage.slack.person}
    links = "/api/v1/channels/links"
    other = await stage.http.delete(links, params=which, headers=stage.caller("bob"))
    assert (other.status_code, other.json()) == (200, {"ok": True})
    assert await stage.system.link("slack", stage.slack.person) is not None
    listed = await stage.http.get(links, headers=stage.caller())
    assert [each["platformUserId"] for each in listed.json()["links"]] == [stage.slack.person]
    assert (await stage.http.get(links, headers=stage.caller("bob"))).json() == {"links": []}
    assert (await stage.http.delete(links, params=which, headers=stage.caller())).status_code == 200
    assert await stage.system.link("slack", stage.slack.person) is None
    assert (await acts(stage))[0] == "link.removed"


@pytest.mark.req("S3-15")
async def test_a_code_over_http(small_stage: Stage) -> None:
    made = await small_stage.http.post("/api/v1/channels/links/code", json={}, headers=small_stage.caller())
    assert made.status_code == 201
    assert (await send_code(small_stage, small_stage.whatsapp, made.json()["code"]))[0] == "linked"
    wrong = {"platform": "fax"}
    refused = await small_stage.http.post("/api/v1/channels/links/code", json=wrong, headers=small_stage.caller())
    assert refused.status_code == 400


async def test_linking_again_moves_the_account_and_leaves_the_threads_apart(stage: Stage) -> None:
    await stage.link(stage.slack)
    await stage.say(stage.slack, "I am alice")
    await stage.say(stage.slack, "!unlink")
    assert (await send_code(stage, stage.slack, await made_code(stage, "bob")))[0] == "linked"
    await stage.say(stage.slack, "I am bob")
    assert await stage.history("alice") == ["I am alice", "Hello, you."]
    assert await stage.history("bob") == ["I am bob", "Hello, you."]
    assert stage.agent.prompt_texts() == [("user", "I am bob")]


async def test_only_administrators_link_and_bar_without_a_code(small_stage: Stage) -> None:
    sender = small_stage.slack.person
    wanted = {"platform": "slack", "platformUserId": sender, "userId": "alice"}
    links = "/api/v1/channels/links"
    refused = await small_stage.http.post(links, json=wanted, headers=small_stage.caller("alice"))
    assert refused.status_code == 403
    admin = small_stage.caller("root", "admin")
    assert (await small_stage.http.post(links, json=wanted, headers=admin)).json()["state"] == "verified"
    assert await small_stage.say(small_stage.slack, "Hello") == "Hello, you."
    barred = await small_stage.http.post(links, json={**wanted, "revoked": True}, headers=admin)
    assert barred.json()["state"] == "revoked"
    assert decisions(await small_stage.slack.say("Hello?")) == ["denied_unverified"]
    assert (await send_code(small_stage, small_stage.slack, await made_code(small_stage)))[0] == "link_refused"
    which = {"platform": "slack", "platformUserId": sender}
    for _ in range(2):
        await small_stage.http.delete(links, params=which, headers=small_stage.caller("alice"))
    assert (await send_code(small_stage, small_stage.slack, await made_code(small_stage)))[0] == "link_refused"
    assert (await acts(small_stage))[:2] == ["link.revoked", "link.made"]
    await small_stage.http.delete(links, params=which, headers=admin)
    assert (await send_code(small_stage, small_stage.slack, await made_code(small_stage)))[0] == "linked"


async def test_the_linking_hint_is_not_sent_in_shared_places(small_stage: Stage) -> None:
    message, mention = small_stage.slack.mention("Who am I?")
    assert decisions(await small_stage.slack.deliver(mention)) == ["denied_unverified"]
    await small_stage.slack.deliver(message)
    await small_stage.threadline.messaging.outbox_worker.deliver(small_stage.tenant_id)
    assert small_stage.slack.sent == []
