"""Part families: texts that suffice, a graded verdict, demonstrations without hindsight."""

import itertools
import json
import random
import re
from collections.abc import Iterator
from statistics import fmean

import pytest
from fast_loop import slow_except
from trial_counts import num_trials

from benchmarks.scenarios.from_words import solve_seat
from roles.registry import ROLES
from scenarios.base import Scenario, Step, ToolCall
from scenarios.company.domains import DOMAINS
from scenarios.company.sectors import SECTORS
from scenarios.registry import FAMILIES, SHORT_FAMILIES

ILLEGAL = {"too_long", "no_answer", "not_json", "duplicate_key", "trailing_text", "schema", "unknown_id"}


@pytest.mark.parametrize("count", slow_except((150, num_trials(400, 1000)), 150))
@pytest.mark.parametrize("seat", DOMAINS)
def test_a_stranger_who_reads_the_schema_plays_legally(seat: str, count: int) -> None:
    """Knows nothing but the texts: keys from the example, names from the list of upgrades."""
    family, system = FAMILIES[seat], ROLES[seat].mandate
    example = json.loads(system[system.index("{") : system.rindex("}") + 1])
    rng = random.Random(0)
    for index in range(count):
        scenario = family.generate("train", 0, index, 1 + index % 10)
        listed = re.search(r"k\$ a month: (.*?)\.(\n|$)", scenario.brief)
        assert listed
        names = [name.rsplit(" ", 1)[0] for name in listed.group(1).split(";")[0].split(", ")]
        answer = {key: rng.randint(0, 30) for key in example if isinstance(example[key], int)}
        answer |= {key: rng.sample(names, rng.randint(0, 1)) for key in example if key not in answer}
        verdict = family.verify(scenario, f"I would say: {json.dumps(answer)}")
        assert verdict.failure not in ILLEGAL, verdict


@pytest.mark.parametrize("count", [num_trials(60, 200)])
@pytest.mark.parametrize("difficulty", slow_except([1, 5, 10], 1, 5))
@pytest.mark.parametrize("seat", DOMAINS)
def test_the_texts_alone_determine_the_best_part(seat: str, difficulty: int, count: int) -> None:
    family = FAMILIES[seat]
    for index in range(count):
        scenario = family.generate("validation", 0, index, difficulty)
        found = solve_seat(family, scenario)
        verdict = family.verify(scenario, json.dumps(found))
        assert verdict.reward == 1.0, (scenario.key, found, verdict)


@pytest.mark.parametrize("seat", DOMAINS)
def test_the_verdict_is_graded_between_a_blind_choice_and_the_best(seat: str) -> None:
    family, rewards = FAMILIES[seat], set()
    for index in range(40):
        scenario = family.generate("train", 0, index, 5)
        numerator, denominator = scenario.truth["blind"]
        for name in ("greedy", "honest", "random", "constant"):
            answer = json.loads(family.baselines[name](scenario, random.Random(0)))
            verdict = family.verify(scenario, json.dumps(answer))
            assert (verdict.reward == 1) == (verdict.exact and verdict.parts["figures"] == 1)
            if verdict.feasible:
                seen = family.call_tool(
                    scenario,
                    ToolCall(
                        name="measure",
                        arguments={"option": scenario.facts["option"], "part": answer["part"]},
                    ),
                )
                worth = int(seen.split("worth ")[1].split(";")[0])
                assert (verdict.parts["graded"] > 0) == (worth * denominator > numerator)
            rewards.add(verdict.reward)
    assert len(rewards) > 5


def test_order_of_names_does_not_matter_and_repeats_are_refused() -> None:
    family = FAMILIES["risk"]
    scenario = next(
        scenario
        for scenario in (family.generate("train", 0, index, 5) for index in range(99))
        if len(scenario.truth["part"]) > 1
    )
    gold = family.solve(scenario)
    assert family.verify(scenario, json.dumps({**gold, "part": gold["part"][::-1]})).reward == 1.0
    doubled = family.verify(scenario, json.dumps({**gold, "part": gold["part"] + gold["part"][:1]}))
    assert doubled.failure == "unknown_id"


@pytest.mark.parametrize("seat", DOMAINS)
def test_over_the_amount_or_over_the_limit_is_worth_nothing(seat: str) -> None:
    family, domain = FAMILIES[seat], DOMAINS[seat]
    seen = set()
    for index in range(20):
        scenario = family.generate("train", 0, index, 8)
        structure = scenario.facts["structure"]
        for choice in domain.list_choices(structure):
            cost = domain.price(structure, choice)
            verdict = family.verify(scenario, json.dumps({"part": list(choice), "cost": cost, "worth": 1}))
            if verdict.failure == "infeasible":
                assert verdict.reward == 0
                seen.add("over the amount" in verdict.explanation)
            assert (cost > scenario.facts["amount"]) <= (verdict.failure == "infeasible")
    assert seen == {True, False}


def searches(difficulty: int) -> Iterator[tuple[str, Scenario, tuple[Step, ...]]]:
    """Seat, scenario and steps of demonstrations that search."""
    for seat in DOMAINS:
        for index in range(40):
            scenario = FAMILIES[seat].generate("train", 0, index, difficulty)
            steps = FAMILIES[seat].demonstrate(scenario, random.Random(index))
            if all(step.call is None or step.call.name == "measure" for step in steps):
                yield seat, scenario, steps


def test_a_search_measures_all_that_the_amount_allows() -> None:
    """And a dearer part only where all that it is made of fits, as its cost is not known before."""
    num_searches, num_over = 0, 0
    for seat, scenario, steps in searches(2):
        num_searches += 1
        measured = [frozenset(step.call.arguments["part"]) for step in steps if step.call is not None]
        costs = {
            frozenset(choice): DOMAINS[seat].price(scenario.facts["structure"], choice)
            for choice in DOMAINS[seat].list_choices(scenario.facts["structure"])
            if choice
        }
        allowed = {choice for choice, cost in costs.items() if cost <= scenario.facts["amount"]}
        assert allowed <= set(measured)
        assert [len(choice) for choice in measured] == sorted(len(choice) for choice in measured)
        for choice in set(measured) - allowed:
            num_over += 1
            assert {choice - {name} for name in choice} & costs.keys() <= allowed
    assert num_searches > 50
    assert num_over


def test_a_search_compares_what_it_measures_with_amount_and_best() -> None:
    said = set()
    for seat, scenario, steps in itertools.chain(searches(1), searches(2)):
        amount, best = scenario.facts["amount"], None
        for step, after in itertools.pairwise(steps):
            assert step.call is not None
            told = FAMILIES[seat].call_tool(scenario, step.call)
            cost, worth = (int(re.findall(rf"{word} (-?\d+)", told)[0]) for word in ("cost", "worth"))
            name, text = " + ".join(step.call.arguments["part"]), after.text.partition("\n")[0]
            expected = f"cost {cost} of {amount}: fits"
            is_better = False
            if cost > amount:
                expected = f"cost {cost} of {amount}: over"
            elif "hard limit holds" not in told:
                expected += ", breaks the limit"
            elif best is None:
                is_better = True
            elif worth == best[0]:
                is_better = cost < best[1]
                word = "less" if is_better else "no less"
                expected += f", worth {worth} to {worth}: equal, cost {cost} to {best[1]}: {word}"
            else:
                is_better = worth > best[0]
                expected += f", worth {worth} to {best[0]}: {'more' if is_better else 'less'}"
            if is_better:
                best = (worth, cost)
                expected += f", best {name} {worth}"
            assert text == expected
            said |= set(re.findall(": ([a-z ]+)", expected)) | set(re.findall("breaks", expected))
        answer = json.loads(after.text.partition("\n")[2])
        assert (answer["worth"], answer["cost"]) == best
        assert FAMILIES[seat].verify(scenario, json.dumps(answer)).exact
    assert said == {"fits", "over", "breaks", "more", "less", "no less", "equal"}


@pytest.mark.parametrize("seat", DOMAINS)
def test_in_short_style_the_best_part_is_looked_up_and_named_by_its_code(seat: str) -> None:
    family = SHORT_FAMILIES[seat]
    for index in range(40):
        scenario = family.generate("train", 0, index, 1 + index % 10)
        call, answer = family.demonstrate(scenario, random.Random(0))
        assert call.call is not None
        assert json.loads(answer.text)["part"][0] in family.call_tool(scenario, call.call).split()
        assert family.verify(scenario, answer.text).reward == pytest.approx(1)


@pytest.mark.parametrize("seat", DOMAINS)
def test_greedy_falls_with_difficulty_and_blind_play_earns_little(seat: str) -> None:
    family = FAMILIES[seat]

    def score(name: str, difficulty: int) -> float:
        cases = [family.generate("test", 0, index, difficulty) for index in range(80)]
        play = family.baselines[name]
        return fmean(family.verify(case, play(case, random.Random(case.index))).reward for case in cases)

    assert score("honest", 10) < score("honest", 1)
    assert score("random", 1) < 0.35
    assert score("random", 5) < 0.2
    assert score("constant", 1) < 0.1


def test_examples_belong_to_no_sector() -> None:
    words = {
        name
        for sector in SECTORS.values()
        for field in ("components", "people", "packages", "items")
        for name in getattr(sector, field)
    } | {control for sector in SECTORS.values() for control in sector.controls.values()}
    for seat in DOMAINS:
        mandate = ROLES[seat].mandate
        for name in json.loads(mandate[mandate.index("{") :])["part"]:
            assert not any(name.endswith(word) for word in words)
