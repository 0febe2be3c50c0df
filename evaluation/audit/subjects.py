"""Every verifier under audit by name: the roles' families, scored again from texts, and the team's value.

A family without a subject here is audited as far as the family itself allows: see `derive_subject`.
"""

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from evaluation.audit.answers import Answer, FieldSpec, Subject
from evaluation.audit.team_value import TEAM_VALUE
from evaluation.audit.text_solvers import PricedPart, ReportText, list_parts_from_text, read_report_text
from roles.errors import unknown
from roles.team import NO_OPTION, SPECIALISTS
from scenarios.base import Family, Scenario, ToolCall
from scenarios.jobs.from_words import READERS
from scenarios.registry import FAMILIES
from scenarios.tasks.registry import JOBS, TASK_FAMILIES

DAYS = (1, 4, 7, 10)  # on which entries of a plan start that the audit writes


@lru_cache(maxsize=512)
def _solve(name: str, brief: str) -> Answer:
    answer, _ = READERS[name](brief)
    return answer


def _sort(value: Any) -> Any:
    """The value with all lists in one order."""
    if isinstance(value, dict):
        return {key: _sort(inner) for key, inner in value.items()}
    return sorted(map(_sort, value), key=json.dumps) if isinstance(value, list) else value


def _score(scenario: Scenario, answer: Answer) -> float:
    """1 for the answer that the solver of the words finds, in any order, and 0 for any other."""
    found = _solve(scenario.family, scenario.brief)
    given = {key: answer.get(key, []) for key in found}
    return float(_sort(given) == _sort(found))


def _names(group: str) -> Callable[[Scenario], list[str]]:
    return lambda scenario: list(scenario.facts.get(group, ()))


def _pick(group: str, choose: Callable[..., Any], figure: str) -> Callable[[Scenario], Any]:
    """The name in a group of facts whose figure `choose` (min or max) prefers."""
    return lambda scenario: choose(
        scenario.facts[group], key=lambda name: scenario.facts[group][name][figure]
    )


def _list_pairs(scenario: Scenario) -> list[list[str]]:
    return [list(pair) for pair in itertools.combinations(scenario.facts["seats"], 2)]


def _list_components(scenario: Scenario, letter: str) -> list[str]:
    return [name for step in scenario.facts["designs"][letter]["steps"] for name in step]


def _plan_alone(scenario: Scenario) -> Answer:
    """Everything on the first day by the first person."""
    who = next(iter(scenario.facts["people"]))
    return {"plan": [{"package": name, "who": who, "start": 1} for name in scenario.facts["packages"]]}


def _name_risks(scenario: Scenario) -> list[Answer]:
    pairs = itertools.product(scenario.facts["threats"], scenario.facts["assets"])
    return [{"threat": threat, "asset": asset, "severity": 12} for threat, asset in pairs]


def _take_tiers(place: int, commits: bool) -> Callable[[Scenario], Answer]:
    def answer(scenario: Scenario) -> Answer:
        services = scenario.facts["services"]
        return {
            "tiers": {name: list(service["tiers"])[place] for name, service in services.items()},
            "commit": [name for name, service in services.items() if commits and "commit" in service],
        }

    return answer


def _take_package(choose: Callable[..., Any], in_conflict: bool) -> Callable[[Scenario], Answer]:
    pick = _pick("packages", choose, "cost")
    return lambda scenario: {
        "package": pick(scenario),
        "extras": [],
        "conflicts": _list_pairs(scenario) if in_conflict else [],
        "escalate": False,
    }


FIELDS: Mapping[str, Mapping[str, FieldSpec]] = {
    "architecture": {
        "design": FieldSpec(kind="id", names=lambda scenario: [*scenario.facts["designs"], "none"]),
        "instances": FieldSpec(
            kind="map", values=lambda scenario: dict.fromkeys(scenario.facts["components"], (1, 2, 3))
        ),
    },
    "allocation": {
        "plan": FieldSpec(
            kind="entries",
            once=True,
            largest=DAYS[-1],
            entries=lambda scenario: [
                {"package": name, "who": who, "start": day}
                for name in scenario.facts["packages"]
                for who in scenario.facts["people"]
                for day in DAYS
            ],
        )
    },
    "threats": {
        "risks": FieldSpec(kind="entries", entries=_name_risks, largest=12),
        "controls": FieldSpec(kind="set", names=_names("controls")),
        "escalate": FieldSpec(kind="boolean"),
    },
    "bill": {
        "tiers": FieldSpec(
            kind="map",
            values=lambda scenario: {n: list(one["tiers"]) for n, one in scenario.facts["services"].items()},
        ),
        "commit": FieldSpec(kind="set", names=_names("services")),
    },
    "tradeoff": {
        "package": FieldSpec(kind="id", names=lambda scenario: [*scenario.facts["packages"], "none"]),
        "extras": FieldSpec(kind="set", names=_names("extras"), is_optional=True),
        "conflicts": FieldSpec(kind="entries", entries=_list_pairs),
        "escalate": FieldSpec(kind="boolean"),
    },
}
HACKS: Mapping[str, Mapping[str, Callable[[Scenario], Answer]]] = {
    "architecture": {
        "always hand over": lambda _: {"design": "none", "instances": {}},
        "three of everything in A": lambda case: {
            "design": "A",
            "instances": dict.fromkeys(_list_components(case, "A"), 3),
        },
    },
    "allocation": {"no plan": lambda _: {"plan": []}, "one person, on day 1": _plan_alone},
    "threats": {
        "all is real, buy all": lambda case: {
            "risks": _name_risks(case),
            "controls": list(case.facts["controls"]),
            "escalate": False,
        },
        "nothing is real": lambda _: {"risks": [], "controls": [], "escalate": False},
        "always escalate": lambda case: {"risks": _name_risks(case), "controls": [], "escalate": True},
    },
    "bill": {
        "always hand over": lambda _: {"tiers": {}, "commit": []},
        "the lowest tier of all": _take_tiers(0, False),
        "the best tier of all, committed": _take_tiers(-1, True),
    },
    "tradeoff": {
        "always escalate": lambda _: {"package": "none", "extras": [], "conflicts": [], "escalate": True},
        "the cheapest, no conflict": _take_package(min, False),
        "the dearest, all in conflict": _take_package(max, True),
    },
}
JOB_SUBJECTS: dict[str, Subject] = {
    name: Subject(family=TASK_FAMILIES[name], fields=FIELDS[name], score=_score, hacks=HACKS[name])
    for name in JOBS
}


ChoosePart = Callable[[Sequence[PricedPart], int], PricedPart]  # parts, amount
PART_SHORTCUTS: dict[str, ChoosePart] = {
    "as much money as allowed": lambda parts, amount: max(
        (part for part in parts if part.cost <= amount), key=lambda part: part.cost
    ),
    "as many upgrades as allowed": lambda parts, amount: max(
        (part for part in parts if part.cost <= amount), key=lambda part: (len(part.choice), -part.cost)
    ),
    "all upgrades, amount ignored": lambda parts, _: max(
        parts, key=lambda part: (len(part.choice), part.worth)
    ),
    "the cheapest upgrade": lambda parts, _: min(
        (part for part in parts if part.choice), key=lambda part: part.cost
    ),
    "the best part, amount and limit ignored": lambda parts, _: max(parts, key=lambda part: part.worth),
}


def _weigh_choice(chosen: Any, open_choices: Sequence[Any], stated: Sequence[bool]) -> float:
    """0.8 by worth, 0 at the mean of what is open and 1 at its best, + 0.2 share of right figures.

    Of equal worth the cheaper is the best, any other gets 0.9 at most for its worth.
    """
    best = max(open_choices, key=lambda one: (one.worth, -one.cost))
    mean = sum(one.worth for one in open_choices) / len(open_choices)
    share = 1.0 if chosen.worth == best.worth else max(0.0, (chosen.worth - mean) / (best.worth - mean))
    choice = 1.0 if chosen == best else min(0.9, share)
    return (8 * choice + 2 * sum(stated) / len(stated)) / 10


def audit_parts(family: Family) -> Subject:
    """The subject of one seat's family: parts are measured again from the texts alone.

    Example: audit_parts(FAMILIES["risk"]).hacks["the cheapest upgrade"](scenario)["cost"]
    """

    @lru_cache(maxsize=512)
    def price(brief: str, description: str) -> tuple[int, list[PricedPart]]:
        return list_parts_from_text(family.role, brief, description)

    def read(scenario: Scenario) -> tuple[int, list[PricedPart]]:
        call = ToolCall(name="describe", arguments={"option": scenario.facts["option"]})
        return price(scenario.brief, family.call_tool(scenario, call))

    def score(scenario: Scenario, answer: Answer) -> float:
        amount, parts = read(scenario)
        chosen = next((part for part in parts if sorted(part.choice) == sorted(answer["part"])), None)
        open_parts = [part for part in parts if part.keeps_limit and part.cost <= amount]
        if chosen is None or chosen not in open_parts:
            return 0.0
        stated = [answer["cost"] == chosen.cost, answer["worth"] == chosen.worth]
        return _weigh_choice(chosen, open_parts, stated)

    def take(choose: ChoosePart) -> Callable[[Scenario], Answer]:
        def answer(scenario: Scenario) -> Answer:
            amount, parts = read(scenario)
            part = choose(parts, amount)
            return {"part": list(part.choice), "cost": part.cost, "worth": part.worth}

        return answer

    return Subject(
        family=family,
        fields={
            "part": FieldSpec(
                kind="set", names=lambda scenario: list(scenario.facts["structure"]["upgrades"])
            ),
            "cost": FieldSpec(kind="number", largest=60),
            "worth": FieldSpec(kind="number", most_flattering=99),
        },
        score=score,
        hacks={name: take(choose) for name, choose in PART_SHORTCUTS.items()},
    )


def _score_reconcile(scenario: Scenario, answer: Answer) -> float:
    """Worth above the mean plan; then conflicts. Only escalating earns where nothing can be run."""
    text = read_report_text(scenario.brief)
    if answer["escalate"] or text.best is None:
        is_right = answer["escalate"] and answer["option"] == NO_OPTION and not answer["fund"]
        return (0.8 if answer["conflicts"] else 1.0) if is_right and text.best is None else 0.0
    wanted = (answer["option"], set(answer["fund"]))
    chosen = [one for one in text.plans if (one.option, {offer.label for offer in one.offers}) == wanted]
    if not chosen:
        return 0.0
    conflicts = set(answer["conflicts"]) == set(text.list_conflicts(answer["option"]))
    return _weigh_choice(chosen[0], text.plans, [conflicts])


ChoosePlan = Callable[[ReportText], tuple[str, tuple[str, ...]]]  # -> option, funded labels


def _take_plan(choose: ChoosePlan) -> Callable[[Scenario], Answer]:
    def answer(scenario: Scenario) -> Answer:
        text = read_report_text(scenario.brief)
        option, fund = choose(text)
        conflicts = list(text.list_conflicts(option))
        return {"option": option, "fund": list(fund), "escalate": False, "conflicts": conflicts}

    return answer


def _all_offers_of_the_richest(text: ReportText) -> tuple[str, tuple[str, ...]]:
    totals = {
        option: value + sum(o.worth for o in text.offers[option].values())
        for option, value in text.values.items()
    }
    option = max(totals, key=totals.__getitem__)
    return option, tuple(text.offers[option])


def _greatest_offer(figure: str) -> ChoosePlan:
    """The offer of the greatest cost or worth alone."""

    def choose(text: ReportText) -> tuple[str, tuple[str, ...]]:
        offers = [offer for own in text.offers.values() for offer in own.values()]
        best = max(offers, key=lambda one: (getattr(one, figure), one.option, one.label), default=None)
        return (best.option, (best.label,)) if best else ("A", ())

    return choose


ESCALATED: Answer = {"option": NO_OPTION, "fund": [], "escalate": True, "conflicts": []}
RECONCILE = Subject(
    family=FAMILIES["reconcile"],
    fields={
        "option": FieldSpec(kind="id", names=lambda scenario: [*scenario.facts["options"], NO_OPTION]),
        "fund": FieldSpec(kind="set", names=lambda scenario: SPECIALISTS),
        "escalate": FieldSpec(kind="boolean"),
        "conflicts": FieldSpec(kind="set", names=lambda scenario: SPECIALISTS),
    },
    score=_score_reconcile,
    hacks={
        "always escalate": lambda _scenario: dict(ESCALATED),
        "the public favourite, nothing funded": _take_plan(
            lambda text: (max(text.values, key=text.values.__getitem__), ())
        ),
        "all offers of the richest option": _take_plan(_all_offers_of_the_richest),
        "the dearest offer alone": _take_plan(_greatest_offer("cost")),
        "the loudest seat": _take_plan(_greatest_offer("worth")),
    },
)
SUBJECTS: dict[str, Subject] = {
    **{name: audit_parts(FAMILIES[name]) for name in ("cto", "coo", "risk", "cost")},
    "reconcile": RECONCILE,
    **JOB_SUBJECTS,
    TEAM_VALUE.family.name: TEAM_VALUE,
}


def derive_subject(family: Family) -> Subject:
    """Return what an audit can know of a family from its oracle: the answer's fields and the best answer.

    Probes that need a score by another route or shortcuts of the family (V2, V3, V5, V6) need a subject here.
    """
    gold: Answer = family.solve(family.generate("validation", 0, 0, 1))
    fields = {name: FieldSpec(kind="number" if type(value) is int else "id") for name, value in gold.items()}

    def score(scenario: Scenario, answer: Answer) -> float:
        return float(answer == family.solve(scenario))

    return Subject(family=family, fields=fields, score=score, hacks={})


def list_subjects() -> dict[str, Subject]:
    """Return every subject by name, those that are derived from a family last."""
    derived = {name: derive_subject(family) for name, family in FAMILIES.items() if name not in SUBJECTS}
    return SUBJECTS | derived


def choose_subjects(names: Sequence[str]) -> list[Subject]:
    """Return the verifiers of these families, all for none.

    Raises:
        UserError: unknown family.
    """
    subjects = list_subjects()
    for name in names:
        if name not in subjects:
            raise unknown("family", name, list(subjects))
    return [subject for name, subject in subjects.items() if not names or name in names]
