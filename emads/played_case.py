"""One call that plays cases with a team and scores them."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from emads.teams import Team
from evaluation.minutes.minutes import NOT_SCORED
from evaluation.minutes.transcript import render_text, transcript
from roles.registry import ROLES
from scenarios.team import TeamScenario
from scenarios.team.playable import PlayableCase
from scenarios.written.written_case import FreeCase
from simulator.agents.agent_kinds import AgentKind, AgentLimits
from simulator.export.episode_files import episode_to_dict
from simulator.graph.runner import play_episodes
from simulator.observer import Watch
from simulator.records import Episode
from simulator.reward import TeamRewardWeights, TeamVerdict, score_episode

STREAM = "simulate"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedCase:
    """A case, its episode, and the verdict where the case has a truth.

    Example: play(load_team("scripted"), 1)[0].verdict.reward
    """

    case: PlayableCase
    episode: Episode
    verdict: TeamVerdict | None  # None: a written case, or an episode that the engine could not finish
    label: str  # of the team
    briefs: Mapping[str, str]  # seat -> what it read first

    @property
    def text(self) -> str:
        """Return the episode as text: briefs, reports, decision, votes."""
        shown = asdict(self.verdict) if self.verdict is not None else {"explanation": NOT_SCORED}
        text = render_text(
            transcript(episode_to_dict(self.episode), shown, briefs=self.briefs, label=self.label)
        )
        if isinstance(self.case, FreeCase):
            options = [f"  {letter}. {meaning}" for letter, meaning in self.case.meanings.items()]
            text = "\n".join([self.case.title, *options, "", text])
        return text + "\n"


def play(
    team: Team,
    cases: int | Sequence[str | Path | PlayableCase] = 1,
    *,
    first_index: int = 0,
    watch: Watch | None = None,
    kinds: Mapping[str, AgentKind] | None = None,
    limits: AgentLimits | None = None,
) -> list[PlayedCase]:
    """Play cases with a team by the protocol `assess`: reports, decision, votes; greedily.

    `cases`: a number of the team's test scenarios from `first_index` on, or case files and scenarios.
    `watch`: observes the episodes while they are played. `kinds` and `limits`: of agents, by role.

    Raises:
        UserError: a damaged case file, or a case that this team cannot play.

    Examples:
        >>> from emads import load_team
        >>> played = play(load_team("scripted"), 2)
        >>> [one.case.key for one in played]
        ['team/test/0/0/1', 'team/test/0/1/2']
    """
    if isinstance(cases, int):
        chosen: list[PlayableCase] = [team.draw_case(first_index + i) for i in range(cases)]
    else:
        chosen = [team.read_case(Path(one)) if isinstance(one, str | Path) else one for one in cases]
    with team.serve(chosen) as engine:
        episodes = asyncio.run(
            play_episodes(
                chosen,
                {role: role for role in ROLES},
                engine,
                team.chat,
                team.sampling,
                rounds=team.rounds,
                stream=STREAM,
                watch=watch,
                kinds=kinds,
                limits=limits,
                make_game=team.make_game,
            )
        )
    weights = team.weights
    return [
        PlayedCase(
            case=case,
            episode=episode,
            verdict=_score(case, episode, weights),
            label=team.label,
            briefs={seat: team.make_game(case).write_report_brief(seat) for seat in case.seats},
        )
        for case, episode in zip(chosen, episodes, strict=True)
    ]


def _score(case: PlayableCase, episode: Episode, weights: TeamRewardWeights) -> TeamVerdict | None:
    if not isinstance(case, TeamScenario) or episode.error is not None:
        return None
    return score_episode(case, episode, weights)
