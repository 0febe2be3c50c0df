"""The four checks of a teacher's play: the oracle passes all, each rejects a play that only it rejects."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from teacher_server import draw, lesson_of, perform, play_oracle

from scenarios.base import Scenario, ToolCall
from scenarios.registry import FAMILIES
from training.data.folders.rows import build_rows, load_messages
from training.data.teacher.checks import (
    CHECKS,
    PlayedTurn,
    find_rejection,
    observe,
    read_messages,
    write_messages,
)
from training.data.teacher.lessons import list_lessons
from training.data.teacher.reasoning import read_figures

CTO = FAMILIES["cto"]
SCENARIO = CTO.generate("train", 0, 1, 2)


def play(scenario: Scenario) -> list[PlayedTurn]:
    return perform(scenario, play_oracle(scenario))


def list_failing(
    turns: Sequence[PlayedTurn], scenario: Scenario = SCENARIO, min_reward: float = 1.0
) -> list[str]:
    lesson = lesson_of(scenario)
    return [str(name) for name, check in CHECKS.items() if check(lesson, turns, min_reward)]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_oracle_passes_all(family: str) -> None:
    """Also where it reckons by the rules: it states no figure that it has not read."""
    for difficulty in (1, 2, 3, 4, 6, 8, 10):
        for scenario in draw(family, 4, difficulty):
            assert list_failing(play(scenario), scenario) == [], scenario.key


def insert_call(name: str, arguments: dict[str, object], observation: str | None = None) -> list[PlayedTurn]:
    """The oracle's play with one more call before its first."""
    call = ToolCall(name=name, arguments=arguments)
    said = observe(lesson_of(SCENARIO), (), call)[0] if observation is None else observation
    return [PlayedTurn(text="", call=call, observation=said), *play(SCENARIO)]


def test_only_the_first_check_rejects_an_unknown_tool() -> None:
    turns = insert_call("browse", {"option": "A"})
    assert list_failing(turns) == ["tools"]
    rejection = find_rejection(lesson_of(SCENARIO), turns)
    assert rejection is not None
    assert rejection.reason == "tools"
    assert "turn 1 calls 'browse'; the tools are describe, measure" in rejection.detail


def test_only_the_first_check_rejects_a_refused_call() -> None:
    turns = insert_call("measure", {"option": "Z", "part": []})
    assert list_failing(turns) == ["tools"]
    rejection = find_rejection(lesson_of(SCENARIO), turns)
    assert rejection is not None
    assert "turn 1 calls measure in vain: error: you are asked about option A" in rejection.detail


def test_only_the_first_check_rejects_a_call_written_into_words() -> None:
    first, *others = play(SCENARIO)
    assert list_failing([replace(first, text="<tool_call>{}</tool_call>"), *others]) == ["tools"]


def test_only_the_second_check_rejects_a_wrong_answer() -> None:
    """A measured part that keeps the limit, with true figures, that is not the best one."""
    turns = play(SCENARIO)
    rewards = []
    for turn in turns[:-1]:
        assert turn.call is not None
        figures = dict(read_figures(turn.observation))
        answer = {"part": turn.call.arguments["part"], "cost": int(figures["cost"])}
        text = json.dumps(answer | {"worth": int(figures["worth"])})
        verdict = CTO.verify(SCENARIO, text)
        if verdict.exact or not verdict.feasible:
            continue
        said = f"best {' + '.join(answer['part'])} {figures['worth']:g}"
        wrong = [*turns[:-1], PlayedTurn(text=f"{said}\n{text}")]
        assert list_failing(wrong) == ["answer"]
        at_least = max(verdict.reward, 1e-6)
        assert list_failing(wrong, min_reward=at_least) == ([] if verdict.reward > 0 else ["answer"])
        rewards.append(verdict.reward)
    assert max(rewards) > 0


@pytest.mark.parametrize("text", ["", "no idea", '{"option": "A"} or {"option": "B"}', '{"option": NaN}'])
def test_only_the_second_check_rejects_what_does_not_parse(text: str) -> None:
    assert list_failing([*play(SCENARIO)[:-1], PlayedTurn(text=text)]) == ["answer"]


def test_a_play_that_ends_with_a_call_has_no_answer() -> None:
    assert list_failing(play(SCENARIO)[:-1]) == ["answer"]
    assert list_failing([]) == ["answer"]


LIES = [
    "latency 12",
    "The latency of option B is 12 ms.",
    "**Latency:** 12",
    "cost=12",
    "Costs: 12",
    "| availability | 12 |",
]


@pytest.mark.parametrize("lie", LIES)
def test_only_the_third_check_rejects_a_figure_that_nobody_gave(lie: str) -> None:
    first, second, *others = play(SCENARIO)
    assert list_failing([first, replace(second, text=lie), *others]) == ["chain"]


@pytest.mark.parametrize("said", ["3 + 4 = 7", "It beats the next by 5 k$.", "3 of 4 hold", "1 + 5 = 6 left"])
def test_only_the_third_check_rejects_small_figures_that_nobody_gave(said: str) -> None:
    scenario = CTO.generate("train", 0, 0, 1)
    first, second, *others = play(scenario)
    assert list_failing([first, replace(second, text=said), *others], scenario) == ["chain"]


def test_only_the_third_check_rejects_an_answer_that_was_guessed_right() -> None:
    answer = play(SCENARIO)[-1]
    assert list_failing([replace(answer, text=answer.text[answer.text.index("{") :])]) == ["chain"]


def test_a_figure_must_be_given_before_it_is_stated() -> None:
    first, *others = play(SCENARIO)
    latency = dict(read_figures(first.observation))["latency"]
    assert f"{latency:g}" not in SCENARIO.brief
    early = replace(first, text=f"latency {latency:g}")
    assert list_failing([early, *others]) == ["chain"]
    assert list_failing([first, replace(others[0], text=f"latency {latency:g}"), *others[1:]]) == []


@pytest.mark.parametrize(
    "nonsense",
    [
        "2 + 2 = 5, therefore the answer.",
        "2+2=5",
        "So the rest is 12345 ms.",
        "77 ms - 11 ms = 66 ms",
        "3 + 4 = 7 and 7 > 9",
        "latency at most 12345",
        "<think>The optimum is 12345.</think>",
        "The margin is 12,345.",
        "3 * 4 = 12, 12 * 12 = 145",
    ],
)
def test_only_the_third_check_rejects_nonsense_in_numbers(nonsense: str) -> None:
    first, second, *others = play(SCENARIO)
    assert list_failing([first, replace(second, text=nonsense), *others]) == ["chain"]
    answer = others[-1] if others else second
    assert list_failing([*play(SCENARIO)[:-1], replace(answer, text=f"{nonsense}\n{answer.text}")]) == [
        "chain"
    ]


def test_a_bound_that_the_text_sets_itself_is_no_claim() -> None:
    first, second, *others = play(SCENARIO)
    assert list_failing([first, replace(second, text="A for at most 12345"), *others]) == []
    assert list_failing([first, replace(second, text="A costs at most 12345"), *others]) == ["chain"]


def test_a_number_that_was_worked_out_may_be_stated() -> None:
    first, *others = play(SCENARIO)
    one, other = (value for _, value in list(read_figures(first.observation))[:2])
    for text in (
        f"{one:g} + {other:g} = {one + other:g}, so {one + other:g} in all.",
        f"{one:g} ms + {other:g} ms = {one + other:g} ms > {one:g} ms.",
        f"{other:g} * {one:g} = {one * other:g}; {one * other:g} - {one:g} = {one * other - one:g}",
        f"{one:g} / {other:g} = {one / other:.2f}, about {one / other:.1f}",
        "latency:\n1. measure B\n2. decide",
        "availability first, then 2 more",
    ):
        assert list_failing([first, replace(others[0], text=text), *others[1:]]) == [], text


def test_only_the_third_check_rejects_a_figure_of_another_thing() -> None:
    """A figure that was measured for one part and is told of another is a false chain."""
    one, other, *rest = play(SCENARIO)
    assert one.call is not None
    (name,) = one.call.arguments["part"]
    figures = [dict(read_figures(turn.observation))["availability"] for turn in (one, other)]
    assert figures[0] != figures[1]
    right, wrong = (
        [one, other, replace(rest[0], text=f"{name}: availability {figure:g}."), *rest[1:]]
        for figure in figures
    )
    assert list_failing(right) == []
    assert list_failing(wrong) == ["chain"]


def test_figures_of_the_brief_may_be_stated() -> None:
    reference = SCENARIO.facts["rates"]["latency_reference"]
    first, *others = play(SCENARIO)
    assert list_failing([replace(first, text=f"latency {reference}"), *others]) == []


def test_only_the_fourth_check_rejects_another_observation() -> None:
    first, *others = play(SCENARIO)
    assert list_failing([replace(first, observation=first.observation + " "), *others]) == ["replay"]


def test_only_the_fourth_check_rejects_a_tool_of_moods() -> None:
    rng = random.Random(0)
    moody = replace(
        CTO, call_tool=lambda scenario, call: f"{CTO.call_tool(scenario, call)} mood {rng.random()}"
    )
    turns = [
        turn if turn.call is None else replace(turn, observation=moody.call_tool(SCENARIO, turn.call))
        for turn in play(SCENARIO)
    ]
    (lesson,) = list_lessons(SCENARIO, {"cto": moody})
    failing = [name for name, check in CHECKS.items() if check(lesson, turns, 1.0)]
    assert failing == ["replay"]


@pytest.mark.parametrize(
    ("text", "figures"),
    [
        ("cost 66 latency 53", [("cost", 66), ("latency", 53)]),
        ("A 23 B 12", [("A", 23), ("B", 12)]),
        ("K1 12 K2 16", [("K1", 12), ("K2", 16)]),
        ('{"total": 42, "tiers": {"S1": 2}}', [("total", 42), ("S1", 2)]),
        ("a 5 in total", []),
        ("total 4.50", [("total", 4.5)]),
        ("cost, 5", []),
        ("", []),
        ("x" * 100 + " 5", [("x" * 100, 5)]),
        ("Kosten \u0663 cost \u0663", []),
    ],
)
def test_reading_figures(text: str, figures: list[tuple[str, float]]) -> None:
    assert list(read_figures(text)) == figures


def test_reading_figures_takes_time_in_proportion() -> None:
    assert list(read_figures("cost of " * 50_000 + "9" * 50_000)) == [("cost", float("inf"))]


def test_messages_round_trip_and_others_are_told() -> None:
    (row,) = build_rows("cto", "train", 0, 1, 2)
    turns = read_messages(row["messages"], 2)
    assert turns == tuple(play(SCENARIO))
    assert write_messages(turns) == load_messages(row["messages"])[2:]
    messages = row["messages"]
    for spoilt in (
        messages[:-2],
        [*messages, {**messages[0], "role": "user"}],
        [*messages[:2], {**messages[2], "name": "extra"}, *messages[3:]],
        messages[:3],
        [*messages[:2], {**messages[2], "content": None}],
        [
            *messages[:2],
            {
                **messages[2],
                "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "["}}],
            },
        ],
    ):
        found = read_messages(spoilt, 2)
        assert found is None or found[-1].call is not None
