"""Joint training as an algorithm of the RL loop: strategies that follow from the config, chosen once.

Specialists are compared across the report sets of a scenario, ReconcileGPT among decisions on the same
reports.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from scenarios.team import PlanGame
from simulator.chat import Chat
from simulator.game import MakeGame
from simulator.reward import TeamRewardWeights
from training.config.rl_config import MarlConfig
from training.learner.learner import LossStats
from training.learner.ranks import ONE_RANK, Ranks
from training.learner.rows import TrainingRow
from training.rl.credit import (
    ESTIMATORS,
    SCHEMES,
    CreditAssigner,
    VoteCredit,
    VotesAlone,
    VotesWithDecision,
    VotesWithReport,
)
from training.rl.loop import Algorithm, RLLearner
from training.rl.records import ScoredGroup
from training.rl.team.metrics import DriftWatch, gradient_shares, step_metrics
from training.rl.team.play import AssessPlayer, GovernedPlayer
from training.rl.team.score import AssessScorer, GovernedScorer, reward_team
from training.rl.update import PolicyUpdater
from training.runs.run_errors import FaultyRunError

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
        """Own scores and alarms so far, and empty steps."""
        return {**self.drift.state(), "empty_steps": self._empty_steps}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
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
        models,
        config,
        rate_factors=config.rate_factors,
        references=references,
        ranks=ranks,
        actors=actors,
    )
    algorithm = make_team_algorithm(
        config,
        chat=chat,
        weights=reward_weights,
        roles=tuple(models),
        make_game=make_game,
        ranks=ranks,
    )
    return RLLearner(updater, algorithm, chat=chat, seed=seed, **options)


def make_team_algorithm(
    config: MarlConfig,
    *,
    chat: Chat,
    weights: TeamRewardWeights,
    roles: tuple[str, ...],
    make_game: MakeGame,
    ranks: Ranks = ONE_RANK,
) -> Algorithm:
    """Player, scorer, credit and monitor of the config's protocol, scheme and estimator."""
    scheme = SCHEMES[config.credit.scheme]()
    is_governed = config.protocol == "full"  # one decision per report set, one reward for the whole episode
    scorer_kind = GovernedScorer if is_governed else AssessScorer
    votes = _choose_votes(weights, 1 if is_governed else config.rounds, scheme.holds_votes_fixed)
    return Algorithm(
        name="marl",
        episodes_per_case=config.report_sets,
        player=choose_player(config, chat=chat, roles=roles, make_game=make_game),
        scorer=scorer_kind(weights=weights, reward=reward_team, value_offers=scheme.value_offers),
        credit=CreditAssigner(
            scheme=scheme,
            estimator=ESTIMATORS[config.credit.estimator],
            votes=votes,
            pools_decisions=is_governed,
            total=ranks.sum,
        ),
        monitor=TeamMonitor(ranks),
    )


def _choose_votes(weights: TeamRewardWeights, rounds: int, holds_votes_fixed: bool) -> VoteCredit:
    if rounds >= 2:
        return VotesWithDecision()
    if not holds_votes_fixed:
        return VotesWithReport()
    return VotesAlone(weights=weights)
