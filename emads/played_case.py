"""One call that plays cases with a team and scores them."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard, TypeVar

from emads.seats import STOPPED
from emads.team import Team
from evaluation.minutes.minutes import NOT_SCORED
from evaluation.minutes.transcript import render_text, transcript
from roles.errors import UserError, check_number, unknown
from roles.registry import ROLES
from scenarios.team import TeamScenario
from scenarios.team.playable import PlayableCase
from scenarios.written.written_case import FreeCase
from simulator.agents.agent_kinds import AGENT_KINDS, AgentKind, AgentLimits
from simulator.graph.runner import play_episodes
from simulator.observer import Watch
from simulator.records import Episode
from simulator.reward import TeamRewardWeights, TeamVerdict, score_episode

STREAM = "simulate"
Result = TypeVar("Result")
FAULT = "Not scored: an infrastructure fault is not the team's."


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
        unscored = NOT_SCORED if self.episode.error is None else FAULT
        text = render_text(
            transcript(self.episode, self.verdict, briefs=self.briefs, label=self.label, unscored=unscored)
        )
        if isinstance(self.case, FreeCase):
            options = [f"  {letter}. {meaning}" for letter, meaning in self.case.meanings.items()]
            text = "\n".join([self.case.title, *options, "", text])
        return text + "\n"


class FaultyPlayError(UserError):
    """Cases that an engine could not finish, such as those of an endpoint that is down; exit status 8.

    Example: except FaultyPlayError as fault: finished = [one for one in fault.played if one.verdict]
    """

    status = STOPPED

    def __init__(
        self, faults: Mapping[str, str], num_cases: int, label: str, played: Sequence[PlayedCase] = ()
    ) -> None:
        """Take what failed by case key, and how many cases were to be played."""
        key, first = next(iter(faults.items()))
        super().__init__(f"{len(faults)} of {num_cases} cases broke off ({label}), the first: {key}: {first}")
        self.played = list(played)


def play(
    team: Team,
    cases: int | str | Path | PlayableCase | Sequence[str | Path | PlayableCase] = 1,
    *,
    first_index: int = 0,
    watch: Watch | None = None,
    kinds: Mapping[str, AgentKind] | None = None,
    limits: AgentLimits | None = None,
) -> list[PlayedCase]:
    """Play cases with a team by the protocol `assess`: reports, decision, votes; greedily.

    `cases`: a number of the team's test scenarios from `first_index` on, or case files and scenarios.
    `watch`: observes the episodes while they are played. `kinds`: chat, react or code, by role.
    `limits`: of every agent.

    Raises:
        UserError: a wrong argument, a damaged case file, or a case that this team cannot play.
        FaultyPlayError: an engine failed, such as an endpoint that is down; it holds all cases as played.

    Examples:
        >>> from emads import load_team
        >>> played = play(load_team("scripted"), 2)
        >>> [one.case.key for one in played]
        ['team/test/0/0/1', 'team/test/0/1/2']
        >>> played[0].verdict is not None
        True
    """
    chosen = _choose_cases(team, cases, first_index)
    played = play_cases(team, chosen, watch=watch, kinds=_check_kinds(kinds or {}), limits=limits)
    refuse_faulty(played)
    return played


def refuse_faulty(played: Sequence[PlayedCase]) -> None:
    """Raise if an engine could not finish a case.

    Raises:
        FaultyPlayError: names the first such case and its fault; holds all cases.
    """
    faults = {one.case.key: one.episode.error for one in played if one.episode.error is not None}
    if faults:
        raise FaultyPlayError(faults, len(played), played[0].label, played)


def play_cases(
    team: Team,
    chosen: Sequence[PlayableCase],
    *,
    watch: Watch | None = None,
    kinds: Mapping[str, AgentKind] | None = None,
    limits: AgentLimits | None = None,
) -> list[PlayedCase]:
    """Play cases; one that an engine could not finish has no verdict and names the fault in its episode."""
    with team.serve(chosen) as engine:
        plays = play_episodes(
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
        episodes = run_apart(lambda: asyncio.run(plays))
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


def run_apart(call: Callable[[], Result]) -> Result:
    """Call a function that starts an event loop; inside a running loop, as in a notebook, in a thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return call()
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(call).result()


def _choose_cases(team: Team, cases: object, first_index: int) -> list[PlayableCase]:
    if not hasattr(team, "draw_case"):
        raise UserError(f"team {team!r} is no team: emads.load_team({str(team)!r}) returns one")
    check_number("first_index", first_index, 0)
    if isinstance(cases, int) and not isinstance(cases, bool):
        if cases < 1:
            raise UserError(f"cases {cases} must be 1 or more: a number of test scenarios, or case files")
        return [team.draw_case(first_index + number) for number in range(cases)]
    listed = [cases] if isinstance(cases, str | Path) or _is_case(cases) else cases
    if isinstance(listed, bool) or not isinstance(listed, Sequence) or not listed:
        raise UserError(f"cases {cases!r} must be a number, a case file, a scenario, or a list of these")
    return [_read_case(team, one) for one in listed]


def _read_case(team: Team, case: object) -> PlayableCase:
    if _is_case(case):
        return case
    if not isinstance(case, str | Path):
        raise UserError(f"case {case!r} is neither a case file nor a scenario of emads.generate")
    return team.read_case(Path(case))


def _is_case(value: object) -> TypeGuard[PlayableCase]:
    return hasattr(value, "parts_of")


def _check_kinds(kinds: Mapping[str, AgentKind]) -> Mapping[str, AgentKind]:
    for role, kind in kinds.items():
        if role not in ROLES:
            raise unknown("role", role, list(ROLES))
        if kind not in AGENT_KINDS:
            raise unknown("agent kind", str(kind), list(AGENT_KINDS))
    return kinds
