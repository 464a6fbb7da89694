"""The normalizer removes secrets from a stream of events, whatever comes between their pieces."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.masking.secret_samples import BODY, SECRETS
from tests.core.masking.texts import cut_texts
from tests.core.strategies import transcripts
from threadline.core import events, parts
from threadline.core.event_fold import Fold
from threadline.core.event_normalizer import EventNormalizer
from threadline.core.events import Event
from threadline.core.masking import SecretMasker
from threadline.core.messages import NewMessage
from threadline.core.parts import TextPart
from threadline.core.sealing import Sealer

MASKER = SecretMasker()
SECRET = f"ghp_{BODY[:36]}"
BETWEEN: list[Event] = [
    events.Status("working"),
    events.Usage(1, 2),
    events.Source("s", "https://example.org"),
    events.SourceDocument("d", "application/pdf", "A report"),
    events.File("image/png", "data:image/png;base64,AA=="),
    events.Data("progress", {"done": 1}),
    events.MessageMetadata({"model": "m"}),
    events.ToolResult("c", "found", preliminary=True),
    events.ToolError("c", "no"),
    events.ToolInputDelta("c", "1"),
]


def published(*given: Event) -> list[Event]:
    normalizer, fold = EventNormalizer(MASKER), Fold()
    normalized = [shown for event in given for shown in normalizer.add(event)] + list(normalizer.flush())
    return [shown for event in normalized for shown in fold.add(event)]


def shown_text(found: list[Event]) -> str:
    return "".join(event.text for event in found if isinstance(event, events.TextDelta))


@pytest.mark.req("R-07", "S1-21")
@pytest.mark.parametrize("between", BETWEEN, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize(("kind", "before", "secret", "after"), SECRETS)
def test_an_event_between_two_deltas_lets_no_secret_through(
    between: Event, kind: str, before: str, secret: str, after: str
) -> None:
    whole = f"a {before}{secret}{after} b"
    middle = len(whole) - len(after) - 2 - len(secret) // 2
    found = published(events.TextDelta(whole[:middle]), between, events.TextDelta(whole[middle:]))
    assert shown_text(found) == MASKER.mask_text(whole)


@pytest.mark.req("R-07")
@given(cut_texts(), st.lists(st.sampled_from(BETWEEN), max_size=4))
def test_events_between_deltas_change_nothing_in_the_text(pieces: list[str], between: list[Event]) -> None:
    mixed: list[Event] = [events.TextDelta(piece) for piece in pieces]
    for number, event in enumerate(between):
        mixed.insert((number * 7) % (len(mixed) + 1), event)
    sound = Fold()
    sound.add(events.TextDelta("".join(pieces)))
    whole = "".join(part.text for part in sound.parts() if isinstance(part, TextPart))
    assert shown_text(published(*mixed)) == MASKER.mask_text(whole)


@pytest.mark.req("R-07")
@given(transcripts)
def test_sealing_a_normalized_reply_masks_nothing_more(given: list[Event]) -> None:
    normalizer, fold = EventNormalizer(MASKER), Fold()
    for event in given:
        for normalized in normalizer.add(event):
            fold.add(normalized)
    for normalized in normalizer.flush():
        fold.add(normalized)
    if fold.parts():
        sealed = Sealer(masker=MASKER).message(NewMessage("assistant", fold.parts()))
        assert sealed.parts_json == parts.encode(fold.parts())


def test_a_status_is_not_delayed_by_text_that_is_held_back() -> None:
    normalizer = EventNormalizer(MASKER)
    assert list(normalizer.add(events.TextDelta("the key is gh"))) == [events.TextDelta("the key is ")]
    assert list(normalizer.add(events.Status("looking"))) == [events.Status("looking")]
    assert list(normalizer.add(events.StepStart())) == [events.TextDelta("gh"), events.StepStart()]


@pytest.mark.req("S1-20", "R-07")
def test_a_final_text_that_completes_a_secret_is_masked_and_sends_the_remainder() -> None:
    found = published(events.TextDelta(f"It is {SECRET[:12]}"), events.FinalText(f"It is {SECRET}."))
    assert found == [events.TextDelta("It is "), events.TextDelta("[masked:github-token].")]
    assert published(events.TextDelta("the gh"), events.FinalText(""))[-1] == events.TextDelta("gh")


@pytest.mark.req("C-02", "R-07")
def test_a_long_tool_input_is_streamed_while_it_is_written() -> None:
    text = json.dumps({"path": "a.py", "content": "x = 1\n" * 200, "password": "hunter2", "n": [1, 2]})
    pieces = [text[at : at + 7] for at in range(0, len(text), 7)]
    found = published(
        events.ToolInputStart("c", "write"),
        *[events.ToolInputDelta("c", piece) for piece in pieces],
        events.ToolCall("c", "write", json.loads(text)),
    )
    deltas = [event.text for event in found if isinstance(event, events.ToolInputDelta)]
    assert len(deltas) > 150
    assert json.loads("".join(deltas)) == {**json.loads(text), "password": "[masked:password]"}


@pytest.mark.req("R-07", "S1-21")
@pytest.mark.parametrize(
    "given",
    [
        {"authorization": "Bearer abc", "url": "https://example.org"},
        {"note": f"use {SECRET} please", "more": "text"},
        {"password": 12345678},
        {"secret": {"inner": ["hunter2-hunter2"]}},
        {"name": "Authorization", "value": "hunter2-hunter2"},
        {"value": "hunter2-hunter2", "name": "Authorization"},
        {"headers": [{"name": "X-Api-Key", "value": "hunter2-hunter2"}]},
        {"text": 'a "password": "hunter2-hunter2" b'},
        {"tok\u0065n": "hunter2-hunter2"},
        [{"password": "hunter2-hunter2"}],
        "hunter2 password=hunter2-hunter2",
    ],
)
def test_no_split_of_a_tool_input_shows_a_secret(given: object) -> None:
    for text in (json.dumps(given), json.dumps(given, indent=2), json.dumps(given).replace("token", "tok\\u0065n")):
        for size in (1, 2, 5, len(text)):
            pieces = [text[at : at + size] for at in range(0, len(text), size)]
            found = published(
                events.ToolInputStart("c", "call"), *[events.ToolInputDelta("c", piece) for piece in pieces]
            )
            shown = "".join(event.text for event in found if isinstance(event, events.ToolInputDelta))
            assert "hunter2" not in shown
            assert "12345678" not in shown
            assert "Bearer abc" not in shown
            assert SECRET[4:20] not in shown


@given(st.text(alphabet='{}[]":,\\ax1 \n', max_size=60), st.integers(1, 9))
def test_any_text_can_be_fed_as_a_tool_input(text: str, size: int) -> None:
    published(
        events.ToolInputStart("c", "call"),
        *[events.ToolInputDelta("c", text[at : at + size]) for at in range(0, len(text), size)],
    )
