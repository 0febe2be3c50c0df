"""The reconcile family: a case by hand, texts that suffice, a graded verdict, fair demonstrations."""

import json
import random
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from statistics import fmean
from typing import Any

import pytest
from fast_loop import slow_except
from trial_counts import num_trials

from benchmarks.scenarios.from_words import solve_seat
from roles.registry import ROLES
from roles.team import SPECIALISTS
from scenarios.base import Scenario, ToolCall
from scenarios.reconcile import FAMILY, SHORT_FAMILY, certify, read_question
from scenarios.team.funding import list_all_fundings

ILLEGAL = {"too_long", "no_answer", "not_json", "duplicate_key", "trailing_text", "schema", "unknown_id"}


@cache
def draw(split: str, index: int, difficulty: int) -> Scenario:
    return FAMILY.generate(split, 0, index, difficulty)


def offer(option: str, cost: int, worth: int) -> dict[str, Any]:
    return {"option": option, "part": ["lamp"], "cost": cost, "worth": worth}


def report(*offers: Mapping[str, Any], needs: str = "") -> dict[str, Any]:
    return {"offers": list(offers), "needs": list(needs), "veto": [], "note": ""}


FACTS = {
    "sector": "lighthouse",
    "situation": "The lamp fails.",
    "options": {"A": {"name": "mend it", "base": 30}, "B": {"name": "buy one", "base": 20}},
    "budget": 20,
    "reports": {
        "cto": report(offer("A", 8, 10), offer("B", 9, 30)),  # favours B: 50 to 40
        "coo": report(offer("B", 9, 9), needs="B"),  # A alone is 30, B with its part 29: favours A
        "risk": report(offer("A", 6, 5), offer("B", 6, 15)),  # 35 and 35: favours both
        "cost": report(offer("A", 7, 7)),  # favours A
    },
}
# A: at most 20 k$: cto + cost (15) 47, cto + risk (14) 45; all three cost 21. B: coo is needed: + cto (18) 59
BY_HAND = replace(
    draw("train", 0, 1),
    facts=FACTS,
    truth={
        "option": "B",
        "fund": ["cto", "coo"],
        "escalate": False,
        "conflicts": ["coo", "cost"],
        "worth": 59,
        "cost": 18,
        "blind": [40, 1],
    },
)


def judge(**answer: Any) -> Any:
    right = {"option": "B", "fund": ["cto", "coo"], "escalate": False, "conflicts": ["coo", "cost"]}
    return FAMILY.verify(BY_HAND, json.dumps(right | answer))


def test_the_case_by_hand() -> None:
    assert certify(BY_HAND) == (59_000 - 18, 59_000 - 18)
    assert judge().reward == 1.0
    assert judge(fund=["coo", "cto"], conflicts=["cost", "coo"], reason="It shines.").reward == 1.0
    told = judge(conflicts=["coo"])
    assert (told.reward, told.exact) == (pytest.approx(0.975), True)
    # A with cto and cost: 47, (47 - 40) / (59 - 40) of the room; against A is cto alone
    second = judge(option="A", fund=["cto", "cost"], conflicts=["cto"])
    assert second.reward == pytest.approx(0.6 * 7 / 19 + 0.1)
    assert second.failure == "suboptimal"


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        ({"option": "A", "fund": ["cto", "risk", "cost"]}, "infeasible"),  # 21 of 20
        ({"fund": ["cto"]}, "infeasible"),  # without the COO's part
        ({"option": "none", "fund": [], "escalate": True, "conflicts": []}, "infeasible"),
        ({"option": "A", "fund": [], "conflicts": []}, "suboptimal"),  # worth 30, less than a blind plan
        ({"fund": ["cto", "coo", "cost"]}, "unknown_id"),  # Cost offers nothing on B
        ({"conflicts": ["cfo"]}, "unknown_id"),
        ({"conflicts": ["coo", "coo"]}, "duplicate_id"),
        ({"escalate": True}, "inconsistent"),
    ],
)
def test_what_earns_nothing(answer: dict[str, Any], failure: str) -> None:
    verdict = judge(**answer)
    assert (verdict.reward, verdict.failure) == (0.0, failure)


def test_where_nothing_can_be_run_only_escalating_earns() -> None:
    found = [
        scenario
        for difficulty in (1, 5)
        for index in range(80)
        if (scenario := draw("train", index, difficulty)).truth["escalate"]
    ]
    assert found
    for scenario in found:
        question = read_question(scenario.facts)
        assert list_all_fundings(question.public, question.table) == []
        escalated = {"option": "none", "fund": [], "escalate": True, "conflicts": []}
        assert FAMILY.verify(scenario, json.dumps(escalated)).reward == 1.0
        assert FAMILY.verify(scenario, FAMILY.baselines["random"](scenario, random.Random(0))).reward == 0.0


@pytest.mark.parametrize("count", slow_except((25, num_trials(75, 200)), 25))
@pytest.mark.parametrize("difficulty", slow_except((1, 3, 5, 8, 10), 1, 5, 10))
def test_the_text_alone_determines_the_decision(difficulty: int, count: int) -> None:
    for index in range(count):
        scenario = draw("validation", index, difficulty)
        found = solve_seat(FAMILY, scenario)
        verdict = FAMILY.verify(scenario, json.dumps(found))
        assert verdict.reward == 1.0, (scenario.brief, found, verdict)


@pytest.mark.parametrize("count", slow_except((100, num_trials(400, 1000)), 100))
def test_a_stranger_who_reads_the_schema_plays_legally(count: int) -> None:
    """Knows nothing but the texts: keys from the example, options and labels as the message shows them."""
    mandate = ROLES["reconcile"].mandate
    example = json.loads(mandate[mandate.rindex("{") :])
    rng = random.Random(0)
    for index in range(count):
        scenario = draw("train", index, 1 + index % 5)
        options = [line for line in scenario.brief.splitlines() if line.startswith("Option ")]
        letter = rng.choice(options)[len("Option ")]
        own = scenario.brief.split(f"Option {letter}: ")[1].split("Option ")[0]
        labels = [line[3 : line.index("]")] for line in own.splitlines() if line.startswith("- [")]
        values = {
            "option": letter,
            "fund": rng.sample(labels, rng.randint(0, len(labels))),
            "escalate": False,
            "conflicts": rng.sample(SPECIALISTS, rng.randint(0, 4)),
            "reason": "It is best.",
        }
        answer = {key: values[key] for key in example}
        verdict = FAMILY.verify(scenario, f"I would say: {json.dumps(answer)}")
        assert verdict.failure not in ILLEGAL, verdict


def test_a_single_exchange_that_beats_the_sheet_is_reckoned_and_totalled() -> None:
    """A: the offer of 6 for 4 k$ leaves 6 of 10 k$, too little for that of 10 for 9, which fits alone."""
    reports = {
        "cto": report(offer("A", 4, 6)),
        "coo": report(offer("B", 9, 9), needs="B"),
        "risk": report(offer("A", 8, 5)),
        "cost": report(offer("A", 9, 10)),
    }
    scenario = replace(BY_HAND, facts=FACTS | {"budget": 10, "reports": reports})
    sheet, exchange, last = FAMILY.demonstrate(scenario, random.Random(0))
    assert sheet.call == ToolCall(name="sheet", arguments={})
    assert exchange.text == (
        "A: worth 36, best A cto 36\nB: worth 29 to 36: less\n"
        "risk for cto: worth 5 to 6: no more\n"
        "cost for cto: worth 10 to 6: more, cost 4 - 4 + 9 = 9 of 10: fits, worth 36 - 6 + 10 = 40"
    )
    assert exchange.call == ToolCall(name="total", arguments={"option": "A", "fund": ["cost"]})
    assert last.text.splitlines()[:2] == ["best A cost 40", "favour A: cto yes, coo yes, risk yes, cost yes"]


def test_what_an_option_needs_is_not_exchanged() -> None:
    _, last = FAMILY.demonstrate(BY_HAND, random.Random(0))
    assert last.text.splitlines()[:-1] == [  # risk is worth more than coo, but B needs coo
        "A: worth 47, best A cto cost 47",
        "B: worth 59 to 47: more, best B cto coo 59",
        "risk for cto: worth 15 to 30: no more",
        "best B cto coo 59",
        "favour B: cto yes, coo no, risk yes, cost no",
    ]


@pytest.mark.parametrize("difficulty", [1, 5, 10])
def test_demonstrations_reckon_rightly_and_seldom_leap(difficulty: int) -> None:
    form = re.compile(
        r"\w+ for \w+: worth (\d+) to (\d+): "
        r"(no more|more, cost (.+) = (\d+) of (\d+): (over|fits, worth (.+) = (\d+)))"
    )
    num_leaps, num_exchanges = 0, 0
    for index in range(60):
        steps = FAMILY.demonstrate(draw("train", index, difficulty), random.Random(index))
        for line in "\n".join(step.text for step in steps).splitlines():
            num_leaps += line.startswith("better ")
            found = form.fullmatch(line)
            assert (" for " in line) == (found is not None)
            if found is None:
                continue
            num_exchanges += 1
            assert (int(found[1]) > int(found[2])) == (found[3] != "no more")
            if found[3] == "no more":
                continue
            cost, worth = (sum_up(terms) for terms in (found[4], found[8] or "0"))
            assert (cost, worth) == (int(found[5]), int(found[9] or 0))
            assert (cost > int(found[6])) == (found[7] == "over")
    assert num_leaps <= 9 < num_exchanges


def sum_up(terms: str) -> int:
    """1 - 2 + 3."""
    return sum(int(term) for term in re.sub(r"([+-]) ", r"\1", terms).split())


def test_the_short_way_reads_the_sheet_in_its_brief() -> None:
    for index in range(60):
        short = SHORT_FAMILY.generate("train", 0, index, 3)
        assert len(SHORT_FAMILY.demonstrate(short, random.Random(index))) == 1
        assert "\nfavour: cto " in short.brief


def test_the_sheet_names_whom_each_seat_favours() -> None:
    said = FAMILY.call_tool(BY_HAND, ToolCall(name="sheet", arguments={}))
    assert said == (
        "A fund cto cost: cost 15 of 20, worth 47\nB fund cto coo: cost 18 of 20, worth 59\n"
        "favour: cto B, coo A, risk A B, cost A"
    )


def test_blind_play_stays_far_below_greedy_which_falls_with_difficulty() -> None:
    def score(name: str, difficulty: int) -> float:
        cases = [draw("test", index, difficulty) for index in range(50)]
        play = FAMILY.baselines[name]
        return fmean(FAMILY.verify(case, play(case, random.Random(case.index))).reward for case in cases)

    assert score("greedy", 10) < score("greedy", 1) - 0.08
    for difficulty in (1, 5, 10):
        assert score("random", difficulty) < 0.15
        assert score("constant", difficulty) < 0.05
        assert score("greedy", difficulty) > 0.5
