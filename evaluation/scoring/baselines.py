"""Baselines on the same scenarios, without an engine: blind, constant, heuristic and exact players.

Oracle teams follow from their practices. Every vote is by the book except where a baseline says otherwise.
"""

import random
import statistics
from collections.abc import Callable, Mapping, Sequence

from evaluation.scoring.scores import RoleScores, TeamScores
from roles.team import NO_OPTION, Decision
from scenarios.base import Scenario, Verdict
from scenarios.registry import FAMILIES
from scenarios.team import (
    TeamScenario,
    expert_decision,
    expert_report,
    expert_vote,
    parse_decision,
    parse_report,
    parse_vote,
    sample_practice,
)
from scenarios.team.case import favourite, own_vetoes
from scenarios.team.practices import PracticeKind
from simulator.records import Episode
from simulator.reward import TeamRewardWeights, TeamVerdict, score_episode


def score_role_baselines(role: str, scenarios: Sequence[Scenario]) -> list[RoleScores]:
    """random, best constant, greedy heuristic and oracle on the same scenarios."""
    family = FAMILIES[role]
    players: dict[str, Callable[[Scenario, random.Random], str]] = {
        "random": family.baselines["random"],
        "constant": family.baselines["constant"],
        "heuristic": family.baselines["greedy"],
        "oracle": lambda scenario, rng: family.demonstrate(scenario, rng)[-1].text,
    }
    return [
        _baseline_scores(
            role, name, [family.verify(s, player(s, random.Random(f"{name}/{s.key}"))) for s in scenarios]
        )
        for name, player in players.items()
    ]


def _baseline_scores(role: str, stage: str, verdicts: Sequence[Verdict]) -> RoleScores:
    return RoleScores(
        role=role,
        stage=stage,
        sampled=tuple(verdict.reward for verdict in verdicts),
        greedy=(),
        sampled_exact=tuple(verdict.exact for verdict in verdicts),
        greedy_exact=(),
        sampled_feasible=tuple(verdict.feasible for verdict in verdicts),
        greedy_feasible=(),
        num_tool_failures=0,
        mean_tokens=0.0,
    )


def score_team_baselines(scenarios: Sequence[TeamScenario], weights: TeamRewardWeights) -> list[TeamScores]:
    """Random team, heuristic chair, majority vote, one agent that sees all, oracle roles, the optimum."""
    makers: dict[str, Callable[[TeamScenario], Episode]] = {
        "random": _random_episode,
        "greedy": _first_come_episode,
        "majority": _majority_episode,
        "single": _single_head_episode,
        "oracle_common": _common_episode,
        "oracle_best": lambda scenario: expert_episode(scenario, *scenario.conventions.best),
        "oracle": _optimal_episode,
    }
    scores = []
    for stage, make in makers.items():
        episodes = [make(scenario) for scenario in scenarios]
        verdicts = [score_episode(s, e, weights) for s, e in zip(scenarios, episodes, strict=True)]
        scores.append(_team_scores(stage, verdicts, [], episodes))
    return scores


def expert_episode(scenario: TeamScenario, report_practice: str, decision_practice: str) -> Episode:
    """Return a meeting of experts who all follow the same practices."""
    reports = {role: expert_report(scenario, role, report_practice).text for role in scenario.seats}
    parsed = {role: parse_report(scenario, text) for role, text in reports.items()}
    decision = expert_decision(scenario.options, parsed, decision_practice, scenario.conventions)
    return book_episode(scenario, reports, decision.text)


def _common_episode(scenario: TeamScenario) -> Episode:
    """Return a meeting of experts of the commonest practices; each draws its own where none is commoner."""
    rng = random.Random(f"common/{scenario.key}")
    rules = scenario.conventions

    def choose(kind: PracticeKind, shares: Mapping[str, float]) -> str:
        is_tied = list(shares.values()).count(max(shares.values())) > 1
        return sample_practice(rng, kind, rules) if is_tied else _most_common(shares)

    reports = {
        role: expert_report(scenario, role, choose("report", rules.report_shares)).text
        for role in scenario.seats
    }
    parsed = {role: parse_report(scenario, text) for role, text in reports.items()}
    practice = choose("decision", rules.decision_shares)
    return book_episode(scenario, reports, expert_decision(scenario.options, parsed, practice, rules).text)


def _optimal_episode(scenario: TeamScenario) -> Episode:
    best = scenario.truth["best"]
    decision = Decision(option=best or "none", escalate=best is None)
    return book_episode(scenario, {}, decision.model_dump_json())


def _random_episode(scenario: TeamScenario) -> Episode:
    """Any option; every vote a coin."""
    rng = random.Random(f"random/{scenario.key}")
    decision = Decision(option=rng.choice(scenario.options), escalate=False).model_dump_json()
    votes = {role: f'{{"vote": "{rng.choice(("accept", "object"))}"}}' for role in scenario.seats}
    return book_episode(scenario, {}, decision, votes)


def _first_come_episode(scenario: TeamScenario) -> Episode:
    """Return a simple chair: the first specialist's favourite that nobody vetoes, votes by the book."""
    practice = _most_common(scenario.conventions.report_shares)
    picks = [parse_report(scenario, expert_report(scenario, role, practice).text) for role in scenario.seats]
    vetoed = {option for report in picks if report for option in report.veto}
    allowed = [report.pick for report in picks if report and report.pick not in vetoed]
    open_options = [option for option in scenario.options if option not in vetoed]
    chosen = (allowed or open_options or ["none"])[0]
    return book_episode(scenario, {}, Decision(option=chosen, escalate=chosen == "none").model_dump_json())


def _majority_episode(scenario: TeamScenario) -> Episode:
    """No chair: most seats' own favourite, then the first letter. Nobody's limit or stakes are heard."""
    picks = dict.fromkeys(scenario.options, 0)
    for seat in scenario.seats.values():
        picks[favourite(seat)] += 1
    chosen = max(scenario.options, key=picks.__getitem__)
    return book_episode(scenario, {}, Decision(option=chosen, escalate=False).model_dump_json())


def _single_head_episode(scenario: TeamScenario) -> Episode:
    """One head that reads all four briefs and takes a plain sum: it obeys limits, but not the stakes."""
    seats = scenario.seats.values()
    vetoed = {option for seat in seats for option in own_vetoes(seat)}
    open_options = [option for option in scenario.options if option not in vetoed]
    if not open_options:
        return book_episode(scenario, {}, Decision(option=NO_OPTION, escalate=True).model_dump_json())
    chosen = max(open_options, key=lambda option: sum(seat.facts["utilities"][option] for seat in seats))
    return book_episode(scenario, {}, Decision(option=chosen, escalate=False).model_dump_json())


def fixed_episode(scenario: TeamScenario, decision: str) -> Episode:
    """Return a chair who says this whatever the case; votes by the book."""
    return book_episode(scenario, {}, decision)


def book_episode(
    scenario: TeamScenario, reports: Mapping[str, str], decision: str, votes: Mapping[str, str] | None = None
) -> Episode:
    """Return an episode of these texts; votes by the book where none are given."""
    if votes is None:
        parsed = parse_decision(scenario, decision)
        votes = {role: expert_vote(scenario, role, parsed).text for role in scenario.seats}
    return Episode(
        scenario_key=scenario.key,
        index_in_group=0,
        trajectories={},
        reports=reports,
        decision=decision,
        votes=votes,
    )


def _most_common(practices: Mapping[str, float]) -> str:
    return max(practices, key=lambda name: practices[name])


def _team_scores(
    stage: str, sampled: Sequence[TeamVerdict], greedy: Sequence[TeamVerdict], episodes: Sequence[Episode]
) -> TeamScores:
    return TeamScores(
        stage=stage,
        sampled=tuple(verdict.reward for verdict in sampled),
        greedy=tuple(verdict.reward for verdict in greedy),
        value=tuple(verdict.value for verdict in sampled),
        consensus=tuple(verdict.consensus for verdict in sampled),
        unresolved=tuple(verdict.unresolved for verdict in sampled),
        escalation=tuple(verdict.escalation for verdict in sampled),
        agreement=tuple(
            statistics.fmean(parse_vote(vote) == "accept" for vote in episode.votes.values())
            if episode.votes
            else 0.0
            for episode in episodes
        ),
    )
