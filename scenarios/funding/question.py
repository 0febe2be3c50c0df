"""The question of the reconcile family: an option and its funding, given the reports of experts.

The reports are those of experts whose habits are drawn, on the team case of the same coordinates; every claim
was checked. A question has one best plan, or none that can be run.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scenarios.base import Split
from scenarios.company.records import Option
from scenarios.company.splits import belongs_to
from scenarios.team.experts import ASKED_HABITS, best_report, sample_habit
from scenarios.team.funding import Funding, list_all_fundings, list_conflicts
from scenarios.team.offers import CheckedReport, TabledOffer, check_report, offers_on
from scenarios.team.playable import PublicCase
from scenarios.team.scenario import TeamScenario, generate

MAX_TRIES = 2000  # draws of habits and of a budget
BUDGET_SHARES = (40, 100)  # percent of the team case's budget
LEAST_PLANS = 4  # that can be run, unless none can


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question to ReconcileGPT, as its facts state it.

    Example: read_question(scenario.facts).public.budget == 40
    """

    public: PublicCase
    table: Mapping[str, CheckedReport | None]


def read_question(facts: Mapping[str, Any]) -> Question:
    """The question that the facts hold."""
    public = PublicCase(
        sector=facts["sector"],
        situation=facts["situation"],
        options={letter: Option(letter=letter, **option) for letter, option in facts["options"].items()},
        budget=facts["budget"],
        wording=facts.get("wording", 0),
        seats=tuple(facts["reports"]),
    )
    return Question(
        public=public, table={seat: _read_report(seat, r) for seat, r in facts["reports"].items()}
    )


def _read_report(seat: str, report: Mapping[str, Any]) -> CheckedReport:
    offers = tuple(
        TabledOffer(
            label=seat,
            seat=seat,
            option=offer["option"],
            choice=tuple(offer["part"]),
            cost=offer["cost"],
            worth=offer["worth"],
        )
        for offer in report["offers"]
    )
    return CheckedReport(
        offers=offers,
        needs=tuple(report["needs"]),
        veto=tuple(report["veto"]),
        note=report["note"],
        false_claims=(),
    )


def draw_question(split: Split, seed: int, index: int, difficulty: int) -> dict[str, Any]:
    """Facts of one question on the team case of the same coordinates, as JSON values.

    Raises:
        ValueError: coordinates out of range.
    """
    scenario = generate(split, seed, index, difficulty)
    rng = random.Random(f"reconcile/{scenario.key}")
    for _ in range(MAX_TRIES):
        facts = _draw_facts(scenario, rng)
        question = read_question(facts)
        if belongs_to(split, _list_figures(question)) and _is_clear(question):
            return facts
    raise RuntimeError(f"no reconcile question on {scenario.key} in {MAX_TRIES} draws")


def _draw_facts(scenario: TeamScenario, rng: random.Random) -> dict[str, Any]:
    case, reports = scenario.case, {}
    for seat in scenario.seats:
        report = best_report(scenario, seat, sample_habit(rng, ASKED_HABITS))
        checked = check_report(scenario, seat, report)
        offers = [
            {"option": offer.option, "part": list(offer.choice), "cost": offer.cost, "worth": offer.worth}
            for offer in checked.offers
        ]
        reports[seat] = {
            "offers": offers,
            "needs": list(checked.needs),
            "veto": list(checked.veto),
            "note": checked.note,
        }
    return {
        "sector": case.sector,
        "situation": case.situation,
        "wording": case.wording,
        "options": {o.letter: {"name": o.name, "base": o.base} for o in case.options.values()},
        "budget": max(1, case.budget * rng.randint(*BUDGET_SHARES) // 100),
        "reports": reports,
    }


def _list_figures(question: Question) -> list[Any]:
    """All figures that the texts of either style show: texts that are equal show equal figures."""
    offers = [
        [offer.label, offer.option, offer.cost, offer.worth]
        for option in question.public.base
        for offer in offers_on(question.table, option)
    ]
    return [question.public.budget, list(question.public.base.values()), offers]


def _is_clear(question: Question) -> bool:
    """Return whether there is one best plan among several, or none at all."""
    plans = list_all_fundings(question.public, question.table)
    if not plans:
        return True
    ranks = sorted(((plan.worth, -plan.cost) for plan in plans), reverse=True)
    return len(plans) >= LEAST_PLANS and ranks[0] != ranks[1] and ranks[0][0] > ranks[-1][0]


def answer_of(question: Question, plan: Funding | None) -> dict[str, Any]:
    """The answer object that chooses this plan; None escalates."""
    if plan is None:
        return {"option": "none", "fund": [], "escalate": True, "conflicts": []}
    return {
        "option": plan.option,
        "fund": [offer.label for offer in plan.offers],
        "escalate": False,
        "conflicts": list_conflicts(question.public, question.table, plan.option),
    }


def find_best_again(question: Question) -> tuple[int, int] | None:
    """Worth and cost of the best plan by dynamic programming over money; None where nothing can be run."""
    best: tuple[int, int] | None = None
    for option, base in question.public.base.items():
        worth_at = {0: base}  # k$ spent so far -> greatest worth
        for report in question.table.values():
            assert report is not None
            moves = [(offer.cost, offer.worth) for offer in report.offers if offer.option == option]
            if option in report.veto:
                moves = []
            elif option not in report.needs:
                moves.append((0, 0))
            grown: dict[int, int] = {}
            for spent, worth in worth_at.items():
                for cost, gain in moves:
                    if spent + cost <= question.public.budget:
                        grown[spent + cost] = max(grown.get(spent + cost, worth + gain), worth + gain)
            worth_at = grown
        for spent, worth in worth_at.items():
            if best is None or (worth, -spent) > (best[0], -best[1]):
                best = worth, spent
    return best
