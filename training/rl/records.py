"""Records of one step, from scenarios to rows. Each stage returns new ones; none is filled in later.

team:  TeamScenario -- play --> EpisodeGroup -- score --> ScoredGroup -- credit --> SetAdvantages
role:  Scenario     -- play --> SoloGroup -- score --> ScoredSoloGroup -- credit --> floats
both:  -- rows --> TrainingRow -- update --> weights
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from scenarios.base import Scenario
from scenarios.team import TeamScenario
from simulator.agents.solo import SoloEpisode
from simulator.governance.record import GovernedRecord
from simulator.records import Episode
from simulator.reward import TeamVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSet:
    """One set of specialist reports and the episodes that share it.

    Example: ReportSet(episodes=(full_episode, second_decision))
    """

    episodes: tuple[Episode, ...]  # first the full episode, then further decisions on its reports
    governed: GovernedRecord | None = None  # gate, execution and re-plans; None under protocol `assess`


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeGroup:
    """All episodes of one scenario in a step: they are compared with each other.

    Example: EpisodeGroup(scenario=scenario, report_sets=(first, second))
    """

    scenario: TeamScenario
    report_sets: tuple[ReportSet, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plans:
    """The plans of one governed episode, from the first to the last re-plan.

    Example: Plans(values=(0.0, 0.8), of_call=(0, 1))
    """

    values: tuple[float, ...]  # value of each once carried out, in [0, 1]
    of_call: tuple[int, ...]  # for each call of ReconcileGPT the number of the plan it worked on


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredEpisode:
    """An episode with its verdict.

    Example: ScoredEpisode(episode=episode, verdict=score_episode(scenario, episode, weights))
    """

    episode: Episode
    verdict: TeamVerdict
    plans: Plans | None = None  # of a governed episode; None under protocol `assess`


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredReportSet:
    """One set of reports with its scored episodes.

    Example: ScoredReportSet(scored=(first, second), counterfactual_rewards={"cto": (0.4,)})
    """

    scored: tuple[ScoredEpisode, ...]  # first the full episode, then further decisions on its reports
    # role -> the verifier's values of its report that the credit scheme reads: one, or one by the partners
    # of every set
    counterfactual_rewards: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def first(self) -> ScoredEpisode:
        """The full episode, with the specialists' trajectories and votes."""
        return self.scored[0]

    @property
    def rewards(self) -> tuple[float, ...]:
        """Team reward of every decision on these reports."""
        return tuple(one.verdict.reward for one in self.scored)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredGroup:
    """All scored episodes of one scenario in a step.

    Example: ScoredGroup(scenario=scenario, report_sets=(first, second))
    """

    scenario: TeamScenario
    report_sets: tuple[ScoredReportSet, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAdvantages:
    """Advantages of one role for one set of reports.

    Example: SetAdvantages(report=0.2, episodes=(0.1, -0.1))
    """

    report: float = 0.0  # of a specialist's report; 0 for ReconcileGPT
    # of ReconcileGPT's drafts in each episode, or of a specialist's votes in it; () where `report` is theirs
    episodes: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SoloGroup:
    """All episodes of a role on one scenario in a step, or what a play raised in an episode's place.

    Example: SoloGroup(scenario=scenario, episodes=(first, InfrastructureError("worker lost")))
    """

    scenario: Scenario
    episodes: tuple[SoloEpisode | Exception, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardParts:
    """One episode's reward parts, or why it has none.

    Example: RewardParts(parts=None, fault="reward", reason="the reward is nan")
    """

    parts: Mapping[str, float] | None  # with "total"; None after a fault
    fault: Literal["", "infrastructure", "reward"] = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredSoloGroup:
    """A group with the reward of every episode.

    Example: ScoredSoloGroup(scenario=scenario, episodes=(first, second), rewards=(one, other))
    """

    scenario: Scenario
    episodes: tuple[SoloEpisode | Exception, ...]
    rewards: tuple[RewardParts, ...]

    @property
    def is_usable(self) -> bool:
        """Whether every episode has a reward: a fault leaves its whole group out."""
        return all(one.parts is not None for one in self.rewards)

    @property
    def played(self) -> list[SoloEpisode]:
        """The episodes that were not lost."""
        return [one for one in self.episodes if isinstance(one, SoloEpisode)]

    @property
    def parts(self) -> list[Mapping[str, float]]:
        """The reward parts of the episodes that have any."""
        return [one.parts for one in self.rewards if one.parts is not None]

    @property
    def totals(self) -> list[float]:
        """The reward of the episodes that have one."""
        return [parts["total"] for parts in self.parts]


GroupAdvantages = tuple[SetAdvantages, ...]  # of one role, aligned with a group's report sets
Total = Callable[[Sequence[float]], Sequence[float]]  # adds numbers up over all ranks of a run
