"""`emads evaluate --seat` and `emads diagnose`: any team on sealed cases of the table, scored or probed."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from emads.bench.card import PAGE, compare_cards
from emads.bench.run import REPLIES, name_folder, play_into
from emads.seats import EMBEDDED, SCRIPTED
from emads.seats.players import ApiOptions, RunPlayer, Seats
from emads.team import Team, load_team
from evaluation.probes.diagnostics import (
    ProbeSetup,
    adversary_team,
    describe_diagnostics,
    probe_team,
    replace_roles,
    swap_matrix,
    write_diagnostics,
)
from evaluation.summary.run_tables import diagnostic_tables
from evaluation.summary.tables import print_tables
from roles.team import TEAM_ROLES
from scenarios.team import TeamScenario
from simulator.agents.scripted_policies import oracle_team
from simulator.chat import Chat, MessageChat, PlainChat
from simulator.engines.base import Engine
from simulator.engines.routed import Route, RoutedEngine, route_teams
from simulator.engines.scripted import ScriptedEngine

SEATS, UNTRAINED, ADVERSARY, EXPERTS = "seats", "untrained", "adversary", "experts"
MIXED_STAGES = ("sft", "grpo", "marl")


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
        cases = [team.draw_case(index) for index in range(count)]
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
                team,
                scenarios,
                {**routes, **route_teams(others, TEAM_ROLES)},
                mixed=(SEATS, EXPERTS),
                replacing=others,
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
    from training.models.weights import stage_marker
    from training.runs.run_folder import Run

    run = Run.open(path)
    finished = [
        one for one in MIXED_STAGES if all(run.is_done(stage_marker(run, one, role)) for role in TEAM_ROLES)
    ]
    stages = dict.fromkeys((stage, *finished, "base"))
    teams = {
        UNTRAINED if one == "base" else one: load_team(path, stage=one, engine=EMBEDDED) for one in stages
    }
    scenarios = [teams[stage].draw_case(index) for index in range(count)]
    adversary = _seat_adversary(scenarios, has_limit=False)
    routes = route_teams(adversary, TEAM_ROLES)
    with ExitStack() as stack:
        for label, team in teams.items():
            opened = stack.enter_context(team.open(scenarios))
            routes |= {_name(label, role): opened.routes[role] for role in TEAM_ROLES}
        _probe(
            run.path,
            stage,
            teams[stage],
            scenarios,
            routes,
            mixed=[label for label in teams if label != UNTRAINED],
            replacing=[label for label in (*teams, *adversary) if label != stage],
        )


def _probe(
    folder: Path,
    home: str,
    team: Team,
    scenarios: Sequence[TeamScenario],
    routes: Mapping[str, Route],
    *,
    mixed: Iterable[str],
    replacing: Iterable[str],
) -> None:
    """Probe the team under the label `home`, mix and replace its roles, write and print what was found."""
    setup = ProbeSetup(
        scenarios=scenarios,
        engine=RoutedEngine(routes),
        chat=MessageChat(),
        weights=team.weights,
        make_game=team.make_game,
        max_completion_tokens=team.sampling.max_completion_tokens,
        rounds=team.rounds,
    )
    probe = probe_team(setup, _name_team(home))
    replaced = replace_roles(setup, _name_team(home), {label: _name_team(label) for label in replacing})
    swaps = swap_matrix(setup, {label: _name_team(label) for label in mixed})
    diagnostics = describe_diagnostics(home, probe, swaps, replaced, len(scenarios))
    written = write_diagnostics(folder, diagnostics)
    print_tables(diagnostic_tables(diagnostics))
    print(f"diagnostics: {written}")


def _seat_adversary(scenarios: Sequence[TeamScenario], *, has_limit: bool) -> dict[str, tuple[Engine, Chat]]:
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
