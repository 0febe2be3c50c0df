"""Plays a step of GRPO, scenarios of roles alone to groups of episodes, and scores every episode.

A policy fault (malformed answer, illegal call) is no fault here: the verifier pays it the minimum. What
counts is an engine that lost an episode (`infrastructure`) and a reward that is no usable number (`reward`:
not finite, too large, missing, of another shape, raised, or not there in time). Neither may enter a mean:
the whole group is left out. Too many of them stop the run.
"""

import asyncio
import logging
import math
import statistics
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from roles.base import Role
from roles.errors import InfrastructureError
from roles.registry import ROLES
from scenarios.base import Family, Scenario
from scenarios.registry import FAMILIES
from scenarios.rewards import role_reward
from scenarios.tasks.sandbox import find_sandbox
from scenarios.tool_executor import ResultCache
from simulator.agents.solo import SoloEpisode, play_solo
from simulator.chat import Chat
from simulator.engines.base import Engine, Sampling
from training.config.rl_config import GrpoConfig
from training.learner.ranks import ONE_RANK, Ranks
from training.rl.records import RewardParts, ScoredSoloGroup, SoloGroup
from training.runs.faults import fault_point
from training.runs.run_errors import FaultyRunError


@dataclass(frozen=True, slots=True, kw_only=True)
class SoloPlayer:
    """Plays each scenario as often as a group is large, with the policy named like its role.

    Raises:
        UserError: code agents where no sandbox works.
    """

    config: GrpoConfig
    chat: Chat
    families: Mapping[str, Family] = field(default_factory=lambda: FAMILIES)
    roles: Mapping[str, Role] = field(default_factory=lambda: ROLES)
    group_size: int | None = None  # None: the config's

    def __post_init__(self) -> None:
        if self.config.agent == "code":
            find_sandbox()

    def play(
        self, engine: Engine, scenarios: Sequence[Scenario], stream: str, first_place: int = 0
    ) -> list[SoloGroup]:
        """The groups of these scenarios, in their order; what a play raises stands in its episode's place.

        A part of a step's scenarios samples as in the whole step if `first_place` says where it begins.
        """
        size = self.group_size or self.config.group_size
        repeated = [scenario for scenario in scenarios for _ in range(size)]
        played = self.play_once(
            engine,
            repeated,
            stream,
            temperature=self.config.temperature,
            first_place=first_place * size,
        )
        return [
            SoloGroup(scenario=scenario, episodes=tuple(played[place * size : (place + 1) * size]))
            for place, scenario in enumerate(scenarios)
        ]

    def play_validation(
        self, engine: Engine, scenarios: Sequence[Scenario], stream: str, first_place: int = 0
    ) -> list[SoloGroup]:
        """One episode of every scenario at the temperature of a step.

        Raises:
            InfrastructureError: an episode was lost.
        """
        played = self.play_once(
            engine, scenarios, stream, temperature=self.config.temperature, first_place=first_place
        )
        if lost := [one for one in played if isinstance(one, Exception)]:
            raise InfrastructureError(f"{len(lost)} of {len(played)} episodes were lost: {lost[0]}")
        return [
            SoloGroup(scenario=scenario, episodes=(episode,))
            for scenario, episode in zip(scenarios, played, strict=True)
        ]

    def play_once(
        self,
        engine: Engine,
        scenarios: Sequence[Scenario],
        stream: str,
        *,
        temperature: float,
        first_place: int = 0,
    ) -> list[SoloEpisode | Exception]:
        """One episode per scenario; what a play raises stands in its place."""
        config, results = self.config, ResultCache()
        sampling = Sampling(temperature=temperature, max_completion_tokens=config.max_completion_tokens)

        async def play_all() -> list[Any]:
            plays = (
                play_solo(
                    scenario,
                    policy=scenario.role,
                    engine=engine,
                    chat=self.chat,
                    sampling=sampling,
                    session=f"{stream}/{position}/{scenario.key}",
                    max_turns=config.max_turns,
                    max_failed_calls=config.max_failed_calls,
                    families=self.families,
                    roles=self.roles,
                    results=results,
                    kind=config.agent,
                )
                for position, scenario in enumerate(scenarios, start=first_place)
            )
            return await asyncio.gather(*plays, return_exceptions=True)

        played = asyncio.run(play_all())
        for one in played:
            if isinstance(one, MemoryError | torch.OutOfMemoryError):  # every other play would meet it, too
                raise one
        return [_make_portable(one) for one in played]


def _make_portable(played: SoloEpisode | Exception) -> SoloEpisode | Exception:
    """Replace an exception by one that hosts and ranks can send to each other."""
    if isinstance(played, SoloEpisode):
        return played
    if isinstance(played, InfrastructureError):
        return InfrastructureError(str(played))
    return RuntimeError(f"{type(played).__name__}: {played}")


MAX_REWARD = 1e4  # beyond it no verifier of a role was at work
WINDOW, MAX_FAULTS = 200, 10  # more faults among so many samples stop the run
MAX_EMPTY_BATCHES = 3  # in a row
logger = logging.getLogger(__name__)
Item = TypeVar("Item")
Judge = Callable[[Sequence[Sequence[int]]], Sequence[float]]  # transcripts of token ids -> scores


def episode_reward(episode: SoloEpisode, config: GrpoConfig) -> dict[str, float]:
    """Every part of the verified training reward of one episode, and its "total"."""
    trajectory = episode.trajectory
    return role_reward(
        episode.verdict,
        num_steps=len(trajectory.turns),
        optimal_steps=episode.scenario.optimal_tool_calls + 1,
        max_steps=config.max_turns,
        num_calls=trajectory.num_tool_calls,
        num_valid_calls=trajectory.num_valid_tool_calls,
        preset=config.reward,
        weights=config.reward_weights,
    )


class SoloScorer:
    """Scores groups of episodes; a run with too many faults is stopped. A Stateful part."""

    def __init__(
        self,
        config: GrpoConfig,
        *,
        judge: Judge | None = None,
        ranks: Ranks = ONE_RANK,
    ) -> None:
        """`judge`: a reward model, whose score has the config's `model_share` of the reward."""
        self._config, self._judge, self._ranks = config, judge, ranks
        self.faults = FaultWindow()

    def score(self, groups: Sequence[SoloGroup]) -> list[ScoredSoloGroup]:
        """The groups with every episode's reward parts, or why it has none.

        Raises:
            FaultyRunError: too many episodes of all ranks got no reward.
        """
        episodes = [episode for group in groups for episode in group.episodes]
        scored = score_all(episodes, self._score)
        texts = [one.trajectory.token_ids if isinstance(one, SoloEpisode) else None for one in episodes]
        scored = add_model_scores(scored, texts, self._judge, self._config.model_share)
        found = iter(scored)
        result = [
            ScoredSoloGroup(
                scenario=group.scenario,
                episodes=group.episodes,
                rewards=tuple(next(found) for _ in group.episodes),
            )
            for group in groups
        ]
        num_usable = self._ranks.sum([float(sum(group.is_usable for group in result))])[0]
        everywhere = [one for part in self._ranks.gather(scored) for one in part]
        self.faults.take(everywhere, num_usable=int(num_usable))
        return result

    def score_validation(self, groups: Sequence[SoloGroup]) -> tuple[list[float], dict[str, float]]:
        """The verified reward of every greedy episode."""
        verdicts = [one.verdict for group in groups for one in group.episodes if isinstance(one, SoloEpisode)]
        return [verdict.reward for verdict in verdicts], {
            "validation/exact": statistics.fmean(verdict.exact for verdict in verdicts),
            "validation/feasible": statistics.fmean(verdict.feasible for verdict in verdicts),
        }

    def _score(self, episode: SoloEpisode) -> dict[str, Any]:
        parts = episode_reward(episode, self._config)
        return {**parts, "total": fault_point("reward", parts["total"])}


def score_all(
    items: Sequence[Item | Exception], score: Callable[[Item], Mapping[str, float]]
) -> list[RewardParts]:
    """Score every item, an exception in an item's place as what it is; none keeps another from its reward."""
    answers: list[Any] = []
    for item in items:
        try:
            answers.append(item if isinstance(item, Exception) else score(item))
        except Exception as error:
            answers.append(error)
    return [_judge(answer) for answer in answers]


def _judge(answer: Any) -> RewardParts:
    if isinstance(answer, InfrastructureError):
        return RewardParts(parts=None, fault="infrastructure", reason=str(answer))
    if isinstance(answer, Exception):
        return RewardParts(parts=None, fault="reward", reason=f"{type(answer).__name__}: {answer}")
    if not isinstance(answer, Mapping) or "total" not in answer:
        return RewardParts(parts=None, fault="reward", reason=f"{answer!r} is not reward parts with a total")
    for name, value in answer.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            return RewardParts(parts=None, fault="reward", reason=f"reward part {name} is {value!r}")
        if not math.isfinite(value) or abs(value) > MAX_REWARD:
            return RewardParts(parts=None, fault="reward", reason=f"reward part {name} is {value!r}")
    return RewardParts(parts={name: float(value) for name, value in answer.items()})


def add_model_scores(
    scored: Sequence[RewardParts],
    transcripts: Sequence[Sequence[int] | None],
    judge: Judge | None,
    share: float,
) -> list[RewardParts]:
    """The rewards with the reward model's score as part "model", which has this share of the total.

    Without a judge they are as they were. A score that is no usable number is a fault of kind `reward`.
    """
    if judge is None:
        return list(scored)
    places = [place for place, one in enumerate(scored) if one.parts is not None]
    found = list(scored)
    for place, score in zip(places, judge([transcripts[place] or () for place in places]), strict=True):
        parts = dict(scored[place].parts or {})
        found[place] = _judge(
            {**parts, "model": score, "total": (1 - share) * parts["total"] + share * score}
        )
    return found


class FaultWindow:
    """Counts faults among the latest samples and says when it is too much; a Stateful part."""

    def __init__(self) -> None:
        self._recent: deque[int] = deque(maxlen=WINDOW)
        self._empty_batches = 0

    def take(self, scored: Sequence[RewardParts], *, num_usable: int) -> None:
        """Count one batch; each fault is logged.

        Raises:
            FaultyRunError: more than MAX_FAULTS of the last WINDOW samples, or MAX_EMPTY_BATCHES in a row.
        """
        faults = [one for one in scored if one.parts is None]
        for one in faults:
            logger.warning("group left out: %s fault: %s", one.fault, one.reason)
        self._recent.extend(int(one.parts is None) for one in scored)
        self._empty_batches = 0 if num_usable else self._empty_batches + 1
        if sum(self._recent) > MAX_FAULTS or self._empty_batches >= MAX_EMPTY_BATCHES:
            last = faults[-1] if faults else RewardParts(parts=None)
            raise FaultyRunError(
                f"{sum(self._recent)} of the last {len(self._recent)} episodes got no reward, the last one"
                f" by a fault of kind {last.fault}: {last.reason}; mend that and go on with --resume"
            )

    def state(self) -> Mapping[str, Any]:
        return {"recent": list(self._recent), "empty_batches": self._empty_batches}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._recent = deque(state["recent"], maxlen=WINDOW)
        self._empty_batches = state["empty_batches"]
