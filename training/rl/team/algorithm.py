"""Joint training as an algorithm of the RL loop, chosen once by the config, and the metrics of a joint step.

Specialists are compared across the report sets of a scenario, ReconcileGPT among decisions on the same
reports. The team reward may rise at the expense of own verified scores: their mean over the last DRIFT_WINDOW
steps is compared with that of the first ones, and a fall of DRIFT_ALARM or more sets a metric.
"""

import logging
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from roles.team import RECONCILER
from scenarios.team import PlanGame, TeamScenario, decision_value
from scenarios.team.verdicts import verify_decision, verify_report
from simulator.chat import Chat
from simulator.game import MakeGame
from simulator.reading import read_episode
from simulator.records import Episode
from simulator.reward import TeamRewardWeights
from training.config.rl_config import MarlConfig
from training.learner.learner import LossStats
from training.learner.ranks import ONE_RANK, Ranks
from training.learner.rows import TrainingRow
from training.rl.credit import ESTIMATORS, SCHEMES, CreditAssigner
from training.rl.loop import Algorithm, RLLearner
from training.rl.records import ScoredGroup
from training.rl.team.play import AssessPlayer, GovernedPlayer
from training.rl.team.score import TeamScorer
from training.rl.update import PolicyUpdater
from training.runs.run_errors import FaultyRunError

DRIFT_ALARM = 0.05  # fall of a role's own score that is reported
DRIFT_WINDOW = 5  # steps whose mean is compared with the first ones
logger = logging.getLogger(__name__)


class DriftWatch:
    """Compares the latest own scores of every role with its first ones."""

    def __init__(self, window: int = DRIFT_WINDOW, alarm: float = DRIFT_ALARM) -> None:
        self._window, self._alarm = window, alarm
        self._first: dict[str, list[float]] = {}  # the first `window` scores
        self._last: dict[str, list[float]] = {}  # the latest ones
        self.fallen: set[str] = set()

    def update(self, scores: Mapping[str, float]) -> dict[str, float]:
        """Take in one step's own scores; metrics `drift/ROLE` (negative: fell) and `drift_alarm/ROLE`."""
        metrics: dict[str, float] = {}
        for role, score in scores.items():
            first, last = self._first.setdefault(role, []), self._last.setdefault(role, [])
            if len(first) < self._window:
                first.append(score)
            last.append(score)
            del last[: -self._window]
            change = statistics.fmean(last) - statistics.fmean(first)
            is_low = len(last) == self._window and change <= -self._alarm
            if is_low and role not in self.fallen:
                logger.warning(
                    "%s: own verified score fell by %.3f (%.3f to %.3f, means of %d steps)",
                    role,
                    -change,
                    statistics.fmean(first),
                    statistics.fmean(last),
                    self._window,
                )
            (self.fallen.add if is_low else self.fallen.discard)(role)
            metrics |= {f"drift/{role}": change, f"drift_alarm/{role}": float(is_low)}
        return metrics

    def state(self) -> dict[str, Any]:
        return {"first": self._first, "last": self._last, "fallen": sorted(self.fallen)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._first = {role: list(values) for role, values in state["first"].items()}
        self._last = {role: list(values) for role, values in state["last"].items()}
        self.fallen = set(state["fallen"])


def gradient_shares(norms: Mapping[str, float]) -> dict[str, float]:
    """Role -> its share of the sum of squared gradient norms; {} where no norm is finite and above 0."""
    squares = {role: norm * norm for role, norm in norms.items() if math.isfinite(norm)}
    total = sum(squares.values())
    return {role: square / total for role, square in squares.items()} if total > 0 else {}


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
    for role in rows:
        paths = [one.first.episode.trajectories[role] for one in sets]
        metrics[f"own_tokens/{role}"] = statistics.fmean(path.num_own for path in paths)
    metrics |= team_behaviour(
        (group.scenario, one.first.episode) for group in groups for one in group.report_sets
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
            for role in episode.reports:
                scores.setdefault(role, []).append(score_report(scenario, role, episode))
            scores.setdefault(RECONCILER, []).append(score_decision(scenario, episode))
    return {role: statistics.fmean(values) for role, values in scores.items()}


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
    """Agreement, escalations, questions, and what became of every seat's offers.

    `agreement` counts `accept` among the votes that were cast. Of a seat: `offers` per report, `false_claims`
    per report, `funded` the share of its offers on the decided option that were funded, `hoarding` the share
    of its offers that cost more than its equal share of the budget. A share of nothing is left out.
    """
    found: dict[str, list[float]] = {}

    def add(name: str, *values: float) -> None:
        found.setdefault(name, []).extend(values)

    for scenario, episode in episodes:
        read = read_episode(scenario, episode)
        votes = [float(vote == "accept") for role, vote in read.votes.items() if role in episode.votes]
        add("agreement", *votes)
        if decision_value(scenario, read.table, read.decision) == 0:
            add("agreement_when_wrong", *votes)
        add("escalated", float(read.decision is not None and read.decision.escalate))
        add("asked", float(len(episode.asked)))
        share = scenario.public.budget / len(scenario.seats)
        for role, report in read.table.items():
            offers = () if report is None else report.offers
            add(f"offers/{role}", float(len(offers)))
            add(f"false_claims/{role}", float(len(report.false_claims)) if report else 0.0)
            add(f"hoarding/{role}", *(float(offer.cost > share) for offer in offers))
            if read.plan is not None:
                chosen = read.plan.funded.get(role)
                on_option = [offer for offer in offers if offer.option == read.plan.option]
                add(f"funded/{role}", *(float(offer.choice == chosen) for offer in on_option))
    return {name: statistics.fmean(values) for name, values in found.items() if values}


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
        f"mismatch_call/{role}": stat.mismatch.worst_call,
        f"mismatch_max/{role}": stat.mismatch.largest,
        f"mismatch_kl/{role}": stat.mismatch.kl,
        f"effective_share/{role}": stat.mismatch.effective_share,
    }


def score_report(scenario: TeamScenario, seat: str, episode: Episode) -> float:
    """The score of a seat's report, in [0, 1]: honest, efficient, complete."""
    return verify_report(scenario, seat, episode.reports[seat]).reward


def score_decision(scenario: TeamScenario, episode: Episode) -> float:
    """The score of the decision, in [0, 1], by the reports that it rests on: 1 for their best plan."""
    table = read_episode(scenario, episode).table
    return verify_decision(scenario.public, table, episode.decision).reward


MAX_EMPTY_STEPS = 5
SHORT_GAME: MakeGame = partial(PlanGame, style="short")


class TeamMonitor:
    """Metrics of a joint step, with the watch over own scores."""

    def __init__(self, ranks: Ranks) -> None:
        self.drift, self._ranks = DriftWatch(), ranks
        self._empty_steps = 0  # in a row

    def measure(
        self,
        groups: Sequence[ScoredGroup],
        rows: Mapping[str, Sequence[TrainingRow]],
        stats: Mapping[str, LossStats],
    ) -> dict[str, float]:
        """Team reward and its parts, own scores, behaviour, signal and loss of every role, drift.

        Raises:
            FaultyRunError: MAX_EMPTY_STEPS steps in a row lost every group of all ranks.
        """
        metrics = self._ranks.mean(step_metrics(groups, rows, stats))
        self._empty_steps = 0 if metrics["sets"] else self._empty_steps + 1
        if self._empty_steps >= MAX_EMPTY_STEPS:
            raise FaultyRunError(
                f"{self._empty_steps} joint steps in a row had no whole group to learn from: the engine lost"
                " an episode of each; the warnings above say how. Mend that and go on with --resume"
            )
        shares = gradient_shares({role: stat.grad_norm for role, stat in stats.items()})
        metrics |= {f"gradient_mass/{role}": share for role, share in shares.items()}
        own = {role: metrics[f"own_score/{role}"] for role in rows if f"own_score/{role}" in metrics}
        return metrics | self.drift.update(own)

    def state(self) -> dict[str, Any]:
        return {**self.drift.state(), "empty_steps": self._empty_steps}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.drift.load_state(state)
        self._empty_steps = int(state["empty_steps"])


def choose_player(
    config: MarlConfig, *, chat: Chat, roles: tuple[str, ...], make_game: MakeGame
) -> AssessPlayer | GovernedPlayer:
    """The player of the config's protocol: all of a step that a rollout host needs."""
    kind = GovernedPlayer if config.protocol == "full" else AssessPlayer
    return kind(config=config, chat=chat, roles=roles, make_game=make_game)


def make_team_learner(
    models: Mapping[str, Any],
    config: MarlConfig,
    *,
    chat: Chat,
    reward_weights: TeamRewardWeights,
    seed: int,
    make_game: MakeGame = SHORT_GAME,
    references: Mapping[str, Any] | None = None,
    ranks: Ranks = ONE_RANK,
    actors: Mapping[str, Any] | None = None,
    **options: Any,
) -> RLLearner:
    """A learner of the team; `references` and `actors` as in `PolicyUpdater`, the rest in `RLLearner`."""
    updater = PolicyUpdater(
        models, config, rate_factors=config.rate_factors, references=references, ranks=ranks, actors=actors
    )
    scheme = SCHEMES[config.credit.scheme]()
    is_governed = config.protocol == "full"  # one decision per report set, one reward for the whole episode
    votes: Literal["report", "decision", "alone"] = "alone" if scheme.holds_votes_fixed else "report"
    algorithm = Algorithm(
        name="marl",
        episodes_per_case=config.report_sets,
        player=choose_player(config, chat=chat, roles=tuple(models), make_game=make_game),
        scorer=TeamScorer(weights=reward_weights, value_offers=scheme.value_offers),
        credit=CreditAssigner(
            scheme=scheme,
            estimator=ESTIMATORS[config.credit.estimator],
            votes="decision" if config.rounds >= 2 and not is_governed else votes,
            weights=reward_weights,
            pools_decisions=is_governed,
            token_price=config.credit.token_price,
            total=ranks.sum,
        ),
        monitor=TeamMonitor(ranks),
    )
    return RLLearner(updater, algorithm, chat=chat, seed=seed, **options)
