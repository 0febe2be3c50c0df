"""How a team behaves while it trains: agreement, conflicts, ignored reports, escalations, signal."""

import statistics
from collections.abc import Iterable, Mapping, Sequence

from roles.team import RECONCILER
from scenarios.team import (
    TeamScenario,
    decision_value,
    parse_decision,
    parse_report,
    parse_vote,
    verify_decision,
    verify_report,
)
from simulator.records import Episode
from training.joint.played import PlayedSet, heard_episode
from training.learner.learner import LossStats
from training.learner.rows import TrainingRow


def step_metrics(
    played: Sequence[PlayedSet], rows: Mapping[str, Sequence[TrainingRow]], stats: Mapping[str, LossStats]
) -> dict[str, float]:
    """What happened in one step: team reward and its parts, own scores, signal and loss of every role."""
    if not played:
        return {"sets": 0.0}
    verdicts = [verdict for one in played for verdict in one.verdicts]
    metrics = {
        "sets": float(len(played)),
        "team_reward": statistics.fmean(verdict.reward for verdict in verdicts),
        "value": statistics.fmean(verdict.value for verdict in verdicts),
        "consensus": statistics.fmean(one.verdicts[0].consensus for one in played),
        "unresolved": statistics.fmean(verdict.unresolved for verdict in verdicts),
        "escalation": statistics.fmean(verdict.escalation for verdict in verdicts),
    }
    for role, score in own_scores(played).items():
        metrics[f"own_score/{role}"] = score
    metrics |= team_behaviour((one.scenario, heard_episode(one)) for one in played)
    for role, of_role in rows.items():
        metrics |= role_signal(role, of_role)
    for role, stat in stats.items():
        metrics |= role_losses(role, stat)
    return metrics


def own_scores(played: Sequence[PlayedSet]) -> dict[str, float]:
    """Mean score of every role by its own verifier: drift shows here first."""
    scores: dict[str, list[float]] = {}
    for one in played:
        for role, text in one.episode.reports.items():
            scores.setdefault(role, []).append(verify_report(one.scenario, role, text).reward)
        heard = heard_episode(one).reports
        reports = {role: parse_report(one.scenario, text) for role, text in heard.items()}
        verdict = verify_decision(one.scenario, reports, one.episode.decision)
        scores.setdefault(RECONCILER, []).append(verdict.reward)
    return {role: statistics.fmean(values) for role, values in scores.items()}


def team_behaviour(played: Iterable[tuple[TeamScenario, Episode]]) -> dict[str, float]:
    """Agreement, agreement on worthless decisions, ignored reports and escalations, as shares.

    A report is ignored where it could be read, its pick was open to the team, and the decision took
    another option. Agreement counts `accept` among the votes that were cast. A share of nothing is left out.
    """
    agreed: list[bool] = []
    agreed_when_wrong: list[bool] = []
    ignored: dict[str, list[bool]] = {}
    escalated: list[bool] = []
    for scenario, episode in played:
        decision = parse_decision(scenario, episode.decision)
        votes = [parse_vote(text) == "accept" for text in episode.votes.values()]
        agreed += votes
        if decision_value(scenario, decision) == 0:
            agreed_when_wrong += votes
        escalated.append(decision is not None and decision.escalate)
        reports = {role: parse_report(scenario, text) for role, text in episode.reports.items()}
        vetoed = {option for report in reports.values() if report for option in report.veto}
        for role, report in reports.items():
            if report is not None and report.pick not in vetoed and decision is not None:
                ignored.setdefault(role, []).append(decision.option != report.pick)
    shares = {"agreement": agreed, "agreement_when_wrong": agreed_when_wrong, "escalated": escalated}
    shares |= {f"ignored/{role}": values for role, values in ignored.items()}
    return {name: statistics.fmean(values) for name, values in shares.items() if values}


def role_signal(role: str, rows: Sequence[TrainingRow]) -> dict[str, float]:
    """Share of the role's rows that carry an advantage, and the variance of its advantages over rows."""
    if not rows:
        return {f"signal/{role}": 0.0, f"credit_variance/{role}": 0.0}
    credit = [statistics.fmean(row.own_advantages()) if row.num_own else 0.0 for row in rows]
    return {
        f"signal/{role}": statistics.fmean(row.has_signal for row in rows),
        f"credit_variance/{role}": statistics.pvariance(credit),
    }


def role_losses(role: str, stat: LossStats) -> dict[str, float]:
    """Loss, KL, entropy, gradient norm, clipping and mismatch of one role."""
    return {
        f"entropy/{role}": stat.entropy,
        f"kl/{role}": stat.kl,
        f"loss/{role}": stat.loss,
        f"clip_fraction/{role}": stat.clip_fraction,
        f"grad_norm/{role}": stat.grad_norm,
        f"mismatch_mean/{role}": stat.mismatch.mean,
        f"mismatch_max/{role}": stat.mismatch.largest,
        f"mismatch_kl/{role}": stat.mismatch.kl,
        f"effective_share/{role}": stat.mismatch.effective_share,
    }
