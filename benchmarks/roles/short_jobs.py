"""The whole jobs at difficulties 1 and 2 in few words, for the smallest models.

A short brief lists what an expert has worked out before choosing: every choice with its code, the figure that
decides, and what is left of each limit, negative where the limit is broken. Cases, optima and rewards are the
job's own: the code in an answer stands for a whole answer, which the job's verifier judges.
"""

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import Field

from roles.base import Answer, AnswerError, Role, parse_answer
from scenarios.base import Family, Scenario, Split, Step, ToolCall, ToolError, Verdict, rejected
from scenarios.company.steps import name_code
from scenarios.jobs import allocation, architecture, bill, threats, tradeoff
from scenarios.jobs.job import Facts
from scenarios.tasks.registry import JOBS, TASK_FAMILIES, TASK_ROLES

DIFFICULTIES = (1, 2)  # later ones have commitments, days late, weights and more, which no short brief tells
NONE, NO = "none", "no"
PLANS_PER_DESIGN = 4  # the cheapest ones, as many as an expert measures at difficulty 2: the optimum is there
MOST_FIGURE = 99  # figures beyond it are written as it: two digits are one token


class ShortAnswer(Answer):
    """Example: ShortAnswer(choice="H", marks=["F1 12", "G2 6"])"""

    choice: str  # code, or "none"
    marks: Annotated[list[str], Field(max_length=40)]  # risks with severity, or pairs of seats in conflict


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One way to answer.

    Example: Choice(answer={"design": "A", "instances": {...}}, figures=("36",), margins=(-12, 30, 4))
    """

    answer: Mapping[str, Any]  # fields of the whole answer
    figures: tuple[str, ...] = ()  # what the choices are compared by
    margins: tuple[int, ...] = ()  # what is left of every limit, negative where it is broken


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortForm:
    """Tells a case in few words, and which whole answer each code stands for.

    Example: write_short("bill", scenario.facts).choices["F"].answer == {"tiers": {...}, "commit": []}
    """

    lines: tuple[str, ...]
    choices: Mapping[str, Choice]  # by code
    nothing: Mapping[str, Any]  # fields of the answer where no choice keeps the limits
    marks: Callable[[Sequence[str]], Mapping[str, Any]]  # fields that the marks of an answer stand for
    name_marks: Callable[[Mapping[str, Any]], list[str]]  # marks of a whole answer

    @property
    def brief(self) -> str:
        """The user message."""
        return "\n".join([*self.lines, *(_write_choice(*item) for item in self.choices.items())])


def _write_choice(code: str, choice: Choice) -> str:
    margins = [str(max(-MOST_FIGURE, min(MOST_FIGURE, margin))) for margin in choice.margins]
    return " ".join([code, *choice.figures, *margins])


def _make_form(
    choices: Sequence[Choice],
    nothing: Mapping[str, Any],
    lines: Sequence[str] = (),
    codes: Sequence[str] = (),
    marks: Callable[[Sequence[str]], Mapping[str, Any]] = lambda marks: {},
    name_marks: Callable[[Mapping[str, Any]], list[str]] = lambda answer: [],
) -> ShortForm:
    named = codes or [name_code(number) for number in range(len(choices))]
    by_code = dict(zip(named, choices, strict=True))
    return ShortForm(lines=tuple(lines), choices=by_code, nothing=nothing, marks=marks, name_marks=name_marks)


def shorten_architecture(facts: Facts) -> ShortForm:
    """The cheapest plans of every design that carry the load, cheapest first: availability, latency, money.

    Availability is in hundredths of a percent, as the target is.
    """
    plans: list[architecture.Plan] = []
    loose = {**facts, "latency": math.inf}
    for letter, design in facts["designs"].items():
        alone = {**loose, "designs": {letter: design}}
        plans += itertools.islice(architecture.list_by_cost(alone), PLANS_PER_DESIGN)
    choices = [
        Choice(
            answer={"design": letter, "instances": counts},
            margins=(
                architecture.find_availability(facts, letter, counts) - facts["target"],
                facts["latency"] - architecture.find_latency(facts, letter),
                facts["budget"] - cost,
            ),
        )
        for cost, letter, counts in sorted(plans, key=lambda plan: plan[0])
    ]
    return _make_form(choices, architecture.NOTHING, ["Cheapest first: up, ms, left."])


def shorten_allocation(facts: Facts) -> ShortForm:
    """Every assignment, lowest rates first: cost and sum of start days, "no" where a deadline is missed."""
    choices = []
    for rates, doers in allocation.list_assignments(facts):
        found = allocation.find_best_starts(facts, doers)
        starts = found[1] if found else _start_in_order(facts, doers)
        figures = (str(rates + found[0]), str(sum(starts.values()))) if found else (NO,)
        choices.append(Choice(answer={"plan": allocation.write_plan(facts, doers, starts)}, figures=figures))
    return _make_form(choices, {"plan": []}, ["Cost, starts."])


def _start_in_order(facts: Facts, doers: allocation.Doers) -> allocation.Starts:
    orders: dict[str, tuple[str, ...]] = {}
    for package, who in zip(facts["packages"], doers, strict=True):
        orders[who] = (*orders.get(who, ()), package)
    starts = allocation.start_early(facts, orders)
    assert starts is not None  # packages follow earlier ones only
    return starts


def shorten_bill(facts: Facts) -> ShortForm:
    """Every choice of tiers, cheapest first: weighted points over the average, lowest over a floor, money."""
    services = facts["services"].values()
    found = []
    for tiers in itertools.product(*(service["tiers"] for service in services)):
        choice = tuple((tier, False) for tier in tiers)
        total, rebates = bill.find_bill(facts, choice)
        over = bill.sum_quality(facts, choice) - facts["average"] * bill.sum_weights(facts)
        floors = [
            service["tiers"][tier]["quality"] - service["floor"]
            for service, tier in zip(services, tiers, strict=True)
        ]
        cost = total - rebates
        margins = (over, min(floors), facts["budget"] - cost)
        found.append((cost, Choice(answer=bill.name_choice(facts, choice), margins=margins)))
    choices = [choice for _, choice in sorted(found, key=lambda pair: pair[0])]
    return _make_form(choices, bill.NOTHING, ["Cheapest first: average, floor, left."])


def shorten_threats(facts: Facts) -> ShortForm:
    """Assets by number with likelihood, impact and signs; threats by letter; every set of controls.

    A set has the severity that it leaves, what it leaves of the budget, and what the appetite is above the
    highest severity left. A mark is a threat on an asset with its severity.
    """
    risks = threats.find_risks(facts)
    lines = []
    for number, asset in enumerate(facts["assets"].values(), 1):
        signs = [sign for sign in (*threats.SIGNS, "old") if _can_hold(asset, sign)]
        likelihood = 1 + asset["exposed"] + (asset["incidents"] > 0)
        lines.append(" ".join([f"{number} {likelihood}x{threats.find_impact(asset)}", *signs]))
    letters = dict(zip(facts["threats"], map(name_code, range(len(facts["threats"]))), strict=True))
    lines.append(
        ", ".join(f"{letters[name]} {' '.join(about['when'])}" for name, about in facts["threats"].items())
    )
    pairs = {
        f"{letters[threat]}{number}": (threat, asset)
        for threat in facts["threats"]
        for number, asset in enumerate(facts["assets"], 1)
    }
    names = {pair: code for code, pair in pairs.items()}
    choices = []
    for size in range(len(facts["controls"]) + 1):
        for controls in itertools.combinations(facts["controls"], size):
            cost, left, highest = threats.apply_controls(facts, risks, controls)
            margins = (facts["budget"] - cost, facts["appetite"] - highest)
            answer = {"controls": list(controls), "escalate": False}
            choices.append(Choice(answer=answer, figures=(str(left),), margins=margins))

    def read_marks(marks: Sequence[str]) -> Mapping[str, Any]:
        said = []
        for mark in marks:
            code, _, severity = mark.partition(" ")
            threat, asset = pairs[code]
            said.append({"threat": threat, "asset": asset, "severity": int(severity)})
        return {"risks": said}

    def name_marks(answer: Mapping[str, Any]) -> list[str]:
        return [f"{names[risk['threat'], risk['asset']]} {risk['severity']}" for risk in answer["risks"]]

    lines.append("Severity, left, appetite.")
    codes = [name_code(len(letters) + number) for number in range(len(choices))]
    nothing = {"controls": [], "escalate": True}
    return _make_form(choices, nothing, lines, codes, read_marks, name_marks)


def _can_hold(asset: Mapping[str, Any], sign: str) -> bool:
    is_told = "months" in asset if sign == "old" else sign in asset
    return is_told and threats.holds(asset, sign)


def shorten_tradeoff(facts: Facts) -> ShortForm:
    """Packages with what the rule compares, what is left of budget and walk-away points, and vetoes.

    Before them every pair of seats, with the points that each loses by the other's favourite: a mark is a
    pair in conflict.
    """
    outcomes = [(letter, ()) for letter in facts["packages"]]
    favourites = tradeoff.find_favourites(facts) if tradeoff.list_open(facts) else None
    best = tradeoff.find_best_gains(facts, tradeoff.list_open(facts) or outcomes)
    pairs: dict[str, list[str]] = {}
    lines = []
    for number, (one, other) in enumerate(itertools.combinations(facts["seats"], 2)):
        pairs[name_code(number)] = [one, other]
        losses = [0, 0]
        if favourites is not None:
            for place, (seat, rival) in enumerate(((one, other), (other, one))):
                points = facts["seats"][seat]["points"]
                losses[place] = points[favourites[seat]] - points[favourites[rival]]
        lines.append(f"{name_code(number)} {losses[0]} {losses[1]}")
    choices = []
    for outcome in outcomes:
        gains = tradeoff.find_gains(facts, outcome)
        is_low = min(gains.values()) < 0
        fairness = (
            0.0 if is_low else tradeoff.measure_fairness(facts, tradeoff.find_key(facts, outcome, best))
        )
        if facts["rule"] == "equal shares":
            fairness *= 100
        figures = (
            f"{min(fairness, MOST_FIGURE):.1f}",
            NO if tradeoff.list_vetoes(facts, outcome[0]) else "ok",
        )
        margins = (facts["budget"] - tradeoff.find_cost(facts, outcome), min(gains.values()))
        answer = {"package": outcome[0], "extras": [], "escalate": False}
        choices.append(Choice(answer=answer, figures=figures, margins=margins))

    def name_marks(answer: Mapping[str, Any]) -> list[str]:
        return [code for code, pair in pairs.items() if pair in answer["conflicts"]]

    return _make_form(
        choices,
        {"package": NONE, "extras": [], "escalate": True},
        [*lines, "Fair, veto, left, lowest."],
        list(facts["packages"]),
        lambda marks: {"conflicts": [pairs[code] for code in marks]},
        name_marks,
    )


FORMS: Mapping[str, Callable[[Facts], ShortForm]] = {
    "architecture": shorten_architecture,
    "allocation": shorten_allocation,
    "threats": shorten_threats,
    "bill": shorten_bill,
    "tradeoff": shorten_tradeoff,
}


def shorten(name: str) -> Family:
    """The job with short briefs and answers; its cases, optima and rewards are the job's own.

    Example: shorten("bill").generate("train", seed=0, index=7, difficulty=2).brief
    """
    job, write = TASK_FAMILIES[name], FORMS[name]

    def generate(split: Split, seed: int, index: int, difficulty: int) -> Scenario:
        if difficulty not in DIFFICULTIES:
            raise ValueError(f"the short form is for difficulties {DIFFICULTIES}, got {difficulty}")
        case = job.generate(split, seed, index, difficulty)
        return replace(case, brief=write(case.facts).brief, optimal_tool_calls=0)

    def verify(scenario: Scenario, text: str) -> Verdict:
        try:
            answer = parse_answer(text, ShortAnswer)
        except AnswerError as error:
            return rejected(error.failure, str(error))
        form = write(scenario.facts)
        if answer.choice != NONE and answer.choice not in form.choices:
            return rejected("unknown_id", f"no choice {answer.choice[:20]!r}")
        try:
            marked = form.marks(answer.marks)
        except (KeyError, ValueError):
            return rejected("unknown_id", f"no marks {answer.marks}")
        chosen = form.nothing if answer.choice == NONE else form.choices[answer.choice].answer
        return job.verify(scenario, json.dumps({**chosen, **marked}))

    def demonstrate(scenario: Scenario, _rng: Any) -> tuple[Step, ...]:
        form, right = write(scenario.facts), job.solve(scenario)
        codes = [code for code, one in form.choices.items() if one.answer.items() <= right.items()]
        code = NONE if form.nothing.items() <= right.items() else codes[0]
        return (Step(text=json.dumps({"choice": code, "marks": form.name_marks(right)})),)

    def call_tool(_scenario: Scenario, _call: ToolCall) -> str:
        raise ToolError("there are no tools here")

    return replace(
        job,
        generate=generate,
        verify=verify,
        demonstrate=demonstrate,
        call_tool=call_tool,
        certify=lambda case: job.certify(job.generate(case.split, case.seed, case.index, case.difficulty)),
        solve=lambda scenario: json.loads(demonstrate(scenario, None)[0].text),
        baselines={},
    )


SHORT_JOBS: Mapping[str, Family] = {name: shorten(name) for name in JOBS}
SHORT_JOB_ROLES: Mapping[str, Role] = {
    name: replace(TASK_ROLES[name], answer=ShortAnswer, tools=()) for name in JOBS
}
