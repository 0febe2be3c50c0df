"""Simple policies on given reports: random, constant, greedy, and greedy that keeps what options need."""

import json
import random
from collections.abc import Mapping
from dataclasses import replace

from scenarios.base import Scenario
from scenarios.funding.question import answer_of, read_question
from scenarios.team.funding import best_in_order, choose_best, list_all_fundings
from scenarios.team.offers import CheckedReport, offers_on


def answer_randomly(scenario: Scenario, rng: random.Random) -> str:
    """Any option, any of its offers, any conflicts."""
    question = read_question(scenario.facts)
    option = rng.choice(list(question.public.base))
    fund = [offer.label for offer in offers_on(question.table, option) if rng.random() < 0.5]
    conflicts = [seat for seat in question.public.seats if rng.random() < 0.5]
    return json.dumps({"option": option, "fund": fund, "escalate": False, "conflicts": conflicts})


def answer_first_option(_scenario: Scenario, _rng: random.Random) -> str:
    """The first option with nothing funded: the one plan that can be named without reading."""
    return json.dumps({"option": "A", "fund": [], "escalate": False, "conflicts": []})


def answer_greedily(scenario: Scenario, _rng: random.Random) -> str:
    """Funds by worth per k$ while money lasts, takes the best option so; overlooks needs and vetoes."""
    question = read_question(scenario.facts)
    blithe: Mapping[str, CheckedReport | None] = {
        seat: report and replace(report, needs=(), veto=()) for seat, report in question.table.items()
    }
    return json.dumps(answer_of(question, best_in_order(question.public, blithe, by_return=True)))


def answer_honestly(scenario: Scenario, _rng: random.Random) -> str:
    """Fund needed parts first, then by worth per k$ while money lasts; escalate if nothing can be run."""
    question = read_question(scenario.facts)
    plan = best_in_order(question.public, question.table, by_return=True)
    return json.dumps(
        answer_of(question, plan or choose_best(list_all_fundings(question.public, question.table)))
    )
