"""Each seat's own verdict on what it writes (role-local, not the team's)."""

from roles.base import AnswerError, parse_answer
from roles.team import Vote
from scenarios.base import Verdict, rejected
from scenarios.company.knapsack import list_efficient
from scenarios.company.records import Plan
from scenarios.team.experts import best_vote
from scenarios.team.funding import choose_best, find_obstacle, list_all_fundings, make_funding
from scenarios.team.offers import Table, check_report, find_part, is_needed, is_vetoed, offers_on
from scenarios.team.playable import PublicCase
from scenarios.team.reading import read_decision, read_report
from scenarios.team.scenario import TeamScenario


def verify_report(scenario: TeamScenario, seat: str, text: str) -> Verdict:
    """0.5 efficient offers + 0.2 an offer wherever there is something to gain + 0.3 needs and vetoes right.

    Any false claim, or anything struck out as malformed, earns 0. An offer is efficient where no cheaper part
    of the seat is worth as much; equal offers count once.
    """
    try:
        report, faults = read_report(text)
    except AnswerError as error:
        return rejected(error.failure, str(error))
    if faults:
        return rejected("schema", faults[0])
    checked = check_report(scenario, seat, report)
    if checked.false_claims:
        return rejected("wrong_figures", f"false claim: {checked.false_claims[0]}")
    offered = {offer.option for offer in checked.offers}
    distinct = {(offer.option, tuple(sorted(offer.choice))) for offer in checked.offers}
    efficient = [
        find_part(scenario, seat, option, choice) in list_efficient(scenario.parts_of(seat, option))
        for option, choice in sorted(distinct)
    ]
    gainful = {option for option in scenario.options if _can_gain(scenario, seat, option)}
    flags = [option in checked.needs for option in scenario.options if is_needed(scenario, seat, option)]
    flags += [option in checked.veto for option in scenario.options if is_vetoed(scenario, seat, option)]
    parts = {
        "efficient": sum(efficient) / len(efficient) if efficient else float(not gainful),
        "coverage": len(offered & gainful) / len(gainful) if gainful else 1.0,
        "flags": sum(flags) / len(flags) if flags else 1.0,
    }
    exact = all(value == 1.0 for value in parts.values())
    return Verdict(
        reward=(5 * parts["efficient"] + 2 * parts["coverage"] + 3 * parts["flags"]) / 10
        if offered or not gainful
        else 0.0,
        parts=parts,
        exact=exact,
        feasible=True,
        explanation=f"{sum(efficient)} of {len(efficient)} offers efficient, {len(offered & gainful)} of "
        f"{len(gainful)} options covered",
        failure=None if exact else "suboptimal",
    )


def _can_gain(scenario: TeamScenario, seat: str, option: str) -> bool:
    frontier = list_efficient(scenario.parts_of(seat, option))
    return bool(frontier) and bool(frontier[-1].choice)


def verify_decision(public: PublicCase, table: Table, text: str) -> Verdict:
    """By the reports: 1 for the best plan that can be run, 0 at the mean one and for a plan that cannot."""
    try:
        decision = read_decision(public, table, text)
    except AnswerError as error:
        return rejected(error.failure, str(error))
    plans = list_all_fundings(public, table)
    best = choose_best(plans)
    if decision.escalate or best is None:
        right = decision.escalate and best is None
        if not right:
            why = "needless escalation" if best is not None else "no option can be run: escalate"
            return rejected("infeasible", why)
        return Verdict(reward=1.0, parts={"graded": 1.0}, exact=True, feasible=True, explanation="escalated")
    offers = [offer for offer in offers_on(table, decision.option) if offer.label in decision.fund]
    obstacle = find_obstacle(public, table, decision.option, offers)
    if obstacle is not None:
        return rejected("infeasible", obstacle)
    chosen = make_funding(public, decision.option, offers)
    mean = sum(plan.worth for plan in plans) / len(plans)
    exact = chosen.worth == best.worth
    graded = 1.0 if exact else max(0.0, (chosen.worth - mean) / (best.worth - mean))
    return Verdict(
        reward=graded,
        parts={"graded": graded, "exact": float(exact)},
        exact=exact,
        feasible=True,
        explanation=f"worth {chosen.worth} by the reports, best {best.worth}",
        failure=None if exact else "suboptimal",
    )


def verify_vote(scenario: TeamScenario, seat: str, plan: Plan | None, escalated: bool, text: str) -> Verdict:
    """1 for the right vote: object where there is no decision or the plan breaks the seat's own limit."""
    try:
        vote = parse_answer(text, Vote)
    except AnswerError as error:
        return rejected(error.failure, str(error))
    wanted = best_vote(scenario, seat, plan, escalated=escalated).vote
    right = vote.vote == wanted
    return Verdict(
        reward=float(right),
        parts={"vote": float(right)},
        exact=right,
        feasible=True,
        explanation=f"the right vote is {wanted}",
        failure=None if right else "suboptimal",
    )
