"""Verification of the bot by comparing emojis, with the client library that Element uses."""

from __future__ import annotations

import logging
from typing import Any

import nio
import pytest
import vodozemac

from tests.matrix.bot_fixtures import World
from tests.matrix.js_people import js_person
from tests.matrix.people import MatrixUser
from threadline.matrix.short_codes import Device, ShortCodeExchange, VerificationFailed


def shown_by_bot(caplog: pytest.LogCaptureFixture) -> str:
    (found,) = [each.getMessage() for each in caplog.records if "compare" in each.getMessage()]
    return found.partition("compare ")[2]


def as_written(sas: dict[str, Any]) -> str:
    emojis = " ".join(emoji for emoji, _ in sas["emoji"])
    return f"{emojis} ({'-'.join(map(str, sas['decimal']))})"


def without_names(code: str) -> str:
    """The emojis and the numbers: libraries name some emojis differently."""
    emojis, _, numbers = code.rpartition(" (")
    return " ".join(word for word in emojis.split() if not word.isascii()) + f" ({numbers}"


def is_verified(trust: dict[str, Any]) -> bool:
    return bool(trust["verified"] and trust["verifiedDevices"] == [True])


@pytest.mark.req("M-01")
@pytest.mark.parametrize("way", ["in an encrypted room", "to the device"])
async def test_a_client_verifies_the_bot_by_comparing_emojis(
    world: World, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    caplog.set_level(logging.INFO, "threadline.matrix")
    async with js_person(world.synapse, f"ada-{world.tag}") as ada, world.running() as bot:
        room = (await ada.do("room", world.bot_id))["room"]
        await ada.hear(room, world.bot_id, "You can write here")
        assert not is_verified(await ada.do("trust", world.bot_id))
        where = [room, None] if way.startswith("in") else [None, bot.homeserver.device_id]
        sas = await ada.do("verify", world.bot_id, *where, True)
        assert sas["end"] == "verified"
        assert without_names(shown_by_bot(caplog)) == as_written(sas)
        if way.startswith("in"):
            heard = await ada.hear(room, world.bot_id, "asks you to compare")
            (notice,) = [each["body"] for each in heard["messages"] if "asks you to compare" in (each["body"] or "")]
            assert notice.endswith(shown_by_bot(caplog))
        # Its signature of the bot's identity goes to the homeserver first.
        await ada.until("trust", world.bot_id, is_done=is_verified)
        await ada.do("say", room, "Still me?")
        await ada.hear(room, world.bot_id, "1. You said: Still me?")


@pytest.mark.req("M-01")
async def test_a_code_that_does_not_match_ends_the_verification_and_another_can_begin(world: World) -> None:
    async with js_person(world.synapse, f"ada-{world.tag}") as ada, world.running():
        room = (await ada.do("room", world.bot_id))["room"]
        await ada.hear(room, world.bot_id, "You can write here")
        assert (await ada.do("verify", world.bot_id, room, None, False))["end"] != "verified"
        assert not is_verified(await ada.do("trust", world.bot_id))
        assert (await ada.do("verify", world.bot_id, room, None, True))["end"] == "verified"


@pytest.mark.req("M-01")
async def test_the_bot_does_not_answer_a_person_who_may_not_talk_to_it(world: World) -> None:
    alice, eve = await world.person("alice"), await world.person("eve")
    world.change(users=(alice.id,))
    got: dict[str, list[str]] = {alice.id: [], eve.id: []}
    async with world.running() as bot:
        for user in (eve, alice):
            user.client.add_to_device_callback(
                lambda event, who=user.id: got[who].append(event.type), nio.ToDeviceEvent
            )
            await send(user, "m.key.verification.request", world.bot_id, bot.homeserver.device_id)
        await alice.until(lambda: "m.key.verification.ready" in got[alice.id], "an answer to Alice")
        # Steps are handled in order, and messages to a device arrive in order.
        await send(alice, "test.last", eve.id, eve.client.device_id)
        await eve.until(lambda: "test.last" in got[eve.id], "the last message")
        assert got[eve.id] == ["test.last"]


async def send(user: MatrixUser, kind: str, to: str, device_id: str) -> None:
    content = {"from_device": user.client.device_id, "methods": ["m.sas.v1"], "timestamp": 1, "transaction_id": user.id}
    sent = await user.client.to_device(nio.ToDeviceMessage(kind, to, device_id, content))
    assert isinstance(sent, nio.ToDeviceResponse), sent


OFFER = {
    "method": "m.sas.v1",
    "key_agreement_protocols": ["curve25519-hkdf-sha256"],
    "hashes": ["sha256"],
    "message_authentication_codes": ["hkdf-hmac-sha256.v2"],
}
ADA, BOT = Device("@ada:x", "A"), Device("@bot:x", "B")


@pytest.mark.parametrize("field", ["key_agreement_protocols", "hashes", "message_authentication_codes", "method"])
def test_an_offer_without_what_is_needed_is_refused(field: str) -> None:
    for wrong in (None, "x", ["md5"]):
        with pytest.raises(VerificationFailed, match="does not offer"):
            ShortCodeExchange("t", BOT, ADA, {**OFFER, field: wrong})


def test_a_key_that_cannot_be_read_and_macs_of_other_keys_end_the_verification() -> None:
    with pytest.raises(VerificationFailed, match="cannot be read"):
        ShortCodeExchange("t", BOT, ADA, OFFER).take_key({"key": "!"})
    exchange, theirs = ShortCodeExchange("t", BOT, ADA, OFFER), vodozemac.Sas()
    with pytest.raises(VerificationFailed, match="before the key"):
        exchange.check_macs({"mac": {"ed25519:A": "x"}}, {"ed25519:A": "key"})
    ours, _ = exchange.take_key({"key": theirs.public_key.to_base64()})
    secret = theirs.diffie_hellman(vodozemac.Curve25519PublicKey.from_base64(ours["key"]))
    info = "MATRIX_KEY_VERIFICATION_MAC@ada:xA@bot:xBt"
    given = {
        "mac": {"ed25519:A": secret.calculate_mac("key", f"{info}ed25519:A")},
        "keys": secret.calculate_mac("ed25519:A", f"{info}KEY_IDS"),
    }
    exchange.check_macs(given, {"ed25519:A": "key"})
    with pytest.raises(VerificationFailed, match="does not fit"):
        exchange.check_macs(given, {"ed25519:A": "another key"})
    with pytest.raises(VerificationFailed, match="no MAC of the device"):
        exchange.check_macs(given, {"ed25519:OTHER": "key"})
