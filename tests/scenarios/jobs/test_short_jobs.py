"""The whole jobs in short form: the brief alone decides the answer, the job's verifier judges it."""

import json
import random
from collections.abc import Callable, Iterator

import pytest

from benchmarks.roles.learn_jobs import draw_cases, make_chat, write_rows
from benchmarks.roles.short_jobs import NONE, SHORT_JOBS
from scenarios.base import Scenario
from scenarios.tasks.registry import JOBS, TASK_FAMILIES

MOST_CONTEXT, MOST_ANSWER = 150, 60  # tokens


def draw(name: str, count: int) -> list[Scenario]:
    return list(draw_cases(name, "train", count, 5))


def read_choices(brief: str) -> Iterator[tuple[str, list[str]]]:
    """Code and figures of the choices, which stand under the line that ends in a stop."""
    _, _, listed = brief.partition(".\n")
    for line in listed.splitlines():
        code, *figures = line.split()
        yield code, figures


def take_first(brief: str) -> str:
    """The first choice that breaks no limit."""
    kept = [code for code, figures in read_choices(brief) if not any(f.startswith("-") for f in figures)]
    return kept[0] if kept else NONE


def take_cheapest(brief: str) -> str:
    """The least cost, of equal ones the least sum of start days."""
    kept = [(*map(int, figures), code) for code, figures in read_choices(brief) if figures != ["no"]]
    return str(min(kept)[-1]) if kept else NONE


def take_least_severe(brief: str) -> str:
    """The least severity, of equal ones the cheapest, within budget and appetite."""
    kept = []
    for code, figures in read_choices(brief):
        severity, left, appetite = map(int, figures)
        if left >= 0 and appetite >= 0:
            kept.append((severity, -left, code))
    return min(kept)[-1] if kept else NONE


def take_fairest(brief: str) -> str:
    """The fairest package without a veto, within the budget and above every walk-away point."""
    listed = list(read_choices(brief))
    kept = [
        (float(fair), code)
        for code, (fair, veto, *rest) in listed
        if veto == "ok" and min(map(int, rest)) >= 0
    ]
    return max(kept)[-1] if kept else NONE


def mark_nothing(brief: str) -> list[str]:
    return []


def mark_risks(brief: str) -> list[str]:
    """Every threat on every asset that has all its signs, with likelihood times impact."""
    *assets, threats, _ = brief.partition(".\n")[0].splitlines()
    marks = []
    for threat in threats.split(", "):
        letter, *needed = threat.split()
        for asset in assets:
            number, likelihood_and_impact, *signs = asset.split()
            if set(needed) <= set(signs):
                likelihood, impact = map(int, likelihood_and_impact.split("x"))
                marks.append(f"{letter}{number} {likelihood * impact}")
    return marks


def mark_conflicts(brief: str) -> list[str]:
    """Every pair of seats that lose 10 points or more both."""
    *pairs, _ = brief.partition(".\n")[0].splitlines()
    return [pair[0] for pair in pairs if min(map(int, pair.split()[1:])) >= 10]


READERS: dict[str, tuple[Callable[[str], str], Callable[[str], list[str]]]] = {
    "architecture": (take_first, mark_nothing),
    "allocation": (take_cheapest, mark_nothing),
    "threats": (take_least_severe, mark_risks),
    "bill": (take_first, mark_nothing),
    "tradeoff": (take_fairest, mark_conflicts),
}


@pytest.mark.parametrize("name", JOBS)
def test_short_brief_decides_the_answer(name: str) -> None:
    """Figures are rounded to what a token holds: a tie in them may hide the better of two choices."""
    choose, mark = READERS[name]
    rewards = []
    for case in draw(name, 200):
        answer = json.dumps({"choice": choose(case.brief), "marks": mark(case.brief)})
        rewards.append(SHORT_JOBS[name].verify(case, answer).reward)
    assert sum(reward == 1.0 for reward in rewards) >= 0.98 * len(rewards)


@pytest.mark.parametrize("name", JOBS)
def test_demonstration_is_right_and_the_case_is_the_jobs_own(name: str) -> None:
    short = SHORT_JOBS[name]
    for case in draw(name, 40):
        whole = TASK_FAMILIES[name].generate(case.split, case.seed, case.index, case.difficulty)
        assert (case.facts, case.truth) == (whole.facts, whole.truth)
        (step,) = short.demonstrate(case, random.Random(0))
        assert short.verify(case, step.text).reward == 1.0


@pytest.mark.parametrize("name", JOBS)
def test_code_that_breaks_a_limit_earns_at_most_a_tenth(name: str) -> None:
    """No such code stands for the answer that escalates, which some cases pay in full."""
    _, mark = READERS[name]
    num_broken = 0
    for case in draw(name, 60):
        for code, figures in read_choices(case.brief):
            if "no" in figures or any(figure.startswith("-") for figure in figures):
                text = json.dumps({"choice": code, "marks": mark(case.brief)})
                assert SHORT_JOBS[name].verify(case, text).reward <= 0.1
                num_broken += 1
    assert num_broken >= 20


@pytest.mark.parametrize("name", JOBS)
def test_levels_with_rules_that_no_short_brief_tells_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="difficulties"):
        SHORT_JOBS[name].generate("train", 0, 0, 3)


@pytest.mark.parametrize("text", ["", "F", '{"choice": "F"}', '{"choice": "zz", "marks": []}'])
def test_malformed_answers_and_unknown_codes_earn_nothing(text: str) -> None:
    for name in JOBS:
        assert SHORT_JOBS[name].verify(draw(name, 1)[0], text).reward == 0.0


@pytest.mark.parametrize("mark", ["Z9 4", "F1", "F1 x", "F1 -1", "\ud800"])
def test_unknown_marks_earn_nothing(mark: str) -> None:
    case = draw("threats", 1)[0]
    code = take_least_severe(case.brief)
    assert SHORT_JOBS["threats"].verify(case, json.dumps({"choice": code, "marks": [mark]})).reward == 0.0


def test_context_and_answer_are_short() -> None:
    _, chat = make_chat(0)
    for name in JOBS:
        for row in write_rows(name, chat, 200, 0):
            answer = sum(row.loss_mask)
            assert len(row.token_ids) - answer <= MOST_CONTEXT
            assert answer <= MOST_ANSWER
