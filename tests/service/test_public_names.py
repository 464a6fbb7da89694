"""What docs/channels/with-a-public-address.md says that a webhook is answered with, by a service as it describes it."""

from __future__ import annotations

import pytest

from tests.conftest import open_database
from tests.service.running_service import serving
from threadline.bootstrap import Threadline
from threadline.core.threads import Scope
from threadline.settings import ServiceSettings, Settings, VaultSettings
from threadline.testing.clock import ManualClock
from threadline.vault import new_key

WEBHOOK = "/api/v1/tenants/local/channels/slack/webhook"
SLACK = {"signing_secret": "8f742231b10e8888abcd99yyyzzz85a5", "bot_token": "xoxb-1765-1987-pdFZKVeTuE8"}


@pytest.mark.req("H-04")
@pytest.mark.parametrize(
    ("has_authentication", "has_credentials", "status"), [(False, True, 421), (True, False, 404), (True, True, 401)]
)
async def test_a_webhook_under_a_public_name_is_answered_as_the_page_says(
    clock: ManualClock, *, has_authentication: bool, has_credentials: bool, status: int
) -> None:
    store = await open_database(":memory:", clock=clock)
    settings = Settings(
        service=ServiceSettings(authentication=has_authentication), vault=VaultSettings(keys={"first": new_key()})
    )
    threadline = Threadline(store, settings, clock)
    if has_credentials:
        await threadline.messaging.credentials.put(Scope("local", "root", "admin"), "slack", SLACK)
    async with serving(threadline) as client:
        # As curl sends it.
        headers = {"host": "threadline.example.com", "content-type": "application/x-www-form-urlencoded"}
        answer = await client.http.post(WEBHOOK, content=b"{}", headers=headers)
    assert answer.status_code == status
    await store.close()
