"""Tool calls of an episode: the budget, the shared results, and that neither changes what a tool says."""

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from team_tables import CHAT

from scenarios.base import Family, Scenario, ToolCall, ToolError
from scenarios.hostile import HOSTILE_VALUES
from scenarios.registry import FAMILIES
from scenarios.tool_executor import MAX_KEY_CHARS, ResultCache, ToolExecutor
from simulator.agents.scripted_policies import oracle_solo
from simulator.agents.solo import play_solos
from simulator.engines.base import Sampling
from simulator.engines.scripted import ScriptedEngine
from simulator.tool_calls import format_tool_call

CTO = FAMILIES["cto"]
CASE = CTO.generate("train", 0, 0, 1)
NAMES = list(CASE.facts["structure"]["upgrades"])


def measure(*part: str) -> ToolCall:
    return ToolCall(name="measure", arguments={"option": CASE.facts["option"], "part": list(part)})


MEASURE = measure()


def count_calls(family: Family) -> tuple[Family, Counter[str]]:
    """The family with a tool that keeps count of what it is asked."""
    asked: Counter[str] = Counter()

    def call_tool(scenario: Scenario, call: ToolCall) -> str:
        asked[json.dumps([call.name, call.arguments])] += 1
        return family.call_tool(scenario, call)

    return replace(family, call_tool=call_tool), asked


def say(call_tool: Callable[[ToolCall], str], call: ToolCall) -> str:
    try:
        return call_tool(call)
    except ToolError as error:
        return f"error: {error}"


def test_calls_beyond_the_budget_are_refused_and_say_so() -> None:
    desk = ToolExecutor(CTO, CASE, max_calls=2)
    seen = [desk(MEASURE) for _ in range(2)]
    assert seen == [CTO.call_tool(CASE, MEASURE)] * 2
    for _ in range(3):
        with pytest.raises(ToolError, match="no calls left: at most 2; answer now"):
            desk(MEASURE)
    assert desk.num_calls == 5


def test_refused_and_failed_calls_count() -> None:
    desk = ToolExecutor(CTO, CASE, max_calls=1)
    with pytest.raises(ToolError, match="unknown tool"):
        desk(ToolCall(name="guess", arguments={}))
    with pytest.raises(ToolError, match="no calls left"):
        desk(MEASURE)


def test_families_allow_far_more_calls_than_their_experts_make() -> None:
    for family in FAMILIES.values():
        most = max(family.generate("test", 0, index, 10).optimal_tool_calls for index in range(20))
        assert ToolExecutor(family, CASE).max_calls == family.max_calls >= 2 * most


def test_a_result_is_asked_for_once_whoever_asks() -> None:
    family, asked = count_calls(CTO)
    results = ResultCache()
    again = CTO.generate("train", 0, 0, 1)  # equal, another object
    for scenario in (CASE, again, CASE):
        assert ToolExecutor(family, scenario, results=results)(MEASURE) == CTO.call_tool(CASE, MEASURE)
        assert say(ToolExecutor(family, scenario, results=results), replace(MEASURE, name="x")).startswith(
            "error"
        )
    assert set(asked.values()) == {1}
    assert (results.num_hits, results.num_misses, len(results)) == (4, 2, 2)


def test_other_facts_under_the_same_key_are_another_scenario() -> None:
    results = ResultCache()
    other = replace(CASE, facts={**CASE.facts, "limits": {"availability": 9999}})
    for scenario in (CASE, other, CASE):
        assert ToolExecutor(CTO, scenario, results=results)(MEASURE) == CTO.call_tool(scenario, MEASURE)
    assert CTO.call_tool(other, MEASURE) != CTO.call_tool(CASE, MEASURE)
    assert results.num_hits == 0
    other_tool, asked = count_calls(CTO)
    ToolExecutor(other_tool, CASE, results=results)(MEASURE)
    assert asked.total() == 1


def test_the_order_of_names_is_another_question() -> None:
    results = ResultCache()
    for part in (NAMES[:2], NAMES[1::-1]):
        assert ToolExecutor(CTO, CASE, results=results)(measure(*part)) == CTO.call_tool(CASE, measure(*part))
    assert results.num_hits == 0


TWINS = [
    ("\ud83d\ude00", "\U0001f600"),  # two halves of a pair, and the character that they would make
    (1, True),
    (1, 1.0),
    (0.0, -0.0),
    ("1", 1),
    (None, "null"),
    ({"a": 1}, {"a": "1"}),
    ({1: 2}, {"1": 2}),
    ({None: 2}, {"null": 2}),
    ([1, 2], (1, 2)),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
]


@pytest.mark.parametrize(("one", "other"), TWINS)
def test_no_argument_gets_the_result_of_another(one: Any, other: Any) -> None:
    """Neither an answer nor an error: what is told apart by type, key or order is asked for itself."""

    def call_tool(scenario: Scenario, call: ToolCall) -> str:
        if call.arguments["option"] is one:
            raise ToolError("no such option")
        return "asked for itself"

    family = replace(CTO, call_tool=call_tool)
    desk = ToolExecutor(family, CASE, results=ResultCache())
    first, second = (ToolCall(name="measure", arguments={"option": value}) for value in (one, other))
    assert say(desk, first) == "error: no such option"
    assert say(desk, second) == "asked for itself"
    assert say(desk, first) == "error: no such option"


TEXTS = st.text("a\ud83d\ude00\U0001f600", max_size=2)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats(-2, 2) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=400, deadline=None, database=None, derandomize=True)
@given(st.lists(JSON, min_size=2, max_size=6))
def test_any_two_arguments_share_a_result_only_if_they_are_the_same(values: list[Any]) -> None:
    family = replace(CTO, call_tool=lambda scenario, call: repr(call.arguments["option"]))
    desk = ToolExecutor(family, CASE, results=ResultCache(), max_calls=99)
    for value in values:
        assert desk(ToolCall(name="measure", arguments={"option": value})) == repr(value)


def test_least_recently_used_results_go_first() -> None:
    family, asked = count_calls(CTO)
    results = ResultCache(max_entries=2)
    one, two, three = (measure(name) for name in NAMES[:3])
    for call in (
        one,
        two,
        one,
        three,
        one,
        two,
    ):  # the second makes room for the third, then the third for it
        ToolExecutor(family, CASE, results=results)(call)
    assert len(results) == 2
    assert [asked[json.dumps([call.name, call.arguments])] for call in (one, two, three)] == [1, 2, 1]
    with pytest.raises(ValueError, match="at least 1"):
        ResultCache(max_entries=0)


def test_hostile_calls_are_answered_as_without_a_desk() -> None:
    results = ResultCache()
    values: list[Any] = [*HOSTILE_VALUES, {1, 2}, object(), {("a",): 1}, float("nan"), "A" * MAX_KEY_CHARS]
    for family in FAMILIES.values():
        scenario = family.generate("train", 0, 0, 3)
        for value in values:
            for arguments in (value, {"option": value}, {"option": "A", "part": value}, {"fund": value}):
                call = ToolCall(name="measure", arguments=arguments)
                plain = say(lambda c, f=family, s=scenario: f.call_tool(s, c), call)  # type: ignore[misc]
                for _ in range(2):
                    assert say(ToolExecutor(family, scenario, results=results), call) == plain


def test_many_threads_get_the_same_results_and_share_one_budget() -> None:
    family, _ = count_calls(CTO)
    results = ResultCache(max_entries=2)
    desk = ToolExecutor(family, CASE, max_calls=300, results=results)
    said: list[str] = []
    calls = [measure(name) for name in NAMES[:3]]

    def work() -> None:
        said.extend(say(desk, calls[turn % 3]) for turn in range(100))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    refused = [text for text in said if text.startswith("error: no calls left")]
    assert (len(said), len(refused), desk.num_calls) == (400, 100, 400)
    assert {*said} - {*refused} == {CTO.call_tool(CASE, call) for call in calls}
    assert len(results) <= 2


def test_rollouts_of_a_scenario_share_results_and_a_stubborn_policy_meets_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    family, asked = count_calls(CTO)
    most = CASE.optimal_tool_calls + 1
    monkeypatch.setitem(FAMILIES, "cto", replace(family, max_calls=most))

    def play(policy: Any, max_turns: int) -> list[Any]:
        return asyncio.run(
            play_solos(
                [CASE] * 4,
                policy="cto",
                engine=ScriptedEngine(CHAT, {"cto": policy}),
                chat=CHAT,
                sampling=Sampling(max_completion_tokens=2000),
                stream="",
                max_turns=max_turns,
            )
        )

    experts = play(oracle_solo([CASE]), most + 2)
    assert [episode.verdict.reward for episode in experts] == [1.0] * 4
    assert len({episode.trajectory.num_valid_tool_calls for episode in experts}) == 1
    assert 0 < experts[0].trajectory.num_valid_tool_calls <= CASE.optimal_tool_calls
    assert set(asked.values()) == {1}
    stubborn = play(lambda transcript: format_tool_call("", MEASURE), most + 4)
    for episode in stubborn:
        path = episode.trajectory
        assert (path.num_tool_calls, path.num_valid_tool_calls) == (most + 4, most)
        assert f"no calls left: at most {most}" in CHAT.decode(path.turns[most + 1].context_ids)
