"""Joint multi-agent RL: the whole team learns from the team reward of joint episodes.

One step, top to bottom in `JointLearner.step`:

    scenarios -> episodes (report_sets per scenario) -> more decisions on each fixed set of reports
              -> team rewards -> advantages per role (credit scheme) -> rows -> one update of every role

Specialists are compared across the report sets of a scenario, ReconcileGPT only among decisions on the
same reports. A replayed decision is not voted on: it is scored as if its votes were as right as those on the
first decision on these reports.
"""

import asyncio
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from roles.team import RECONCILER
from scenarios.team import TeamScenario, parse_report, verify_decision, verify_report
from simulator.chat import Chat
from simulator.engines.base import Sampling
from simulator.engines.transformers import TransformersEngine
from simulator.records import Episode, Trajectory
from simulator.reward import TeamRewardWeights, TeamVerdict, score_episode, with_consensus
from simulator.runner import play_decisions, play_episodes
from training.config import MarlConfig
from training.credit import SCHEMES
from training.credit.base import ReportSet, reconciler_advantages
from training.learner import LossStats, TrainingRow, backward_role


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedSet:
    """One set of reports and all decisions taken on it; the first is that of the full episode."""

    scenario: TeamScenario
    decisions: tuple[Episode, ...]
    verdicts: tuple[TeamVerdict, ...]  # aligned with decisions
    without: Mapping[str, float]  # role -> team reward with its report left out; empty if not played

    @property
    def episode(self) -> Episode:
        """The full episode, with the specialists' trajectories and votes."""
        return self.decisions[0]

    @property
    def report_set(self) -> ReportSet:
        return ReportSet(rewards=tuple(verdict.reward for verdict in self.verdicts), without=self.without)


class JointLearner:
    """All roles' models and optimizers, and the step that trains them together."""

    def __init__(
        self,
        models: Mapping[str, Any],
        config: MarlConfig,
        *,
        chat: Chat,
        reward_weights: TeamRewardWeights,
        seed: int,
        references: Mapping[str, nn.Module] | None = None,
    ) -> None:
        self.models, self.config, self.chat = dict(models), config, chat
        self.reward_weights, self.seed = reward_weights, seed
        self.references = references or {}
        self.credit = SCHEMES[config.credit]()
        self.num_steps = 0
        self.optimizers = {
            role: torch.optim.AdamW(
                [p for p in model.parameters() if p.requires_grad],
                lr=config.learning_rate,
                weight_decay=0.0,
                betas=(0.9, 0.95),
            )
            for role, model in self.models.items()
        }

    def step(self, scenarios: Sequence[TeamScenario]) -> dict[str, float]:
        """Play, score, credit, update; returns the step's metrics."""
        played = self.play(scenarios)
        groups = group_by_scenario(played)
        rows = {role: self.rows(role, groups) for role in self.models}
        stats = {role: self.update(role, rows[role]) for role in self.models if rows[role]}
        self.num_steps += 1
        return step_metrics(played, rows, stats)

    def play(self, scenarios: Sequence[TeamScenario]) -> list[PlayedSet]:
        """Report sets of all scenarios, with their decisions and rewards; incomplete groups are left out."""
        config = self.config
        engine = TransformersEngine(end_id=self.chat.end_id, seed=self.seed)
        for role, model in self.models.items():
            engine.set_policy(role, model, version=f"{role}@{self.num_steps}")
        team = {role: role for role in self.models}
        sampling = Sampling(
            temperature=config.temperature, max_completion_tokens=config.max_completion_tokens
        )
        stream = f"marl/{self.num_steps}"

        async def run() -> tuple[list[Episode], list[Episode], list[Episode]]:
            first = await play_episodes(
                scenarios,
                team,
                engine,
                self.chat,
                sampling,
                rounds=config.rounds,
                num_repeats=config.report_sets,
                concurrency=len(scenarios) * config.report_sets,
                stream=stream,
            )
            sets = list(zip(_repeat(scenarios, config.report_sets), first, strict=True))
            more = await play_decisions(
                sets,
                team,
                engine,
                self.chat,
                sampling,
                num_decisions=config.decisions_per_set - 1,
                with_votes=False,
                concurrency=len(sets) * config.decisions_per_set,
                stream=stream,
            )
            reduced: list[Episode] = []
            if self.credit.needs_counterfactuals:
                reduced = await play_decisions(
                    [
                        (scenario, leave_out(episode, role))
                        for scenario, episode in sets
                        for role in scenario.seats
                    ],
                    team,
                    engine,
                    self.chat,
                    sampling,
                    num_decisions=1,
                    with_votes=False,
                    concurrency=len(sets) * config.decisions_per_set,
                    stream=f"{stream}/without",
                )
            return first, more, reduced

        first, more, reduced = asyncio.run(run())
        num_more = config.decisions_per_set - 1
        played = []
        for place, (scenario, episode) in enumerate(
            zip(_repeat(scenarios, config.report_sets), first, strict=True)
        ):
            branches = more[place * num_more : (place + 1) * num_more]
            num_seats = len(scenario.seats)
            absences = reduced[place * num_seats : (place + 1) * num_seats]
            if episode.error or any(branch.error for branch in (*branches, *absences)):
                continue
            verdict = score_episode(scenario, episode, self.reward_weights)
            verdicts = (verdict, *(self._score_unvoted(scenario, branch, verdict) for branch in branches))
            without = {
                role: self._score_unvoted(scenario, absence, verdict).reward
                for role, absence in zip(scenario.seats, absences, strict=False)
            }
            played.append(
                PlayedSet(
                    scenario=scenario, decisions=(episode, *branches), verdicts=verdicts, without=without
                )
            )
        return complete_groups(played, config.report_sets)

    def _score_unvoted(self, scenario: TeamScenario, episode: Episode, first: TeamVerdict) -> TeamVerdict:
        verdict = score_episode(scenario, episode, self.reward_weights)
        return with_consensus(verdict, first.consensus, self.reward_weights)

    def rows(self, role: str, groups: Sequence[Sequence[PlayedSet]]) -> list[TrainingRow]:
        """The role's training rows with their advantages."""
        rows: list[TrainingRow] = []
        for group in groups:
            if role == RECONCILER:
                for played in group:
                    advantages = reconciler_advantages(played.report_set)
                    trajectories = [episode.trajectories[role] for episode in played.decisions]
                    rows += map(make_row, trajectories, advantages)
            else:
                report_sets = [played.report_set for played in group]
                advantages = self.credit.specialist_advantages(role, report_sets)
                trajectories = [played.episode.trajectories[role] for played in group]
                rows += map(make_row, trajectories, advantages)
        return rows

    def update(self, role: str, rows: Sequence[TrainingRow]) -> LossStats:
        """One clipped policy-gradient step of one role; without any advantage the weights stay."""
        model, optimizer = self.models[role], self.optimizers[role]
        model.train()
        optimizer.zero_grad()
        stats = backward_role(model, rows, self.config, reference=self.references.get(role))
        if stats.num_rows:
            torch.nn.utils.clip_grad_norm_(model.parameters(), self.config.max_grad_norm)
            optimizer.step()
        return stats


def _repeat(scenarios: Sequence[TeamScenario], times: int) -> list[TeamScenario]:
    return [scenario for scenario in scenarios for _ in range(times)]


def make_row(trajectory: Trajectory, advantage: float) -> TrainingRow:
    """The sampled ids as they are, one advantage for all own tokens of the trajectory."""
    return TrainingRow(
        role=trajectory.role,
        token_ids=trajectory.token_ids,
        loss_mask=trajectory.loss_mask,
        sampling_logprobs=trajectory.sampling_logprobs,
        advantage=advantage,
    )


def leave_out(episode: Episode, role: str) -> Episode:
    """The same reports with the role's own missing: the default action of `difference` credit."""
    return replace(episode, reports={**episode.reports, role: ""})


def group_by_scenario(played: Iterable[PlayedSet]) -> list[list[PlayedSet]]:
    """Report sets of the same scenario side by side."""
    groups: dict[str, list[PlayedSet]] = {}
    for one in played:
        groups.setdefault(one.scenario.key, []).append(one)
    return list(groups.values())


def complete_groups(played: Sequence[PlayedSet], report_sets: int) -> list[PlayedSet]:
    """Drop every scenario of which an infrastructure fault took a report set."""
    return [one for group in group_by_scenario(played) if len(group) == report_sets for one in group]


def own_scores(played: Sequence[PlayedSet]) -> dict[str, float]:
    """Mean score of every role by its own verifier: drift shows here first."""
    scores: dict[str, list[float]] = {}
    for one in played:
        for role, text in one.episode.reports.items():
            scores.setdefault(role, []).append(verify_report(one.scenario, role, text).reward)
        reports = {role: parse_report(one.scenario, text) for role, text in one.episode.reports.items()}
        verdict = verify_decision(one.scenario, reports, one.episode.decision)
        scores.setdefault(RECONCILER, []).append(verdict.reward)
    return {role: statistics.fmean(values) for role, values in scores.items()}


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
    for role, of_role in rows.items():
        metrics[f"signal/{role}"] = statistics.fmean(row.advantage != 0 for row in of_role)
    for role, stat in stats.items():
        metrics |= {f"entropy/{role}": stat.entropy, f"kl/{role}": stat.kl, f"loss/{role}": stat.loss}
        metrics[f"clip_fraction/{role}"] = stat.clip_fraction
    return metrics
