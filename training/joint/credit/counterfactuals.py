"""What the team would have got from other reports: one left out, or exchanged with another set's.

ReconcileGPT's decision on reports that nobody sent together is not known. Either it is asked (`engine`: a
sampled decision on every mixed set), or the house practices answer for it (`practices`): each is weighed by
how often it explains the decisions that ReconcileGPT took on the real sets of the step.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from roles.team import NO_OPTION, Decision
from scenarios.team import TeamScenario, decision_brief, parse_decision, parse_report
from scenarios.team.practices import Reports, best_decision, open_options
from simulator.records import Episode

FIT_ROUNDS = 30  # of expectation maximisation; two or three suffice for two practices


@dataclass(frozen=True, slots=True, kw_only=True)
class PracticeMix:
    """How ReconcileGPT seems to decide: a share for each house practice, the rest any open option.

    Example: PracticeMix(shares={"headcount": 0.3, "priority": 0.65}, other=0.05)
    """

    shares: Mapping[str, float]
    other: float


def leave_out(episode: Episode, role: str) -> Episode:
    """The same reports with the role's own missing: the default action of `difference` credit."""
    return replace(episode, reports={**episode.reports, role: ""})


def swap_in(partners: Episode, donor: Episode, role: str) -> Episode:
    """The reports of `partners` with the role's own taken from `donor`; nothing else of either counts."""
    return replace(partners, reports={**partners.reports, role: donor.reports[role]})


def mixed_sets(sets: Sequence[Episode], roles: Sequence[str]) -> Iterator[tuple[str, int, int, Episode]]:
    """(role, set of its report, set of its partners, the reports) for every exchange, own sets included."""
    for role in roles:
        for own, donor in enumerate(sets):
            for place, partners in enumerate(sets):
                yield role, own, place, partners if own == place else swap_in(partners, donor, role)


def read_reports(scenario: TeamScenario, episode: Episode) -> Reports:
    """What the texts parse to; None for a malformed or missing one."""
    return {role: parse_report(scenario, text) for role, text in episode.reports.items()}


def brief_of(scenario: TeamScenario, episode: Episode) -> str:
    """All that ReconcileGPT would read: sets of equal briefs are one situation."""
    return decision_brief(scenario.options, read_reports(scenario, episode))


Explained = Counter[
    tuple[float, ...]
]  # likelihood under every practice and under "any open option" -> decisions


def count_explained(decided: Sequence[tuple[TeamScenario, Episode]]) -> Explained:
    """How many of these decisions each practice explains, all that `fit_practices` needs of them.

    Malformed and vetoed decisions say nothing about practice and are left out.
    """
    explained: Explained = Counter()
    for scenario, episode in decided:
        decision, reports = parse_decision(scenario, episode.decision), read_reports(scenario, episode)
        choices = _choices(scenario, reports)
        if decision is None or decision.option not in choices:
            continue
        rules = scenario.conventions
        by_practice = [
            best_decision(scenario.options, reports, name, rules).option == decision.option
            for name in rules.decisions
        ]
        explained[(*map(float, by_practice), 1 / len(choices))] += 1
    return explained


def fit_practices(explained: Explained, house: Mapping[str, float]) -> PracticeMix:
    """Maximum likelihood shares of the practices, and of any open option, behind the counted decisions.

    `house` names the practices of the counted cases, in the counts' order, with the shares that stand without
    a decision. The order of the counts does not matter: decisions that
    several processes counted and added up give what one process would have found.
    """
    if not explained:
        return PracticeMix(shares=house, other=0.0)
    rows, total = sorted(explained.items()), explained.total()
    weights = [1 / (len(house) + 1)] * (len(house) + 1)
    for _ in range(FIT_ROUNDS):
        sums = [0.0] * len(weights)
        for row, count in rows:
            joint = [weight * value for weight, value in zip(weights, row, strict=True)]
            sums = [one + count * value / sum(joint) for one, value in zip(sums, joint, strict=True)]
        weights = [one / total for one in sums]
    return PracticeMix(shares=dict(zip(house, weights, strict=False)), other=weights[-1])


def expected_reward(
    scenario: TeamScenario, episode: Episode, mix: PracticeMix, reward_of: Callable[[Episode], float]
) -> float:
    """What these reports are worth if ReconcileGPT decides as `mix` says; `reward_of` scores an episode."""
    reports = read_reports(scenario, episode)
    choices = _choices(scenario, reports)
    chances = dict.fromkeys(choices, mix.other / len(choices))
    for name, share in mix.shares.items():
        chances[best_decision(scenario.options, reports, name, scenario.conventions).option] += share
    return sum(
        chance * reward_of(decide_on(episode, option)) for option, chance in chances.items() if chance > 0
    )


def decide_on(episode: Episode, option: str) -> Episode:
    """The same reports with this option decided (or `none`, escalated), and nobody's vote on it."""
    decision = Decision(option=option, escalate=option == NO_OPTION).model_dump_json()
    return replace(episode, decision=decision, votes={})


def _choices(scenario: TeamScenario, reports: Reports) -> list[str]:
    return open_options(scenario.options, reports) or [NO_OPTION]
