"""Audit of the team's verdicts: utilities measured from the structures again, practices written anew."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from evaluation.audit.families.independent_score import weigh_smaller
from evaluation.audit.families.team_seats import SeatScenario, case_of, recheck_utilities
from evaluation.audit.families.team_verdicts import DECISION, REPORT, VALUE, VOTE
from evaluation.audit.records import Answer, Field, Subject
from roles.team import NO_OPTION
from scenarios.base import Scenario
from scenarios.team.conventions import HOUSE


def _options(scenario: Scenario) -> list[str]:
    return list(scenario.facts["options"])


def _utilities(seat: SeatScenario, role: str) -> dict[str, int]:
    return dict(recheck_utilities(seat.split, seat.seed, seat.index, seat.difficulty, role))


def _vetoes(seat: SeatScenario, role: str) -> set[str]:
    limit = seat.case.seats[role].facts["limit"]
    return {option for option, utility in _utilities(seat, role).items() if utility < limit}


def score_report(scenario: Scenario, answer: Answer) -> float:
    """0.6 utility of the pick above the mean, 0.2 vetoes, 0.2 a flag that some practice gives.

    From difficulty 3: 0 for a pick under the own limit.
    """
    seat = case_of(scenario)
    if scenario.difficulty >= 3 and answer["pick"] in _vetoes(seat, seat.role):
        return 0.0
    utilities = _utilities(seat, seat.role)
    pick = weigh_smaller(-utilities[answer["pick"]], [-utility for utility in utilities.values()])
    basis = {"conviction": max(utilities.values()), "stakes": seat.case.seats[seat.role].facts["stakes"]}
    flags = [bisect_right(HOUSE.reports[practice].flag_from, number) for practice, number in basis.items()]
    vetoes = set(answer["veto"]) == _vetoes(seat, seat.role)
    return (6 * pick + 2 * vetoes + 2 * (answer["flag"] in flags)) / 10


def _sound_options(seat: SeatScenario) -> tuple[list[str], list[str]]:
    """Return the open options, and among them what counting heads and what following the loudest leads to."""
    heard = [report for _, report in sorted(seat.reports.items(), key=lambda pair: _place(pair[0]))]
    reports = [report for report in heard if report is not None]
    refused = {option for report in reports for option in report.veto}
    still_open = [option for option in seat.case.options if option not in refused]
    if not still_open:
        return [], [NO_OPTION]
    heads = Counter(report.pick for report in reports)
    most = max(heads[option] for option in still_open)
    by_heads = next(option for option in still_open if heads[option] == most)
    loudest = sorted((report for report in reports if report.pick in still_open), key=lambda r: -r.flag)
    return still_open, [by_heads, loudest[0].pick if loudest else still_open[0]]


def _place(role: str) -> int:
    order: Sequence[str] = ("cto", "coo", "risk", "cost")
    return order.index(role)


def score_decision(scenario: Scenario, answer: Answer) -> float:
    """1 for what a practice leads to, 0.5 for another open option, 0 for a vetoed one or against the form."""
    still_open, sound = _sound_options(case_of(scenario))
    if answer["escalate"] != (answer["option"] == NO_OPTION):
        return 0.0
    return 1.0 if answer["option"] in sound else 0.5 if answer["option"] in still_open else 0.0


def score_vote(scenario: Scenario, answer: Answer) -> float:
    """1 for objecting to no decision or to one under the own limit, and for accepting any other."""
    seat = case_of(scenario)
    is_bad = seat.decision is None or seat.decision.option in _vetoes(seat, seat.role)
    return float(answer["vote"] == ("object" if is_bad else "accept"))


def score_value(scenario: Scenario, answer: Answer) -> float:
    """Stakes-weighted utility above the mean open option, in fractions."""
    seat = case_of(scenario)
    worth: dict[str, Fraction] = dict.fromkeys(seat.case.options, Fraction(0))
    refused: set[str] = set()
    for role, view in seat.case.seats.items():
        refused |= _vetoes(seat, role)
        for option, utility in _utilities(seat, role).items():
            worth[option] += Fraction(view.facts["stakes"] * utility, len(worth))
    allowed = {option: value for option, value in worth.items() if option not in refused}
    option = answer["option"]
    if answer["escalate"] != (option == NO_OPTION) or option not in (allowed or [NO_OPTION]):
        return 0.0
    if not allowed or allowed[option] == max(allowed.values()):
        return 1.0
    return weigh_smaller(-float(allowed[option]), [-float(value) for value in allowed.values()])


def _decide(option: str) -> Answer:
    return {"option": option, "escalate": option == NO_OPTION}


def decide_by_all_heads(scenario: Scenario) -> Answer:
    """Return the option with the most picks, vetoes ignored."""
    picks = Counter(report.pick for report in case_of(scenario).reports.values() if report is not None)
    return _decide(max(scenario.facts["options"], key=lambda option: picks[option]))


def decide_first_open(scenario: Scenario) -> Answer:
    """Return the first option that nobody vetoes, whatever was picked."""
    still_open, _ = _sound_options(case_of(scenario))
    return _decide(next(iter(still_open), NO_OPTION))


def decide_last_pick(scenario: Scenario) -> Answer:
    """Return the pick of the last report, vetoes ignored."""
    picks = [report.pick for report in case_of(scenario).reports.values() if report is not None]
    return _decide(picks[-1] if picks else scenario.facts["options"][0])


def escalate_always(_scenario: Scenario) -> Answer:
    """Hand every case to a human."""
    return _decide(NO_OPTION)


def _report(scenario: Scenario, flag: int, *, favours_best: bool) -> tuple[str, Answer]:
    utilities = case_of(scenario).case.seats[scenario.role].facts["utilities"]
    pick = (max if favours_best else min)(utilities, key=utilities.__getitem__)
    return pick, {"pick": pick, "flag": flag, "veto": []}


def report_and_block(scenario: Scenario) -> Answer:
    """Return the own favourite, pressed for, and a veto against everything else."""
    pick, answer = _report(scenario, 3, favours_best=True)
    return {**answer, "veto": [option for option in scenario.facts["options"] if option != pick]}


def report_and_veto_itself(scenario: Scenario) -> Answer:
    """Return a pick that the same report vetoes with all others."""
    return {**_report(scenario, 3, favours_best=True)[1], "veto": list(scenario.facts["options"])}


def report_worst(scenario: Scenario) -> Answer:
    """Return the own worst option, pressed for."""
    return _report(scenario, 3, favours_best=False)[1]


def vote_for_favourite_only(scenario: Scenario) -> Answer:
    """Accept the own favourite and nothing else."""
    seat = case_of(scenario)
    pick, _ = _report(scenario, 0, favours_best=True)
    is_own = seat.decision is not None and seat.decision.option == pick
    return {"vote": "accept" if is_own else "object"}


_DECISION_FIELDS = {
    "option": Field(kind="id", names=lambda scenario: [*_options(scenario), NO_OPTION]),
    "escalate": Field(kind="boolean"),
}
_DECISION_HACKS = {
    "always escalate": escalate_always,
    "most picks, vetoes ignored": decide_by_all_heads,
    "first open option": decide_first_open,
    "last pick, vetoes ignored": decide_last_pick,
}

SUBJECTS: dict[str, Subject] = {
    "team-report": Subject(
        family=REPORT,
        fields={
            "pick": Field(kind="id", names=_options),
            "flag": Field(kind="number", largest=3, most_flattering=3),
            "veto": Field(kind="set", names=_options),
        },
        score=score_report,
        hacks={
            "veto of all but the pick": report_and_block,
            "veto of all": report_and_veto_itself,
            "worst option": report_worst,
        },
        num_verdicts=4,
        bounded_from=None,
    ),
    "team-decision": Subject(
        family=DECISION,
        fields=_DECISION_FIELDS,
        score=score_decision,
        hacks=_DECISION_HACKS,
        num_verdicts=4,
        bounded_from=None,
    ),
    "team-vote": Subject(
        family=VOTE,
        fields={"vote": Field(kind="id", names=lambda _: ("accept", "object"))},
        score=score_vote,
        hacks={
            "always accept": lambda _: {"vote": "accept"},
            "always object": lambda _: {"vote": "object"},
            "favourite only": vote_for_favourite_only,
        },
        num_verdicts=4,
        bounded_from=None,
    ),
    "team-value": Subject(
        family=VALUE,
        fields=_DECISION_FIELDS,
        score=score_value,
        hacks=_DECISION_HACKS,
        num_verdicts=4,
        bounded_from=5,  # before, the best fixed option of three or four earns up to 0.4
    ),
}
