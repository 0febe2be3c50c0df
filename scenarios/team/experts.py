"""Experts of several habits at the table; each habit is right by its role's own reward.

A seat's habit says which part it offers first on every option: `full` the one of the largest worth,
`lean` the first step, `strict` and `easy` all steps that return at least 1.5 and 0.6 k$ per k$, `fair` the
best part at a quarter of the budget, `measured` all steps over a hurdle of 2, 1 or 0.6 where money is tight,
in the middle or ample, `rising` all steps whose return allows for the share of the budget that the offer
then takes, `searched` what the best policy found offers (`scenarios.team.searched`). A seat that finds its
part by measuring names the most that it may cost instead: a `quarter`, a `third` or a `half` of the budget,
or `all` of it (`SHARE_HABITS`). ReconcileGPT's habit says how it funds: `exact` the best of all combinations,
`return` and `worth` offer by offer in that order. Joint training has to find out which habits serve the
team best together.
"""

import json
import random
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import zip_longest

from roles.team import NO_OPTION, Ask, Decision, Offer, OfferReply, Report, Vote
from scenarios.base import Step, Style
from scenarios.company.knapsack import list_efficient, take_within
from scenarios.company.records import Part, Plan
from scenarios.company.steps import POOR, count_tenths, rate_return, step_return
from scenarios.team.frontier import Band, budget_band, list_steps, take_by_hurdle, take_steps
from scenarios.team.funding import Funding, best_funding, best_in_order
from scenarios.team.offers import Table, breaks_limit, is_needed, is_vetoed
from scenarios.team.playable import PlayableCase, PublicCase

STRICT, EASY = Fraction(3, 2), Fraction(3, 5)  # least return of a step, k$ per k$
HURDLES: Mapping[Band, Fraction] = {"tight": Fraction(2), "middle": Fraction(1), "ample": EASY}
# by the word for a step's return: the offer's cost stays below this many tenths of the budget
RISING_TENTHS: Mapping[str, int] = {"high": 6, "good": 5, "mid": 4, "low": 3, POOR: 2}
# share of the experts who hold each habit
REPORT_HABITS: Mapping[str, float] = {
    "full": 0.28,
    "lean": 0.08,
    "fair": 0.1,
    "strict": 0.16,
    "easy": 0.12,
    "rising": 0.26,  # not the most frequent one at any reach of the budget
    "measured": 0.0,  # the best habit of the scripted teams, and
    "searched": 0.0,  # the best policy known: no demonstration shows them
}
# of the experts whose reports a question to ReconcileGPT alone shows
ASKED_HABITS: Mapping[str, float] = {
    "full": 0.2,
    "lean": 0.15,
    "fair": 0.15,
    "strict": 0.2,
    "easy": 0.15,
    "measured": 0.15,
}
SHARES: Mapping[str, int] = {"quarter": 4, "third": 3, "half": 2, "all": 1}  # of a budget, as divisors
SHARE_HABITS: Mapping[str, float] = {"quarter": 0.4, "third": 0.2, "half": 0.2, "all": 0.2}
FUNDING_HABITS: Mapping[str, float] = {"exact": 0.4, "return": 0.3, "worth": 0.3}


def sample_habit(rng: random.Random, habits: Mapping[str, float]) -> str:
    """One habit, by the shares of the experts who hold it."""
    return rng.choices(list(habits), weights=list(habits.values()))[0]


def choose_part(case: PlayableCase, seat: str, option: str, habit: str) -> Part | None:
    """The part that an expert of the habit offers on the option; None where there is nothing to offer.

    Raises:
        ValueError: unknown habit.
    """
    frontier = list_efficient(case.parts_of(seat, option) or ())
    if not frontier or frontier[-1].cost == 0:
        return None
    if habit == "full":
        chosen = frontier[-1]
    elif habit == "lean":
        chosen = take_by_hurdle(frontier, Fraction(10**9))
    elif habit == "fair":
        quarter = case.public.budget // len(case.seats)
        chosen = take_within(frontier, quarter) or frontier[0]
    elif habit in SHARES:
        return take_within(frontier, name_amount(case, seat, option, habit))
    elif habit in ("strict", "easy"):
        chosen = take_by_hurdle(frontier, STRICT if habit == "strict" else EASY)
    elif habit == "searched":
        from scenarios.team.searched import choose_searched_part  # needs numpy, which takes 0.1 s to import

        return choose_searched_part(case, seat, option)
    elif habit == "rising":
        chosen = _take_rising(frontier, case.public.budget)
    elif habit == "measured":
        chosen = take_by_hurdle(frontier, HURDLES[budget_band(case, seat)])
    else:
        raise ValueError(f"unknown habit {habit!r} (known: {', '.join((*REPORT_HABITS, *SHARES))})")
    if not chosen.choice:  # at a quarter of the budget nothing may be within reach: offer the cheapest part
        chosen = frontier[1]
    return chosen


def _take_rising(frontier: Sequence[Part], budget: int) -> Part:
    """The dearest part of the upper hull up to which every step stays within `RISING_TENTHS`."""

    def takes(lower: Part, upper: Part) -> bool:
        word = rate_return(step_return(lower, upper))
        return count_tenths(upper.cost, budget) < RISING_TENTHS[word]

    return take_steps(frontier, takes)


def name_amount(case: PlayableCase, seat: str, option: str, habit: str) -> int:
    """The most that the seat's part may cost on the option: the habit's share of the budget.

    No less than the cheapest upgrade; at least half of the budget where the option breaks the seat's limit
    as it is. Where no efficient part is within that, the whole budget, or what the cheapest one costs.
    """
    budget, parts = case.public.budget, case.parts_of(seat, option) or ()
    amount = max(budget // SHARES[habit], min((part.cost for part in parts if part.choice), default=0))
    if is_needed(case, seat, option):
        amount = max(amount, budget // 2)
    cheapest = min((part.cost for part in list_efficient(parts) if part.choice), default=0)
    return amount if cheapest <= amount else max(budget, cheapest)


def choose_parts(case: PlayableCase, seat: str, option: str, habit: str) -> list[Part]:
    """All that an expert of the habit offers on the option: the habit's part, then the steps next to it.

    As many as the case's `offers_per_option`, where there are so many; the cheaper neighbour comes first.
    """
    chosen = choose_part(case, seat, option, habit)
    if chosen is None:
        return []
    steps = list_steps(case, seat, option)
    cheaper = [part for part in reversed(steps) if part.cost < chosen.cost]
    dearer = [part for part in steps if part.cost > chosen.cost]
    beside = [part for pair in zip_longest(cheaper, dearer) for part in pair if part is not None]
    return [chosen, *beside][: case.public.offers_per_option]


def best_report(case: PlayableCase, seat: str, habit: str) -> Report:
    """Report of an expert of this habit: offers on every option on which there is something to offer."""
    parts = [part for option in case.options for part in choose_parts(case, seat, option, habit)]
    offers = [make_offer(part) for part in parts]
    needs = [option for option in case.options if is_needed(case, seat, option)]
    veto = [option for option in case.options if is_vetoed(case, seat, option)]
    return Report(offers=offers, needs=needs, veto=veto, note=_note(needs, veto))


def make_offer(part: Part) -> Offer:
    """The part as an offer, with its true cost and worth."""
    return Offer(option=part.option, part=list(part.choice), cost=part.cost, worth=part.worth)


def _note(needs: list[str], veto: list[str]) -> str:
    notes = [f"{option} cannot be run without my part." for option in needs]
    notes += [f"{option} breaks my limit whatever is bought." for option in veto]
    return " ".join(notes)


def expert_report(case: PlayableCase, seat: str, habit: str) -> Step:
    """The report after a line that names the habit, e.g. 'lean\\n{"offers": [...], ...}'."""
    return Step(text=f"{habit}\n{json.dumps(best_report(case, seat, habit).model_dump())}")


def best_reply(case: PlayableCase, seat: str, ask: Ask, style: Style = "full") -> OfferReply:
    """The best part that costs no more than was asked for; no offer where there is none.

    In short style it is one of the steps that the seat's brief lists.
    """
    parts = list_efficient(case.parts_of(seat, ask.option) or ())
    part = take_within(list_steps(case, seat, ask.option) if style == "short" else parts, ask.cost_at_most)
    return OfferReply(offer=make_offer(part) if part is not None and part.choice else None)


def choose_funding(public: PublicCase, table: Table, habit: str) -> Funding | None:
    """Funding by the habit, from the reports alone; None where no option can be run.

    Where funding in order finds no plan, every combination is tried.

    Raises:
        ValueError: unknown habit.
    """
    if habit not in FUNDING_HABITS:
        raise ValueError(f"unknown habit {habit!r} (known: {', '.join(FUNDING_HABITS)})")
    in_order = None if habit == "exact" else best_in_order(public, table, by_return=habit == "return")
    return in_order or best_funding(public, table)


def best_decision(public: PublicCase, table: Table, habit: str) -> Decision:
    """Decision of a ReconcileGPT of this habit on these reports."""
    chosen = choose_funding(public, table, habit)
    if chosen is None:
        return Decision(
            option=NO_OPTION, fund=[], escalate=True, reason="No option can be run within the budget."
        )
    first = max(public.base, key=public.base.__getitem__)
    conflicts = () if first == chosen.option else (f"{first} looks better before the offers",)
    reason = f"{chosen.option} is worth {chosen.worth} at cost {chosen.cost} of {public.budget}."
    return Decision(
        option=chosen.option,
        fund=[offer.label for offer in chosen.offers],
        escalate=False,
        conflicts=conflicts,
        reason=reason,
    )


def expert_decision(public: PublicCase, table: Table, habit: str) -> Step:
    """The decision after a line that names the habit."""
    return Step(text=f"{habit}\n{json.dumps(best_decision(public, table, habit).model_dump())}")


def best_vote(case: PlayableCase, seat: str, plan: Plan | None, *, escalated: bool) -> Vote:
    """Object where there is no decision or the plan breaks the seat's own limit; accept else."""
    if escalated:
        return Vote(vote="accept")
    if plan is None:
        return Vote(vote="object", reason="There is no decision.")
    if breaks_limit(case, seat, plan):
        return Vote(vote="object", reason=f"{plan.option} breaks my limit as it is funded.")
    return Vote(vote="accept")
