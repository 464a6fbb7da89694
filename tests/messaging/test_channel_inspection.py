"""What `threadline channels doctor` finds by asking the platforms: each finding has the next step."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.messaging.conftest import Stage
from threadline.channels.slack_manifest import SCOPES
from threadline.core.threads import Scope
from threadline.testing.platforms import FakePlatform


@pytest.fixture
async def stage(small_stage: Stage) -> Stage:
    """Everything is as the documentation has it: webhooks of this tenant, and linked accounts."""
    for fake in (small_stage.slack, small_stage.telegram, small_stage.whatsapp):
        await small_stage.link(fake)
    return small_stage


async def findings(stage: Stage, *, is_public: bool = True) -> dict[str, str]:
    """Each finding with its next step, but for those about the stand-ins."""
    diagnosis = stage.threadline.messaging.open_diagnosis(
        stage.threadline.directory, stage.threadline.settings.agent, serves_public_names=is_public
    )
    found = await diagnosis.findings(stage.tenant_id)
    assert all("\n" not in finding.what + finding.remedy for finding in found)
    return {finding.what: finding.remedy for finding in found if "simulated" not in finding.what}


async def only(stage: Stage, *, is_public: bool = True) -> tuple[str, str]:
    (found,) = (await findings(stage, is_public=is_public)).items()
    return found


async def store(stage: Stage, fake: FakePlatform, secrets: Mapping[str, str]) -> None:
    admin = Scope(stage.tenant_id, "root", "admin")
    await stage.threadline.messaging.credentials.put(admin, fake.platform, secrets)


@pytest.mark.req("H-04")
async def test_a_set_up_as_documented_has_no_findings(stage: Stage) -> None:
    assert await findings(stage) == {}


@pytest.mark.req("H-04")
async def test_each_scope_that_a_slack_app_lacks_is_named_with_what_it_is_for(stage: Stage) -> None:
    stage.slack.scopes = sorted(SCOPES.keys() - {"im:history"})
    what, remedy = await only(stage)
    assert what == "the Slack app lacks the scope im:history, so the bot cannot hear direct messages"
    assert "threadline channels manifest slack" in remedy


@pytest.mark.req("H-04")
async def test_an_app_token_that_slack_refuses_is_found(stage: Stage) -> None:
    await store(stage, stage.slack, {**stage.slack.secrets, "app_token": "xapp-revoked"})
    what, remedy = await only(stage)
    assert what == "Slack refuses a Socket Mode connection: invalid_auth"
    assert "connections:write" in remedy


@pytest.mark.req("H-04")
async def test_a_public_name_without_authentication_is_explained_for_each_platform_that_delivers_to_one(
    stage: Stage,
) -> None:
    without_socket = {name: value for name, value in stage.slack.secrets.items() if name != "app_token"}
    await store(stage, stage.slack, without_socket)
    found = await findings(stage, is_public=False)
    assert len(found) == 3
    assert {what.split()[0].lower() for what in found} == {"slack", "telegram", "whatsapp"}
    assert all("421" in what for what in found)
    assert {remedy.partition(",")[0] for remedy in found.values()} == {
        "set authentication = true under [service] in threadline.toml"
    }
    # Over Socket Mode and by polling, nothing is delivered to an address.
    await store(stage, stage.slack, {name: stage.slack.secrets[name] for name in ("bot_token", "app_token")})
    stage.telegram.webhook = None
    await store(stage, stage.telegram, {"bot_token": stage.telegram.secrets["bot_token"]})
    assert [what.split()[0] for what in await findings(stage, is_public=False)] == ["whatsapp"]


@pytest.mark.req("H-04")
async def test_the_webhook_of_a_telegram_bot_is_asked_for(stage: Stage) -> None:
    telegram = stage.telegram
    webhook, telegram.webhook = telegram.webhook, None
    assert "only while they are polled" in (await only(stage))[0]
    telegram.webhook = "https://threadline.example.com/api/v1/tenants/other/channels/telegram/webhook"
    what, remedy = await only(stage)
    assert "not this tenant's webhook" in what
    assert f"/api/v1/tenants/{stage.tenant_id}/channels/telegram/webhook" in remedy
    telegram.webhook = webhook
    telegram.webhook_info = {"allowed_updates": ["message", "edited_message"]}
    assert (await only(stage))[0] == "Telegram does not deliver my_chat_member, callback_query"
    await store(stage, telegram, {"bot_token": telegram.secrets["bot_token"]})
    telegram.webhook_info = {}
    assert "no webhook_secret is stored" in (await only(stage))[0]


@pytest.mark.req("H-04")
@pytest.mark.parametrize(
    ("error", "fix"),
    [
        ("Wrong response from the webhook: 401 Unauthorized", "the secret word differs"),
        ("Wrong response from the webhook: 421 Misdirected Request", "set authentication = true"),
        ("Connection timed out", "check the address and the proxy"),
    ],
)
async def test_telegrams_last_error_is_explained_while_it_is_recent(stage: Stage, error: str, fix: str) -> None:
    now = int(stage.clock.now().timestamp())
    stage.telegram.webhook_info = {"last_error_message": error, "last_error_date": now - 60}
    what, remedy = await only(stage)
    assert what == f"Telegram's last delivery failed: {error}"
    assert fix in remedy
    stage.telegram.webhook_info["last_error_date"] = now - 86_400
    assert await findings(stage) == {}


@pytest.mark.req("H-04")
async def test_a_bot_that_gets_everything_in_groups_is_found(stage: Stage) -> None:
    stage.telegram.has_privacy_mode = False
    what, remedy = await only(stage)
    assert what.startswith("@threadline_fake_bot gets every message of its groups")
    assert "/setprivacy" in remedy


@pytest.mark.req("H-04")
async def test_the_permissions_and_the_end_of_a_whatsapp_token_are_asked_for(stage: Stage) -> None:
    whatsapp = stage.whatsapp
    whatsapp.permissions = ["whatsapp_business_management"]
    what, remedy = await only(stage)
    assert what == "the access token lacks whatsapp_business_messaging, so the bot cannot send replies"
    assert "threadline channels credentials set whatsapp" in remedy
    whatsapp.permissions.append("whatsapp_business_messaging")
    whatsapp.token_ends_at = int(stage.clock.now().timestamp()) + 3_600
    assert (await only(stage))[0] == "the access token expires within three days"


@pytest.mark.req("H-04")
async def test_what_meta_delivers_and_where_to_is_asked_for(stage: Stage) -> None:
    whatsapp = stage.whatsapp
    subscribed, whatsapp.subscribed_apps = whatsapp.subscribed_apps, []
    what, remedy = await only(stage)
    assert "not subscribed to the WhatsApp account 102290129340398" in what
    assert "/102290129340398/subscribed_apps" in remedy
    assert whatsapp.secrets["access_token"] not in remedy
    whatsapp.subscribed_apps = subscribed
    subscription = whatsapp.subscription
    assert subscription is not None
    for change, expected in (
        ({"fields": []}, "the webhook's field messages is not subscribed"),
        ({"active": False}, "Meta has switched the webhook off"),
        ({"callback_url": "https://old.example.com/hook"}, "not this tenant's webhook"),
    ):
        whatsapp.subscription = {**subscription, **change}
        assert expected in (await only(stage))[0]
    whatsapp.subscription = None
    assert (await only(stage))[0] == "Meta has no webhook for WhatsApp, so nothing arrives"
    whatsapp.subscription = subscription
    await store(stage, whatsapp, {**whatsapp.secrets, "app_secret": "wrong"})
    assert (await only(stage))[0] == "Meta does not accept the app secret, so deliveries are refused"


@pytest.mark.req("H-04")
async def test_a_platform_that_answers_nonsense_breaks_no_finding(stage: Stage) -> None:
    stage.telegram.webhook_info = {"allowed_updates": 7, "last_error_message": ["x"], "last_error_date": "now"}
    stage.whatsapp.permissions = []
    stage.whatsapp.subscription = {"object": 7, "callback_url": 7, "fields": 7}
    assert list(await findings(stage)) == ["Meta has no webhook for WhatsApp, so nothing arrives"]
