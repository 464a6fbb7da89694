"""Questions with buttons, judged by the platforms' official clients.

The clients' models accept what our codecs send, the clients themselves send the same to the fake platforms, and their
parsers read a press of the fake platforms as our codecs do. So each button is one that an official client could send.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import warnings
from dataclasses import astuple
from typing import Any
from urllib.parse import parse_qs

import httpx
import pytest
from slack_sdk.models.blocks import ActionsBlock, Block, ButtonElement, SectionBlock
from slack_sdk.signature import SignatureVerifier
from slack_sdk.web.async_client import AsyncWebClient
from telegram import Bot, InlineKeyboardMarkup, Message, Update
from telegram.constants import InlineKeyboardButtonLimit, MessageLimit

from tests.channels.test_oracles import (
    RedirectToFake,
    channel_for,
    perform,
)
from tests.channels.test_oracles import slack as slack
from tests.channels.test_oracles import telegram as telegram
from tests.channels.test_oracles import whatsapp as whatsapp
from threadline.core.approval_questions import ButtonAnswer, ChatQuestion, chat_question, read_button
from threadline.core.ids import new_id
from threadline.core.parts import Approval, ToolPart
from threadline.core.platform_messages import Arrival, Sent
from threadline.ports import Channel
from threadline.testing.platforms import FakePlatform, FakeSlack, FakeTelegram, FakeWhatsApp
from threadline.testing.platforms.platform import Reply
from threadline.testing.platforms.whatsapp import NUMBER_ID

with warnings.catch_warnings():
    # It calls itself deprecated in places that it imports on its own.
    warnings.simplefilter("ignore")
    from pywa.client import WhatsApp as PywaClient
    from pywa.types.callback import Button, CallbackButton

pytestmark = pytest.mark.req("A-04")
LIFETIME = dt.timedelta(hours=24)
LABELS = [("Allow", True), ("Don't allow", False)]


def question(*calls: tuple[str, Any]) -> ChatQuestion:
    waiting = [
        ToolPart(f"call_{n}", name, "approval-requested", json.dumps(given).encode(), approval=Approval(new_id()))
        for n, (name, given) in enumerate(calls)
    ]
    return chat_question(new_id(), waiting, LIFETIME)


SMALL = question(("stamp", {"text": "hello"}))
HOSTILE = {"text": "`*_~<@U1>&\x1b[31m" * 400, "more": ["😀"] * 900}
LARGE = question(*[(f"{'name' * 30}{number}", HOSTILE) for number in range(9)])
EVERY_SIZE = pytest.mark.parametrize("asked", [SMALL, LARGE], ids=["small", "large"])


async def send(platform: FakePlatform, asked: ChatQuestion) -> tuple[Arrival, Reply]:
    """Our codec sends the question to the person who wrote last: what the platform got."""
    channel = channel_for(platform)
    (arrival,) = channel.parse_webhook(platform.write("hi")).arrivals
    (payload,) = channel.render_question(asked)
    outcome = channel.parse_response(
        await perform(channel.build_request(platform.secrets, arrival.recipient, payload, "outbox-1"))
    )
    assert isinstance(outcome, Sent), "the platform refused it"
    (got,) = await platform.replies(1)
    return arrival, got


def answer_of(channel: Channel, body: bytes) -> ButtonAnswer | None:
    """What our codec reads of a press."""
    (arrival,) = channel.parse_webhook(body).arrivals
    assert arrival.kind == "answer"
    return read_button(arrival.text)


@EVERY_SIZE
async def test_slacks_models_and_client_agree_with_the_blocks(slack: FakeSlack, asked: ChatQuestion) -> None:
    arrival, got = await send(slack, asked)
    blocks = Block.parse_all(got.payload["blocks"])
    assert [type(block) for block in blocks] == [SectionBlock, ActionsBlock]
    assert isinstance(blocks[1], ActionsBlock)
    buttons = blocks[1].elements
    assert [type(button) for button in buttons] == [ButtonElement] * 2
    # Each `to_dict` checks the limits of its kind, and raises.
    assert [block.to_dict() for block in blocks] == got.payload["blocks"]
    assert [button.to_dict() for button in buttons] == got.payload["blocks"][1]["elements"]
    client = AsyncWebClient(token=slack.secrets["bot_token"], base_url=f"{slack.api}/")
    await client.chat_postMessage(channel=arrival.recipient, text=got.text, blocks=blocks)
    assert slack.sent[1].payload["blocks"] == got.payload["blocks"]


@pytest.mark.parametrize(("label", "approved"), LABELS)
async def test_slacks_verifier_accepts_a_press_that_carries_the_buttons_value(
    slack: FakeSlack, label: str, approved: bool
) -> None:
    _, got = await send(slack, SMALL)
    body = slack.press(got, label)
    headers = {name: value for name, value in slack.sign(body).items() if name.startswith("x-slack")}
    verifier = SignatureVerifier(slack.secrets["signing_secret"])
    # The time is the fake platform's.
    verifier.clock.now = lambda: float(headers["x-slack-request-timestamp"])  # type: ignore[method-assign]
    assert verifier.is_valid_request(body, headers)
    (action,) = json.loads(parse_qs(body.decode())["payload"][0])["actions"]
    pressed = ButtonElement(**{name: action[name] for name in ("text", "action_id", "value")})
    assert pressed.value == (SMALL.yes if approved else SMALL.no)
    assert answer_of(channel_for(slack), body) == ButtonAnswer(SMALL.token, approved)


@EVERY_SIZE
async def test_telegrams_models_and_bot_agree_with_the_keyboard(telegram: FakeTelegram, asked: ChatQuestion) -> None:
    arrival, got = await send(telegram, asked)
    keyboard = InlineKeyboardMarkup.de_json(got.payload["reply_markup"], None)
    assert keyboard.to_dict() == got.payload["reply_markup"]
    (row,) = keyboard.inline_keyboard
    for button in row:
        assert not button.api_kwargs, "what the SDK does not know, it keeps here"
        assert isinstance(button.callback_data, str)
        assert len(button.callback_data.encode()) <= InlineKeyboardButtonLimit.MAX_CALLBACK_DATA
    assert len(got.text.encode("utf-16-le")) // 2 <= MessageLimit.MAX_TEXT_LENGTH
    async with Bot(telegram.secrets["bot_token"], base_url=f"{telegram.api}/bot") as bot:
        message = await bot.send_message(int(arrival.recipient), got.text, reply_markup=keyboard)
        assert message.reply_markup == keyboard
        assert telegram.sent[1].payload["reply_markup"] == got.payload["reply_markup"]


@pytest.mark.parametrize(("label", "approved"), LABELS)
async def test_telegrams_parser_reads_a_press_and_its_bot_can_settle_it(
    telegram: FakeTelegram, label: str, approved: bool
) -> None:
    _, got = await send(telegram, SMALL)
    body = telegram.press(got, label)
    async with Bot(telegram.secrets["bot_token"], base_url=f"{telegram.api}/bot") as bot:
        pressed = Update.de_json(json.loads(body), bot).callback_query
        assert pressed is not None
        assert pressed.data == (SMALL.yes if approved else SMALL.no)
        assert isinstance(pressed.message, Message)
        assert str(pressed.message.message_id) == got.message_id
        assert answer_of(channel_for(telegram), body) == ButtonAnswer(SMALL.token, approved)
        assert await pressed.answer("Allowed.")
        edited = await pressed.edit_message_text("allowed")
        assert isinstance(edited, Message)
        assert edited.reply_markup is None
    assert [notice.text for notice in telegram.notices] == ["Allowed."]
    (edit,) = telegram.edits
    assert (edit.message_id, edit.text, edit.has_buttons) == (got.message_id, "allowed", False)


@EVERY_SIZE
async def test_whatsapps_client_sends_the_same_buttons(whatsapp: FakeWhatsApp, asked: ChatQuestion) -> None:
    _, got = await send(whatsapp, asked)
    body = got.payload["interactive"]["body"]["text"]

    def converse() -> None:
        with httpx.Client(transport=RedirectToFake(whatsapp.api)) as session:
            token = whatsapp.secrets["access_token"]
            client = PywaClient(phone_id=NUMBER_ID, token=token, session=session, validate_updates=False)
            buttons = [Button("Allow", asked.yes), Button("Don't allow", asked.no)]
            client.send_message(whatsapp.person, body, buttons=buttons)

    await asyncio.to_thread(converse)
    assert whatsapp.sent[1].payload["type"] == got.payload["type"]
    assert whatsapp.sent[1].payload["interactive"] == got.payload["interactive"]


@pytest.mark.parametrize(("label", "approved"), LABELS)
async def test_whatsapps_parser_reads_a_press(whatsapp: FakeWhatsApp, label: str, approved: bool) -> None:
    _, got = await send(whatsapp, SMALL)
    body = whatsapp.press(got, label)
    client = PywaClient(phone_id=NUMBER_ID, token="t", server=None, validate_updates=False)
    pressed = CallbackButton.from_update(client, json.loads(body))
    assert (pressed.title, pressed.data) == (label, SMALL.yes if approved else SMALL.no)
    assert pressed.reply_to_message is not None
    assert got.message_id in astuple(pressed.reply_to_message)
    assert answer_of(channel_for(whatsapp), body) == ButtonAnswer(SMALL.token, approved)
