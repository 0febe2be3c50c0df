"""Strategies of a joint step that follow from the config, chosen once when the learner is built."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from scenarios.team import TeamScenario
from simulator.chat import Chat
from simulator.engines.base import Engine
from simulator.game import MakeGame
from simulator.reward import TeamRewardWeights
from training.config.marl_config import MarlConfig
from training.joint.credit.assign import CreditAssigner
from training.joint.credit.estimators import ESTIMATORS
from training.joint.credit.schemes import SCHEMES
from training.joint.credit.votes import VoteCredit, VotesAlone, VotesWithDecision, VotesWithReport
from training.joint.governed_play import GovernedPlayer
from training.joint.governed_score import GovernedScorer
from training.joint.play import AssessPlayer
from training.joint.records import EpisodeGroup, ScoredGroup, Total
from training.joint.score import REWARDS, AssessScorer


class Player(Protocol):
    """Plays scenarios as groups of episodes."""

    def play(
        self, engine: Engine, scenarios: Sequence[TeamScenario], stream: str, first_place: int = 0
    ) -> list[EpisodeGroup]:
        """The complete groups of these scenarios; groups with an infrastructure fault are left out."""
        ...

    def play_greedily(
        self, engine: Engine, scenarios: Sequence[TeamScenario], stream: str
    ) -> list[EpisodeGroup]:
        """One episode of every scenario at temperature 0; raises InfrastructureError where one is lost."""
        ...


class Scorer(Protocol):
    """Scores groups of episodes."""

    def score(self, groups: Sequence[EpisodeGroup]) -> list[ScoredGroup]:
        """The groups with a verdict on every episode."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JointStep:
    """Play, scores and credit of a step."""

    player: Player
    scorer: Scorer
    credit: CreditAssigner


def choose_player(config: MarlConfig, *, chat: Chat, roles: tuple[str, ...], make_game: MakeGame) -> Player:
    """The player of the config's protocol: all of a step that a rollout host needs."""
    if config.protocol == "full":
        return GovernedPlayer(config=config, chat=chat, roles=roles, make_game=make_game)
    return AssessPlayer(config=config, chat=chat, roles=roles, make_game=make_game)


def choose_step(
    config: MarlConfig,
    *,
    chat: Chat,
    weights: TeamRewardWeights,
    roles: tuple[str, ...],
    make_game: MakeGame,
    total: Total = list,
) -> JointStep:
    """Player, scorer and credit of the config's protocol, scheme and estimator."""
    scheme = SCHEMES[config.credit.scheme]()
    player = choose_player(config, chat=chat, roles=roles, make_game=make_game)
    estimator, reward = ESTIMATORS[config.credit.estimator], REWARDS[config.reward]
    scorer: Scorer
    if config.protocol == "full":  # one decision per set of reports, and one reward for the whole episode
        scorer = GovernedScorer(weights=weights, reward=reward, value_offers=scheme.value_offers)
        pools_decisions, rounds = True, 1
    else:
        scorer = AssessScorer(weights=weights, reward=reward, value_offers=scheme.value_offers)
        pools_decisions, rounds = False, config.rounds
    votes = _choose_votes(config, weights, rounds, scheme.holds_votes_fixed)
    credit = CreditAssigner(
        scheme=scheme,
        estimator=estimator,
        votes=votes,
        pools_decisions=pools_decisions,
        total=total,
    )
    return JointStep(player=player, scorer=scorer, credit=credit)


def _choose_votes(
    config: MarlConfig, weights: TeamRewardWeights, rounds: int, holds_votes_fixed: bool
) -> VoteCredit:
    if rounds >= 2:
        return VotesWithDecision()
    if not holds_votes_fixed:
        return VotesWithReport()
    if config.reward == "agreement_only":  # votes are not rewarded
        weights = weights.model_copy(update={"consensus": 0.0})
    return VotesAlone(weights=weights)
