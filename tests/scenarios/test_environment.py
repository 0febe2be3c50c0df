"""The pure environment: the expert earns what the role reward says, refused calls are seen, limits end it."""

import random

import pytest

from scenarios import environment
from scenarios.base import Family, ToolCall
from scenarios.registry import FAMILIES
from scenarios.tasks.registry import TASK_FAMILIES

CTO = FAMILIES["cto"]
SCENARIO = CTO.generate("train", 0, 7, 2)
MEASURE = ToolCall(name="measure", arguments={"option": SCENARIO.facts["option"], "part": []})


def play_expert(family: Family, index: int, difficulty: int) -> environment.Transition:
    state = environment.reset(family, "train", 0, index, difficulty)
    steps = family.demonstrate(state.scenario, random.Random(index))
    for one in steps[:-1]:
        assert one.call is not None
        made = environment.step(family, state, one.call)
        assert made.observation == family.call_tool(state.scenario, one.call)
        assert (made.reward, made.state.is_done) == (0.0, False)
        state = made.state
    return environment.step(family, state, steps[-1].text)


@pytest.mark.parametrize("family", [*FAMILIES.values(), TASK_FAMILIES["lookup"]], ids=lambda one: one.name)
def test_the_expert_earns_correctness_and_all_tool_quality(family: Family) -> None:
    for index in range(10):
        last = play_expert(family, index, 1 + index % 5)
        assert last.state.is_done
        assert last.state.verdict is not None
        assert last.state.verdict.reward == 1.0
        assert last.parts["correctness"] == 1.0
        assert last.parts["tool_quality"] == 0.2
        assert last.reward == last.parts["total"] >= 1.0


def test_a_step_changes_nothing_that_was_there() -> None:
    state = environment.reset(CTO, "train", 0, 7, 2)
    first = environment.step(CTO, state, MEASURE)
    again = environment.step(CTO, state, MEASURE)
    assert first == again
    assert (state.num_steps, first.state.num_steps, first.state.num_valid_calls) == (0, 1, 1)


def test_refused_calls_are_observed_and_cost_tool_quality() -> None:
    state = environment.reset(CTO, "train", 0, 7, 2)
    gold = CTO.demonstrate(state.scenario, random.Random(0))[-1].text
    refused = environment.step(CTO, state, ToolCall(name="guess", arguments={}))
    assert refused.observation.startswith("error: unknown tool")
    known = environment.step(CTO, refused.state, MEASURE)
    last = environment.step(CTO, known.state, gold)
    assert last.parts["tool_quality"] == pytest.approx(0.1)  # one of two calls was good


def test_the_last_step_and_the_last_call_end_it() -> None:
    state = environment.reset(CTO, "train", 0, 7, 2, max_steps=2)
    state = environment.step(CTO, state, MEASURE).state
    last = environment.step(CTO, state, MEASURE)
    assert "cost 0, worth 0" in last.observation
    assert (last.reward, last.state.verdict and last.state.verdict.failure) == (0.0, "no_answer")
    with pytest.raises(ValueError, match="is over"):
        environment.step(CTO, last.state, "B")
    long = environment.reset(CTO, "train", 0, 7, 2, max_steps=100)
    for _ in range(CTO.max_calls):
        long = environment.step(CTO, long, MEASURE).state
    assert environment.step(CTO, long, MEASURE).observation.startswith("error: no calls left")
    with pytest.raises(ValueError, match="max_steps"):
        environment.reset(CTO, "train", 0, 7, 2, max_steps=0)
