"""`emads simulate`: a team plays test scenarios, or cases that people wrote, and what was said is kept."""

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from emads.commands.simulation.simulate_outputs import Outputs, Shown, watching, write_outputs
from emads.played_case import PlayedCase, play_cases, refuse_faulty
from emads.seats import STOPPED
from emads.seats.players import Seats, has_person
from emads.seats.prices import ApiOptions
from emads.teams import Team, load_team
from evaluation.minutes.minutes import NOT_SCORED, render_minutes
from roles.errors import UserError
from scenarios.team.playable import PlayableCase
from scenarios.written.written_case import FreeCase, read_case
from simulator.agents.agent_kinds import AgentKind, AgentLimits
from simulator.export.atif import write_atif
from simulator.export.episode_files import write_episodes
from simulator.graph.seating import list_prompt_roles

USER_MISTAKE = 2  # exit status


def simulate(
    source: str | Path | None,
    stage: str | None,
    *,
    cases: Sequence[Path] = (),
    index: int = 0,
    count: int = 1,
    outputs: Outputs,
    kinds: Mapping[str, AgentKind] | None = None,
    limits: AgentLimits | None = None,
    seats: Seats | None = None,
    api: ApiOptions | None = None,
    questions: int | None = None,
) -> int:
    """Play written cases, or (without any) `count` test scenarios from `index` on; print who said what.

    `source`: a run, or "scripted"; `seats` give seats other players, asked as `api` says.
    `questions`: see `load_team`.

    Returns: 0; 2 where a case could not be played, 8 where a cost limit stopped it; the others were.

    Raises:
        FaultyPlayError: an engine failed in a case, after all files are written.
        UserError: no case that can be played, no such run, or no weights of this stage.
    """
    check_files(cases)
    team = load_team(source, stage=stage, seats=seats or (), api=api, questions=questions)
    written, num_skipped = read_cases(team, cases)
    chosen: list[PlayableCase] = [*written] or [team.draw_case(index + i) for i in range(count)]
    with watching(outputs, len(chosen), is_asking=has_person(seats)) as watch:
        played = play_cases(team, chosen, watch=watch, kinds=kinds or {}, limits=limits)
    for one in played:
        print(_describe_result(one) if outputs.live else one.text)
    shown = [_show(one, team, kinds or {}) for one in played]
    episodes = partial(write_episodes, episodes=[one.episode for one in played])
    for line in write_outputs(outputs, shown, team.label, episodes):
        print(line)
    status = end_play(team)
    if not status:
        refuse_faulty(played)
    return status or (USER_MISTAKE if num_skipped else 0)


def end_play(team: Team) -> int:
    """Print what endpoints took; return STOPPED where they stopped the play, else 0."""
    print("\n".join(team.describe_usage()), end="\n" if team.describe_usage() else "")
    if team.stop is None:
        return 0
    print(f"stopped: {team.stop}; raise max_cost, with the same replies=FILE", file=sys.stderr)
    return STOPPED


def check_files(files: Sequence[Path]) -> None:
    """Refuse the call before any weights are loaded if there are case files and none can be read.

    Raises:
        UserError: the first file's mistake.
    """
    refused: list[UserError] = []
    for file in files:
        try:
            read_case(file)
        except UserError as error:
            refused.append(error)
    if refused and len(refused) == len(files):
        raise refused[0]


def read_cases(team: Team, files: Sequence[Path]) -> tuple[list[FreeCase], int]:
    """Return the cases that the team can play, and how many were skipped; each of those is named on stderr.

    Raises:
        UserError: there are files, and none of them can be played: the first reason.
    """
    cases: list[FreeCase] = []
    refused: list[UserError] = []
    for file in files:
        try:
            cases.append(team.read_case(file))
        except UserError as error:
            refused.append(error)
    if refused and not cases:
        raise refused[0]
    for reason in refused:
        print(f"skipped: {reason}", file=sys.stderr)
    return cases, len(refused)


def _describe_result(played: PlayedCase) -> str:
    if played.verdict is None:
        return f"{played.case.key}  {played.episode.error or NOT_SCORED}"
    return f"{played.case.key}  team reward {played.verdict.reward:.3f}: {played.verdict.explanation}"


def _show(one: PlayedCase, team: Team, kinds: Mapping[str, AgentKind]) -> Shown:
    speakers = list_prompt_roles(one.case, team.make_game(one.case), kinds)
    page = partial(
        render_minutes,
        one.case,
        one.episode,
        label=one.label,
        chat=team.chat,
        verdict=one.verdict,
        weights=team.weights,
        speakers=speakers,
    )
    atif = partial(write_atif, episode=one.episode, chat=team.chat, roles=speakers)
    return Shown(case=one.case, played=one.episode, verdict=one.verdict, page=page, write_atif=atif)
