"""Personal data is masked for the tenants that chose it, wherever it could be stored."""

from __future__ import annotations

import msgspec
import pytest

import threadline
from threadline.core import events
from threadline.core.errors import SettingsInvalid
from threadline.settings import MaskingSettings, Settings, TenantMasking, load

ADDRESS = "bob@example.com"
CARD = "4111 1111 1111 1111"


async def answer(prompt: str) -> str:
    return f"I wrote to {ADDRESS} and charged {CARD}."


async def call(prompt: str) -> object:
    yield events.ToolCall("c", "send", {"to": ADDRESS})
    yield events.ToolResult("c", {"sent": [ADDRESS]})
    yield "Sent to bob@exam"
    yield events.Status(f"sending to {ADDRESS}")
    yield "ple.com."


@pytest.mark.req("R-07")
async def test_personal_data_is_masked_only_for_tenants_that_chose_it() -> None:
    masking = MaskingSettings(tenants={"acme": TenantMasking(("email",))})
    settings = Settings(database=":memory:", masking=masking)
    async with threadline.open(settings=settings, agents={"answer": answer, "call": call}) as tl:
        stored = {}
        for tenant in ("acme", "other"):
            me = tl.as_user("ada", tenant=tenant)
            thread = await me.create_thread(agent_id="call", title=f"About {ADDRESS}", metadata={"to": ADDRESS})
            reply = thread.ask(f"Write to {ADDRESS}, card {CARD}")
            turn = await reply.ended()
            assert turn.status == "executed"
            await me.contexts.set("call", f"I am {ADDRESS}")
            chunks = await tl.store.scoped(me.scope).chunks(turn.id)
            stored[tenant] = b"".join(
                [
                    *[message.parts_json for message in await thread.messages()],
                    *[chunk.json for chunk in chunks],
                    msgspec.json.encode(await thread.refresh()),
                    msgspec.json.encode(await me.contexts.get("call")),
                ]
            )
    assert ADDRESS.encode() not in stored["acme"]
    assert b"bob@exam" not in stored["acme"]
    assert CARD.encode() in stored["acme"]
    assert ADDRESS.encode() in stored["other"]
    assert b"masked" not in stored["other"]


@pytest.mark.req("R-07")
async def test_the_setting_without_a_tenant_is_for_every_other_tenant() -> None:
    masking = MaskingSettings(personal_data=("card",), tenants={"open": TenantMasking()})
    async with threadline.open(
        settings=Settings(database=":memory:", masking=masking, agent="answer"), agents={"answer": answer}
    ) as tl:
        texts = [
            (await (await tl.as_user("ada", tenant=tenant).create_thread()).ask("Well?")).text
            for tenant in ("local", "open")
        ]
    assert texts == [
        f"I wrote to {ADDRESS} and charged [masked:card].",
        f"I wrote to {ADDRESS} and charged {CARD}.",
    ]


def test_an_unknown_kind_is_an_error_that_names_it() -> None:
    with pytest.raises(SettingsInvalid, match="personal_data"):
        load(overrides={"masking": {"personal_data": ["passport"]}})
