"""What an agent is shown: the snapshot first, whole turns only, the request last and always."""

from __future__ import annotations

import datetime as dt
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.strategies import INJECTIONS, histories, stored, talk
from threadline.core.context import assemble, describe_prompt, plan_compaction
from threadline.core.errors import SettingsInvalid
from threadline.core.messages import Message
from threadline.core.parts import FilePart, TextPart, tool_part
from threadline.core.prompts import Prompt, PromptMessage, say, text_with_file_notes
from threadline.core.repair import INTERRUPTED, repair
from threadline.core.threads import Point
from threadline.core.tokens import total_tokens
from threadline.core.turns import CHANNELS, SURFACES, Summary
from threadline.core.windows import REFUSED_TEXT, Window, windows

TWELVE = Window(turns=12)
EVERYTHING = Window()


def lines(prompt: Prompt) -> list[tuple[str, str]]:
    return [(message.role, text_with_file_notes(message.parts)) for message in prompt.messages]


def shown(prompt: Prompt) -> list[str]:
    """The window alone, without what stands before it and without the request."""
    return [text_with_file_notes(message.parts) for message in prompt.messages[:-1] if message.role != "system"]


def asked(history: list[Message], text: str = "now") -> Message:
    seq = history[-1].seq + 1 if history else 0
    return stored("user", text, seq=seq, turn_id="turn-now", id="now")


def summary(seq: int) -> Summary:
    return Summary(Point("t", seq), "they greeted", dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "model")


@pytest.mark.req("S0-04")
def test_the_snapshot_is_first_then_the_system_prompt_the_summary_the_window_and_the_request() -> None:
    history = talk(2)
    prompt = assemble(
        history,
        asked(history),
        window=TWELVE,
        snapshot="I live in Rome.",
        system_prompt="Be brief.",
        summary=summary(1),
    )
    assert lines(prompt) == [
        ("system", "Persisted user context:\nI live in Rome."),
        ("system", "Be brief."),
        ("system", "Summary of the conversation so far:\nthey greeted"),
        ("user", "question 2"),
        ("assistant", "answer 2"),
        ("user", "now"),
    ]


@pytest.mark.req("S3-01")
def test_of_fifteen_turns_the_last_twelve_are_shown_oldest_first() -> None:
    history = talk(15)
    prompt = assemble(history, asked(history), window=TWELVE)
    assert shown(prompt) == [f"{what} {n}" for n in range(4, 16) for what in ("question", "answer")]
    assert (prompt.turns_shown, prompt.messages_left_out, prompt.first_seq) == (12, 6, 6)


@pytest.mark.req("S3-01")
def test_a_window_is_smaller_by_request_and_never_larger_than_set() -> None:
    assert TWELVE.narrowed(3).turns == 3
    assert TWELVE.narrowed(50) is TWELVE
    assert TWELVE.narrowed(None) is TWELVE
    assert Window(tokens=100).narrowed(3) == Window(turns=3, tokens=100)
    history = talk(15)
    assert shown(assemble(history, asked(history), window=TWELVE.narrowed(1))) == ["question 15", "answer 15"]
    assert shown(assemble(history, asked(history), window=TWELVE.narrowed(0))) == []


def test_channels_see_twelve_turns_and_the_rest_a_token_budget() -> None:
    by_surface = windows()
    assert set(by_surface) == set(SURFACES)
    assert {surface for surface, window in by_surface.items() if window == Window(turns=12)} == set(CHANNELS)
    assert {by_surface[surface] for surface in ("web", "api", "cli")} == {Window(tokens=64_000, step=8)}


@pytest.mark.parametrize("wrong", [{"turns": -1}, {"tokens": 0}, {"step": 0}])
def test_an_invalid_window_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(SettingsInvalid, match=next(iter(wrong))):
        Window(**wrong)


@pytest.mark.req("S3-02")
def test_a_turn_with_a_blank_request_is_left_out_and_takes_no_place() -> None:
    history = talk(3)
    history[2] = stored("user", " \n", seq=2, turn_id="turn-2")
    prompt = assemble(history, asked(history), window=Window(turns=2))
    assert shown(prompt) == ["question 1", "answer 1", "question 3", "answer 3"]
    assert (prompt.turns_shown, prompt.messages_left_out) == (2, 2)


@pytest.mark.req("S3-02")
def test_a_blank_answer_gives_the_users_message_alone() -> None:
    history = talk(2)
    history[1] = stored("assistant", "  ", seq=1, turn_id="turn-1")
    assert shown(assemble(history, asked(history), window=TWELVE)) == ["question 1", "question 2", "answer 2"]


def test_a_request_that_is_a_file_alone_is_not_blank() -> None:
    history = [stored("user", [FilePart("image/png", "https://example.org/a.png", "a.png")], seq=0)]
    assert shown(assemble(history, asked(history), window=TWELVE)) == ["[file a.png, image/png]"]


@pytest.mark.req("S3-06")
def test_the_current_message_is_last_and_not_in_its_own_history() -> None:
    history = talk(2)
    request = asked(history)
    prompt = assemble([*history, request], request, window=TWELVE)
    assert [text for _, text in lines(prompt)].count("now") == 1
    assert lines(prompt)[-1] == ("user", "now")


@pytest.mark.req("S3-24")
def test_a_queued_request_sees_the_answer_that_came_after_it_and_not_what_is_queued_behind() -> None:
    first = stored("user", "first", seq=0, turn_id="one")
    second = stored("user", "second", seq=1, turn_id="two")
    third = stored("user", "third", seq=2, turn_id="three")
    answer = stored("assistant", "answer to first", seq=3, turn_id="one")
    prompt = assemble([first, second, third, answer], second, window=TWELVE)
    assert lines(prompt) == [("user", "first"), ("assistant", "answer to first"), ("user", "second")]
    assert prompt.messages_left_out == 0
    answered = stored("assistant", "answer to second", seq=4, turn_id="two")
    later = assemble([first, second, third, answer, answered], third, window=TWELVE)
    assert shown(later) == ["first", "answer to first", "second", "answer to second"]


def test_messages_that_belong_to_no_turn_belong_to_the_request_before_them() -> None:
    history = [stored("user" if n % 2 == 0 else "assistant", f"line {n}", seq=n) for n in range(6)]
    assert shown(assemble(history, history[2], window=TWELVE)) == ["line 0", "line 1"]
    assert shown(assemble(history[2:], asked(history), window=TWELVE)) == ["line 2", "line 3", "line 4", "line 5"]
    assert assemble(history[2:], say("user", "now"), window=TWELVE).messages_left_out == 2


def test_what_a_turn_was_shown_can_be_assembled_again_later() -> None:
    history = talk(4)
    request = history[4]
    then = assemble(history[:4], request, window=TWELVE)
    assert assemble(history, request, window=TWELVE) == then
    assert describe_prompt(then, TWELVE) == {
        "system": [],
        "first_seq": 0,
        "turns": 2,
        "messages_left_out": 0,
        "tokens": then.tokens,
        "window_tokens": None,
    }


@pytest.mark.req("S3-21")
def test_refused_text_is_not_replayed_but_its_place_stays() -> None:
    history = talk(2)
    prompt = assemble(history, asked(history), window=TWELVE, refused={"turn-1"})
    assert shown(prompt) == [REFUSED_TEXT, "answer 1", "question 2", "answer 2"]


def test_a_window_never_begins_inside_a_turn() -> None:
    history = talk(3)[1:]
    assert shown(assemble(history, asked(history), window=TWELVE))[0] == "question 2"


def test_a_thread_that_begins_with_the_assistant_keeps_its_greeting() -> None:
    history = [stored("assistant", "Welcome.", seq=0), *[stored("user", "hi", seq=1)]]
    assert shown(assemble(history, asked(history), window=TWELVE)) == ["Welcome.", "hi"]


def test_a_summary_inside_a_turn_does_not_split_it() -> None:
    history = talk(3)
    prompt = assemble(history, asked(history), window=TWELVE, summary=summary(2))
    assert shown(prompt) == ["question 2", "answer 2", "question 3", "answer 3"]


@pytest.mark.req("S1-13")
def test_dangling_calls_of_the_window_are_repaired() -> None:
    history = [stored("user", "go", seq=0), stored("assistant", [tool_part("t", "c", {})], seq=1)]
    prompt = assemble(history, asked(history), window=TWELVE)
    assert prompt.messages[1].parts == (tool_part("t", "c", {}, error=INTERRUPTED),)


@pytest.mark.parametrize("text", INJECTIONS)
def test_text_that_looks_like_markup_stays_user_text(text: str) -> None:
    history = [stored("user", text, seq=0)]
    prompt = assemble(history, say("user", text), window=TWELVE)
    assert lines(prompt) == [("user", text), ("user", text)]


@pytest.mark.req("S4-13")
def test_a_token_budget_keeps_the_newest_turns_and_the_request_even_if_that_alone_is_too_long() -> None:
    history = talk(50)
    prompt = assemble(history, asked(history), window=Window(tokens=200))
    assert prompt.tokens <= 200
    assert 0 < prompt.turns_shown < 50
    assert shown(prompt)[-1] == "answer 50"
    alone = assemble(history, asked(history, "long " * 1_000), window=Window(tokens=200), snapshot="kept")
    assert (alone.turns_shown, len(alone.messages), alone.first_seq) == (0, 2, None)
    assert alone.tokens > 200


@pytest.mark.req("S4-13")
def test_a_prompt_that_takes_its_budget_to_the_last_token_fits() -> None:
    history = talk(5)
    whole = assemble(history, asked(history), window=EVERYTHING)
    assert assemble(history, asked(history), window=Window(tokens=whole.tokens)) == whole
    assert assemble(history, asked(history), window=Window(tokens=whole.tokens - 1)).turns_shown == 4


def test_a_window_without_a_step_holds_as_many_turns_as_are_set_whatever_their_length() -> None:
    history = [stored("assistant" if n % 3 else "user", f"{n}", seq=n, turn_id=f"turn-{n // 3}") for n in range(30)]
    for turns in range(1, 11):
        assert assemble(history, asked(history), window=Window(turns=turns)).turns_shown == turns


@pytest.mark.req("S4-13")
def test_a_stepped_window_keeps_its_beginning_and_then_moves_by_the_step() -> None:
    window = Window(turns=12, step=4)
    starts = []
    for turns in range(1, 40):
        history = talk(turns)
        prompt = assemble(history, asked(history), window=window)
        assert prompt.turns_shown <= 12
        assert assemble(history[-24:], asked(history), window=window) == prompt
        starts.append(prompt.first_seq)
    assert starts[:12] == [0] * 12
    assert starts[12:28] == [8] * 4 + [16] * 4 + [24] * 4 + [32] * 4
    in_twos = [assemble(talk(n), asked(talk(n)), window=Window(turns=3, step=2)).first_seq for n in range(3, 10)]
    assert in_twos == [0, 4, 4, 8, 8, 12, 12]


@pytest.mark.req("S4-13")
def test_a_stepped_token_window_moves_rarely_and_is_the_same_however_much_was_read() -> None:
    window = Window(tokens=400, step=4)
    starts = []
    for turns in range(1, 80):
        history = talk(turns)
        whole = assemble(history, asked(history), window=window)
        part = assemble(history[-100:], asked(history), window=window)
        assert part == whole
        assert whole.tokens <= 400
        starts.append(whole.first_seq)
    moves = sum(one != other for one, other in pairwise(starts))
    assert moves <= len(starts) / 4


def test_a_stepped_window_shows_all_that_a_summary_does_not_cover_if_it_fits() -> None:
    history = talk(6)
    prompt = assemble(history, asked(history), window=Window(tokens=10_000, step=4), summary=summary(3))
    assert shown(prompt)[0] == "question 3"


@pytest.mark.req("S4-13")
def test_compaction_covers_whole_turns_and_leaves_half_the_budget() -> None:
    history = talk(40)
    assert plan_compaction(history, 10_000) is None
    seq = plan_compaction(history, 300)
    assert seq is not None
    assert history[seq].role == "assistant"
    left = assemble(history, say("user", ""), window=EVERYTHING, summary=summary(seq))
    assert left.turns_shown == (len(history) - seq - 1) / 2
    assert plan_compaction(history[seq + 1 :], 150) is None
    assert plan_compaction(history[seq - 1 :], 150) is not None


@pytest.mark.req("S4-13")
@given(st.lists(st.integers(1, 200), min_size=1, max_size=12), st.integers(20, 400))
def test_compaction_leaves_the_newest_turns_that_take_half_the_budget_and_at_least_one(
    lengths: list[int], budget: int
) -> None:
    history = [stored("user", "x" * length, seq=seq) for seq, length in enumerate(lengths)]
    costs = [total_tokens([say("user", "x" * length)]) for length in lengths]
    seq = plan_compaction(history, budget)
    if sum(costs) <= budget or len(costs) == 1:
        assert seq is None
    else:
        assert seq is not None
        assert sum(costs[seq + 1 :]) <= budget // 2 or seq == len(costs) - 2
        assert sum(costs[seq:]) > budget // 2


@pytest.mark.req("S4-13")
def test_compaction_never_covers_the_newest_turn_nor_half_of_two_that_are_interleaved() -> None:
    long = "long " * 1_000
    history = [
        stored("user", "a", seq=0, turn_id="zero"),
        stored("assistant", long, seq=1, turn_id="zero"),
        stored("user", "b", seq=2, turn_id="one"),
        stored("user", "c", seq=3, turn_id="two"),
        stored("assistant", long, seq=4, turn_id="one"),
        stored("assistant", long, seq=5, turn_id="two"),
    ]
    assert plan_compaction(history, 100) == 1
    assert plan_compaction(history[2:], 100) is None
    assert plan_compaction(history[:2], 100) is None
    assert plan_compaction([], 100) is None


@st.composite
def logs(draw: st.DrawFn) -> list[Message]:
    """A log in which answers may be missing, late or many, and requests blank; read from some point on."""
    found: list[Message] = []
    open_turns: list[str] = []
    for seq in range(draw(st.integers(0, 14))):
        if draw(st.booleans()) or not open_turns:
            open_turns.append(f"turn-{seq}")
            text = draw(st.sampled_from(["question", "long " * 40, " "]))
            found.append(stored("user", f"{text} {seq}" if text.strip() else text, seq=seq, turn_id=open_turns[-1]))
        else:
            turn_id = draw(st.sampled_from(open_turns[-2:]))
            found.append(stored("assistant", f"answer to {turn_id}", seq=seq, turn_id=turn_id))
    return found[draw(st.integers(0, len(found))) :]


any_window = st.builds(
    Window, st.none() | st.integers(0, 5), st.none() | st.integers(1, 300), st.sampled_from([1, 1, 2, 4])
)


@pytest.mark.req("S3-01", "S4-13")
@given(logs(), any_window, st.none() | st.integers(-1, 14))
def test_any_window_is_pair_safe_and_bounded_and_always_holds_the_request(
    history: list[Message], window: Window, covered: int | None
) -> None:
    request = asked(history)
    prompt = assemble(history, request, window=window, summary=None if covered is None else summary(covered))
    assert prompt.messages[-1] == PromptMessage("user", (TextPart("now"),))
    texts = shown(prompt)
    assert "now" not in texts
    for n, text in enumerate(texts):
        if text.startswith("answer to turn-"):
            assert any(earlier.endswith(f" {text.rpartition('-')[2]}") for earlier in texts[:n])
    if window.turns is not None:
        assert prompt.turns_shown <= window.turns
    preamble = [message for message in prompt.messages if message.role == "system"]
    if window.tokens is not None and prompt.turns_shown:
        assert prompt.tokens <= window.tokens
    assert repair(prompt.messages) == prompt.messages
    assert prompt.messages_left_out == request.seq - (len(prompt.messages) - len(preamble) - 1)


@given(histories, any_window)
def test_any_log_gives_a_valid_prompt_within_its_budget(messages: list[PromptMessage], window: Window) -> None:
    history = [stored(message.role, message.parts, seq=seq) for seq, message in enumerate(messages) if message.parts]
    prompt = assemble(history, say("user", "now"), window=window)
    assert repair(prompt.messages) == prompt.messages
    assert prompt.tokens == total_tokens(prompt.messages)
    if window.tokens is not None and prompt.turns_shown:
        assert prompt.tokens <= window.tokens
