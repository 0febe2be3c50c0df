"""`emads evaluate --seat` and `emads diagnose`: any team on sealed cases of the table, scored or probed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from emads.bench.card import PAGE, compare_cards
from emads.bench.cases import TABLE, BenchCase, Cell, find_band
from emads.bench.run import REPLIES, name_folder, play_into
from emads.seats.players import RunPlayer, Seats
from emads.seats.prices import ApiOptions
from emads.team import SCRIPTED, Team, load_team
from evaluation.probes.diagnostics import (
    describe_diagnostics,
    find_faults,
    probe_team,
    replace_roles,
    swap_matrix,
    write_diagnostics,
)
from evaluation.probes.probe_setup import ProbeSetup, adversary_team
from evaluation.summary.run_tables import diagnostic_tables
from evaluation.summary.tables import print_tables
from roles.team import TEAM_ROLES
from scenarios.team import TeamScenario
from simulator.agents.scripted_policies import oracle_team
from simulator.chat import Chat
from simulator.chat_messages import MessageChat
from simulator.chat_plain import PlainChat
from simulator.engines.base import Engine
from simulator.engines.routed import Route, RoutedEngine, route_teams
from simulator.engines.scripted import ScriptedEngine
from simulator.game import MakeGame
from simulator.reward import TeamRewardWeights

SEATS, UNTRAINED, ADVERSARY, EXPERTS = "seats", "untrained", "adversary", "experts"
MIXED_STAGES = ("sft", "grpo", "marl")

Seated = tuple[Engine, Chat]


def evaluate_seats(
    run: Path | None, stage: str, seats: Seats, api: ApiOptions, *, count: int, out: Path | None
) -> str | None:
    """Play `count` sealed cases; with a run, whose team fills the other seats, also with its own team alone.

    Returns: why play stopped before the end; None where all was played.

    Raises:
        UserError: no such run, a wrong player, or a folder that holds another team's plays.
    """
    own = [] if run is None else [Seats({}, RunPlayer(run, stage))]
    folder = out or _name_folder(run, seats)
    folders = []
    for players, place in [*((one, folder / "own") for one in own), (seats, folder)]:
        team = _load(run, stage, players, api, place)
        chosen = [team.draw_case(index) for index in range(count)]
        cases = [
            BenchCase(cell=Cell(kind=TABLE, band=find_band(case.difficulty)), scenario=case)
            for case in chosen
        ]
        home = f"{SCRIPTED} team" if team.home is None else team.home.label
        stop = play_into(place, team, cases, f"test cases of {home}")
        folders.append(place)
        if stop is not None:
            return stop
    print((folder / PAGE).read_text())
    if own:
        print("\n".join(compare_cards(*folders)))
    return None


def diagnose_seats(
    run: Path | None, stage: str, seats: Seats, api: ApiOptions, *, count: int, out: Path | None
) -> str | None:
    """Probe the team on `count` sealed cases; each role is also replaced by an adversary and by an expert.

    Writes diagnostics.json and prints its tables. Returns, raises: as `evaluate_seats`.
    """
    folder = out or _name_folder(run, seats)
    team = _load(run, stage, seats, api, folder)
    scenarios = [team.draw_case(index) for index in range(count)]
    plain = PlainChat()
    experts = ScriptedEngine(plain, seeded=oracle_team(scenarios))
    others = {**_seat_adversary(scenarios, has_limit=True), EXPERTS: (experts, plain)}
    with team.open(scenarios) as opened:
        routes = {_name(SEATS, role): opened.routes[role] for role in TEAM_ROLES}
        try:
            _probe(
                folder,
                SEATS,
                scenarios,
                {**routes, **route_teams(others, TEAM_ROLES)},
                mixed=(SEATS, EXPERTS),
                replacing=others,
                make_game=team.make_game,
                weights=team.weights,
                max_completion_tokens=team.sampling.max_completion_tokens,
                rounds=team.rounds,
            )
        except RuntimeError:
            if team.stop is None:
                raise
            return f"{team.stop}; raise max_cost and run the same command again to go on"
    for line in team.describe_usage():
        print(line)
    return None


def diagnose_run(path: Path, *, stage: str, count: int) -> None:
    """Probe the team of a stage on `count` sealed cases, mixed with the run's other stages.

    Writes diagnostics.json and prints its tables.

    Raises:
        UserError: no weights of the stage, or no such run.
    """
    from training.data.demonstrations import team_scenario
    from training.models.base_model import quiet_libraries
    from training.models.weights import load_team as load_models
    from training.models.weights import stage_marker
    from training.runs.run_folder import Run
    from training.stages.from_config import choose_game, make_chat, team_engine

    quiet_libraries()
    run = Run.open(path)
    data, config = run.config.data, run.config
    scenarios = [team_scenario("test", data.seed, index, data.difficulties) for index in range(count)]
    finished = [
        one for one in MIXED_STAGES if all(run.is_done(stage_marker(run, one, role)) for role in TEAM_ROLES)
    ]
    teams: dict[str, Seated] = {}
    for label in dict.fromkeys((stage, *finished, "base")):
        models, tokenizer = load_models(run, label)
        seated = team_engine(models, tokenizer, config, label), make_chat(tokenizer, config)
        teams[UNTRAINED if label == "base" else label] = seated
    mixed = [label for label in teams if label != UNTRAINED]
    teams |= _seat_adversary(scenarios, has_limit=False)
    _probe(
        run.path,
        stage,
        scenarios,
        route_teams(teams, TEAM_ROLES),
        mixed=mixed,
        replacing=[label for label in teams if label != stage],
        make_game=choose_game(config),
        weights=config.team_reward,
        max_completion_tokens=config.marl.max_completion_tokens,
        rounds=config.marl.rounds,
    )


def _probe(
    folder: Path,
    home: str,
    scenarios: Sequence[TeamScenario],
    routes: Mapping[str, Route],
    *,
    mixed: Iterable[str],
    replacing: Iterable[str],
    make_game: MakeGame,
    weights: TeamRewardWeights,
    max_completion_tokens: int,
    rounds: int,
) -> None:
    """Probe the team under the label `home`, mix and replace its roles, write and print what was found."""
    setup = ProbeSetup(
        scenarios=scenarios,
        engine=RoutedEngine(routes),
        chat=MessageChat(),
        weights=weights,
        make_game=make_game,
        max_completion_tokens=max_completion_tokens,
        rounds=rounds,
    )
    probe = probe_team(setup, _name_team(home))
    replaced = replace_roles(setup, _name_team(home), {label: _name_team(label) for label in replacing})
    swaps = swap_matrix(setup, {label: _name_team(label) for label in mixed})
    diagnostics = describe_diagnostics(home, probe, find_faults(probe), swaps, replaced, len(scenarios))
    folder.mkdir(parents=True, exist_ok=True)
    written = write_diagnostics(folder, diagnostics)
    print_tables(diagnostic_tables(diagnostics))
    print(f"diagnostics: {written}")


def _seat_adversary(scenarios: Sequence[TeamScenario], *, has_limit: bool) -> dict[str, Seated]:
    plain = PlainChat()
    return {ADVERSARY: (ScriptedEngine(plain, seeded=adversary_team(scenarios), has_limit=has_limit), plain)}


def _name(label: str, role: str) -> str:
    return f"{label}:{role}"


def _name_team(label: str) -> dict[str, str]:
    return {role: _name(label, role) for role in TEAM_ROLES}


def _name_folder(run: Path | None, seats: Seats) -> Path:
    return name_folder("runs/seats" if run is None else str(run / "seats"), seats)


def _load(run: Path | None, stage: str, seats: Seats, api: ApiOptions, folder: Path) -> Team:
    return load_team(run, stage=stage, seats=seats, api=replace(api, replies=api.replies or folder / REPLIES))
