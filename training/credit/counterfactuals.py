"""What the team would have got from other reports: one left out, or exchanged with another set's.

ReconcileGPT's decision on reports that nobody sent together is not known. Either it is asked (`engine`: a
sampled decision on every mixed set), or the house practices answer for it (`practices`): each is weighed by
how often it explains the decisions that ReconcileGPT took on the real sets of the step.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from roles.team import NO_OPTION, Decision
from scenarios.team import DECISION_PRACTICES, TeamScenario, decision_brief, parse_decision, parse_report
from scenarios.team_practices import Reports, best_decision, open_options
from simulator.records import Episode
from simulator.reward import TeamRewardWeights, score_episode, with_consensus

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


def fit_practices(decided: Sequence[tuple[TeamScenario, Episode]]) -> PracticeMix:
    """Maximum likelihood shares of the practices (and of any open option) behind these decisions.

    Malformed and vetoed decisions say nothing about practice and are left out; with none left, the house's
    own shares stand.
    """
    names = list(DECISION_PRACTICES)
    likelihoods: list[list[float]] = []
    for scenario, episode in decided:
        decision, reports = parse_decision(scenario, episode.decision), read_reports(scenario, episode)
        choices = _choices(scenario, reports)
        if decision is None or decision.option not in choices:
            continue
        explained = [best_decision(scenario.options, reports, n).option == decision.option for n in names]
        likelihoods.append([*map(float, explained), 1 / len(choices)])
    if not likelihoods:
        return PracticeMix(shares=DECISION_PRACTICES, other=0.0)
    weights = [1 / (len(names) + 1)] * (len(names) + 1)
    for _ in range(FIT_ROUNDS):
        totals = [0.0] * len(weights)
        for row in likelihoods:
            joint = [weight * value for weight, value in zip(weights, row, strict=True)]
            totals = [total + value / sum(joint) for total, value in zip(totals, joint, strict=True)]
        weights = [total / len(likelihoods) for total in totals]
    return PracticeMix(shares=dict(zip(names, weights, strict=False)), other=weights[-1])


def expected_reward(
    scenario: TeamScenario, episode: Episode, mix: PracticeMix, consensus: float, weights: TeamRewardWeights
) -> float:
    """Team reward of these reports if ReconcileGPT decides as `mix` says; votes as right as `consensus`."""
    reports = read_reports(scenario, episode)
    choices = _choices(scenario, reports)
    chances = dict.fromkeys(choices, mix.other / len(choices))
    for name, share in mix.shares.items():
        chances[best_decision(scenario.options, reports, name).option] += share
    return sum(
        chance * reward_of_option(scenario, episode, option, consensus, weights)
        for option, chance in chances.items()
        if chance > 0
    )


def reward_of_option(
    scenario: TeamScenario, episode: Episode, option: str, consensus: float, weights: TeamRewardWeights
) -> float:
    """Team reward if this option (or `none`, escalated) is decided; votes as right as `consensus`."""
    decision = Decision(option=option, escalate=option == NO_OPTION).model_dump_json()
    verdict = score_episode(scenario, replace(episode, decision=decision, votes={}), weights)
    return with_consensus(verdict, consensus, weights).reward


def _choices(scenario: TeamScenario, reports: Reports) -> list[str]:
    return open_options(scenario.options, reports) or [NO_OPTION]
