"""Metrics of a joint step, read from its finished records: reward parts, behaviour, plans, signal, loss."""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

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
from training.joint.records import ScoredEpisode, ScoredGroup
from training.learner.learner import LossStats
from training.learner.rows import TrainingRow


def step_metrics(
    groups: Sequence[ScoredGroup], rows: Mapping[str, Sequence[TrainingRow]], stats: Mapping[str, LossStats]
) -> dict[str, float]:
    """Team reward and its parts, own scores, behaviour, plans, and signal and loss of every role."""
    sets = [one for group in groups for one in group.report_sets]
    if not sets:
        return {"sets": 0.0}
    verdicts = [scored.verdict for one in sets for scored in one.scored]
    metrics = {
        "sets": float(len(sets)),
        "team_reward": statistics.fmean(verdict.reward for verdict in verdicts),
        "value": statistics.fmean(verdict.value for verdict in verdicts),
        "consensus": statistics.fmean(one.first.verdict.consensus for one in sets),
        "unresolved": statistics.fmean(verdict.unresolved for verdict in verdicts),
        "escalation": statistics.fmean(verdict.escalation for verdict in verdicts),
    }
    for role, score in own_scores(groups).items():
        metrics[f"own_score/{role}"] = score
    metrics |= team_behaviour(
        (group.scenario, heard_episode(group.scenario, one.first))
        for group in groups
        for one in group.report_sets
    )
    for role, of_role in rows.items():
        metrics |= role_signal(role, of_role)
    for role, stat in stats.items():
        metrics |= role_losses(role, stat)
    return metrics | plan_metrics(groups)


def own_scores(groups: Sequence[ScoredGroup]) -> dict[str, float]:
    """Mean score of every role by its own verifier: drift shows here first."""
    scores: dict[str, list[float]] = {}
    for group in groups:
        scenario = group.scenario
        for one in group.report_sets:
            episode = one.first.episode
            for role, text in episode.reports.items():
                scores.setdefault(role, []).append(verify_report(scenario, role, text).reward)
            heard = heard_episode(scenario, one.first).reports
            reports = {role: parse_report(scenario, text) for role, text in heard.items()}
            verdict = verify_decision(scenario, reports, episode.decision)
            scores.setdefault(RECONCILER, []).append(verdict.reward)
    return {role: statistics.fmean(values) for role, values in scores.items()}


def heard_episode(scenario: TeamScenario, scored: ScoredEpisode) -> Episode:
    """The episode with its reports as ReconcileGPT last read them: options that are out stand as vetoed."""
    if scored.plans is None or not scored.plans.ruled_out:
        return scored.episode
    reports = {}
    for role, text in scored.episode.reports.items():
        report = parse_report(scenario, text)
        reports[role] = text
        if report is not None:
            veto = sorted({*report.veto, *scored.plans.ruled_out})
            reports[role] = json.dumps(report.model_dump() | {"veto": veto})
    return replace(scored.episode, reports=reports)


def plan_metrics(groups: Sequence[ScoredGroup]) -> dict[str, float]:
    """Re-plans per episode, share of episodes re-planned, value of the first and of the last plan."""
    firsts = [one.first for group in groups for one in group.report_sets]
    plans = [one.plans for one in firsts if one.plans is not None]
    if not plans:
        return {}
    return {
        "replans": statistics.fmean(len(one.values) - 1 for one in plans),
        "replanned": statistics.fmean(len(one.values) > 1 for one in plans),
        "first_plan_value": statistics.fmean(one.values[0] for one in plans),
        "last_plan_value": statistics.fmean(one.values[-1] for one in plans),
    }


def team_behaviour(episodes: Iterable[tuple[TeamScenario, Episode]]) -> dict[str, float]:
    """Agreement, agreement on worthless decisions, ignored reports and escalations, as shares.

    A report is ignored where it could be read, its pick was open to the team, and the decision took
    another option. Agreement counts `accept` among the votes that were cast. A share of nothing is left out.
    """
    agreed: list[bool] = []
    agreed_when_wrong: list[bool] = []
    ignored: dict[str, list[bool]] = {}
    escalated: list[bool] = []
    for scenario, episode in episodes:
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
    """Loss, KL where it was measured, entropy, gradient norm, clipping and mismatch of one role."""
    measured = {} if stat.kl is None else {f"kl/{role}": stat.kl}
    return measured | {
        f"entropy/{role}": stat.entropy,
        f"loss/{role}": stat.loss,
        f"clip_fraction/{role}": stat.clip_fraction,
        f"grad_norm/{role}": stat.grad_norm,
        f"mismatch_mean/{role}": stat.mismatch.mean,
        f"mismatch_max/{role}": stat.mismatch.largest,
        f"mismatch_kl/{role}": stat.mismatch.kl,
        f"effective_share/{role}": stat.mismatch.effective_share,
    }
