"""Calls of the public Python API: make scenarios, train runs, score them, and play cases with a team.

Those that train or score start worker processes (`num_workers` of the config), which do not run the caller's
script again: no `if __name__ == "__main__":` is needed.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

from emads.seats import STAGES, STOPPED
from emads.team import Team
from evaluation.minutes.minutes import NOT_SCORED
from evaluation.minutes.transcript import render_text, transcript
from roles.errors import UserError, check_number, unknown
from roles.registry import ROLES
from scenarios import team as team_cases
from scenarios.base import MAX_DIFFICULTY, MIN_DIFFICULTY, SEALED, SPLITS, Scenario, Split
from scenarios.registry import FAMILIES
from scenarios.team import TeamScenario
from scenarios.team.playable import PlayableCase
from scenarios.written.written_case import FreeCase
from simulator.agents.agent_kinds import AGENT_KINDS, AgentKind, AgentLimits
from simulator.graph.runner import play_episodes
from simulator.observer import Watch
from simulator.records import Episode
from simulator.reward import TeamVerdict, score_episode

if TYPE_CHECKING:
    from training.runs.run_folder import Run

TEAM = "team"
STREAM = "simulate"
Result = TypeVar("Result")
FAULT = "Not scored: an infrastructure fault is not the team's."


def generate(
    family: str,
    count: int = 1,
    *,
    split: Split = "train",
    seed: int = 0,
    difficulties: Sequence[int] = (1, 2),
    unseal: bool = False,
) -> list[Scenario | TeamScenario]:
    """Return the first `count` scenarios of a family, or of "team"; the difficulties take turns.

    `unseal`: needed for the test split, on which no training and no choice may rest.

    Raises:
        UserError: unknown family or split, count under 1, no difficulties of 1 to 10, a negative seed, or the
            test split without `unseal`.

    Examples:
        >>> [scenario.key for scenario in generate("cto", 2)]
        ['cto/train/0/0/1', 'cto/train/0/1/2']
    """
    if family not in (*FAMILIES, TEAM):
        raise unknown("family", family, [*FAMILIES, TEAM])
    if split not in SPLITS:
        raise unknown("split", split, list(SPLITS))
    if split in SEALED and not unseal:
        raise UserError(f"the {split} split is sealed: generate(..., unseal=True) draws from it all the same")
    check_number("count", count, 1)
    check_number("seed", seed, 0)
    if isinstance(difficulties, str) or not isinstance(difficulties, Sequence) or not difficulties:
        raise UserError(f"difficulties {difficulties!r} must be a list such as [1, 2]")
    for difficulty in difficulties:
        check_number("difficulty", difficulty, MIN_DIFFICULTY)
        if difficulty > MAX_DIFFICULTY:
            raise UserError(f"difficulty {difficulty} must be {MAX_DIFFICULTY} or less")
    draw = team_cases.generate if family == TEAM else FAMILIES[family].generate
    return [draw(split, seed, index, difficulties[index % len(difficulties)]) for index in range(count)]


def open_run(path: str | Path) -> "Run":
    """Return the run in an existing folder: its config, metrics and finished stages.

    Raises:
        UserError: no run there, or a damaged config.

    Examples:
        >>> open_run("runs/none")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        roles.errors.UserError: no run in runs/none (no config.yaml there); start one with ...
    """
    from training.runs.run_folder import Run

    if not isinstance(path, str | Path):
        raise UserError(f"path {path!r} must name the folder of a run, such as runs/demo")
    return Run.open(Path(path))


def train(
    path: str | Path,
    *,
    config: str | Path | None = None,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    stages: Sequence[str] = STAGES,
    roles: Sequence[str] = (),
) -> "Run":
    """Train stages of a run, in the order base, sft, grpo, marl, and return it; what is done is kept.

    A new run takes its config from `config` and `overrides`, such as {"sft.max_steps": 20} or
    ["sft.max_steps=20"]; an existing one has its own. `roles`: those that sft and grpo train; none for all.

    Raises:
        UserError: wrong config, unknown stage or role, another config than the existing run's, or a stage
            whose earlier stages are not done.

    Examples:
        >>> train("runs/x", stages=["sfd"])
        Traceback (most recent call last):
            ...
        roles.errors.UserError: unknown stage 'sfd'; did you mean 'sft'? (known: base, sft, grpo, marl)
    """
    for name, given in (("overrides", overrides), ("stages", stages), ("roles", roles)):
        if isinstance(given, str):
            raise UserError(f"{name} {given!r} must be a list: [{given!r}]")
    for stage in stages:
        if stage not in STAGES:
            raise unknown("stage", stage, list(STAGES))
    for role in roles:
        if role not in ROLES:
            raise unknown("role", role, list(ROLES))
    from emads.commands.stages import train_stages
    from training.config.loading import load_config
    from training.runs.run_folder import Run

    folder = Path(path)
    stored = folder / "config.yaml"
    source = None if config is None else Path(config)
    if source is None and stored.exists():
        source = stored
    run = Run.create(folder, load_config(source, _list_overrides(overrides)))

    def train_in_order() -> None:
        for stage in STAGES:
            if stage in stages:
                train_stages(run, stage, tuple(roles) or tuple(ROLES))

    with _hidden_script():
        run_apart(train_in_order)
    return run


def evaluate(path: str | Path, *, again: bool = False) -> dict[str, Any]:
    """Score every finished stage of a run on its sealed test split; return what summary.json holds.

    Scores that are stored are kept; with `again` everything is played anew.

    Raises:
        UserError: no run there, or nothing trained in it.

    Examples:
        >>> evaluate("runs/none")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        roles.errors.UserError: no run in runs/none (no config.yaml there); start one with ...
    """
    run = open_run(path)
    from emads.commands.evaluate import evaluate_run

    with _hidden_script():
        return run_apart(lambda: evaluate_run(run.path, again=again))


@contextmanager
def _hidden_script() -> Iterator[None]:
    """Hide the caller's script from worker processes, which would run it again from its first line.

    A spawned process imports what the main module names as its file; our tasks need only this package.
    """
    main = sys.modules["__main__"]
    spec, file = main.__spec__, main.__dict__.pop("__file__", None)
    main.__spec__ = None
    try:
        yield
    finally:
        main.__spec__ = spec
        if file is not None:
            main.__file__ = file


def _list_overrides(given: Sequence[str] | Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return overrides as KEY=VALUE; a dict may be nested or have dotted keys."""
    if not isinstance(given, Mapping):
        return list(given)
    found: list[str] = []
    for key, value in given.items():
        if isinstance(value, Mapping):
            found += _list_overrides(value, f"{prefix}{key}.")
        else:
            found.append(f"{prefix}{key}={json.dumps(value)}")
    return found


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
    for role, kind in (kinds or {}).items():
        if role not in ROLES:
            raise unknown("role", role, list(ROLES))
        if kind not in AGENT_KINDS:
            raise unknown("agent kind", str(kind), list(AGENT_KINDS))
    played = play_cases(team, chosen, watch=watch, kinds=kinds, limits=limits)
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
            verdict=score_episode(case, episode, weights)
            if isinstance(case, TeamScenario) and episode.error is None
            else None,
            label=team.label,
            briefs={seat: team.make_game(case).write_report_brief(seat) for seat in case.seats},
        )
        for case, episode in zip(chosen, episodes, strict=True)
    ]


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
    for case in listed:
        if not (isinstance(case, str | Path) or _is_case(case)):
            raise UserError(f"case {case!r} is neither a case file nor a scenario of emads.generate")
    return [team.read_case(Path(one)) if isinstance(one, str | Path) else one for one in listed]


def _is_case(value: object) -> TypeGuard[PlayableCase]:
    return hasattr(value, "parts_of")
