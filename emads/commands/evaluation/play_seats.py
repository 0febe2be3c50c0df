"""`emads evaluate --seat` and `emads diagnose --seat`: a team of any mix on sealed cases of the table."""

from dataclasses import replace
from pathlib import Path

from emads.bench.card import PAGE, compare_cards
from emads.bench.cases import TABLE, BenchCase, Cell, find_band
from emads.bench.run import REPLIES, Confirm, name_folder, play_into
from emads.seats.mixed_team import MixedTeam
from emads.seats.players import RunPlayer, Seats
from emads.seats.prices import ApiOptions
from emads.teams import load_team
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
from roles.errors import UserError
from roles.team import TEAM_ROLES
from simulator.agents.scripted_policies import oracle_team
from simulator.chat_plain import PlainChat
from simulator.engines.routed import RoutedEngine, route_teams
from simulator.engines.scripted import ScriptedEngine

SEATS, ADVERSARY, EXPERTS = "seats", "adversary", "experts"


def evaluate_seats(
    run: Path | None,
    stage: str,
    seats: Seats,
    api: ApiOptions,
    *,
    count: int,
    out: Path | None,
    confirm: Confirm,
) -> str | None:
    """Play `count` sealed cases; with a run, whose team fills the other seats, also with its own team alone.

    Returns: why play stopped before the end; None where all was played.

    Raises:
        UserError: no such run, a wrong player, or a folder that holds another team's plays.
    """
    own = [] if run is None else [Seats({}, RunPlayer(run, stage))]
    folder = out or name_folder("runs/seats" if run is None else str(run / "seats"), seats)
    folders = []
    for players, place in [*((one, folder / "own") for one in own), (seats, folder)]:
        team = _load(run, stage, players, api, place)
        chosen = [team.draw_case(index) for index in range(count)]
        cases = [
            BenchCase(cell=Cell(kind=TABLE, band=find_band(case.difficulty)), scenario=case)
            for case in chosen
        ]
        name = f"test cases of {team.home.label}"
        stop = play_into(place, team, cases, name, confirm=confirm)
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
    """Probe the team on `count` sealed cases; writes diagnostics.json and prints its tables.

    Each role is also replaced by an adversary and by an expert. Returns, raises: as `evaluate_seats`.
    """
    folder = out or name_folder("runs/seats" if run is None else str(run / "seats"), seats)
    team = _load(run, stage, seats, api, folder)
    scenarios = [team.draw_case(index) for index in range(count)]
    plain = PlainChat()
    others = {
        ADVERSARY: (ScriptedEngine(plain, seeded=adversary_team(scenarios)), plain),
        EXPERTS: (ScriptedEngine(plain, seeded=oracle_team(scenarios)), plain),
    }
    labels = {label: {role: f"{label}:{role}" for role in TEAM_ROLES} for label in (SEATS, *others)}
    with team.open(scenarios) as opened:
        routes = {labels[SEATS][role]: opened.routes[role] for role in TEAM_ROLES}
        setup = ProbeSetup(
            scenarios=scenarios,
            engine=RoutedEngine({**routes, **route_teams(others, TEAM_ROLES)}),
            chat=team.chat,
            weights=team.weights,
            make_game=team.make_game,
            max_completion_tokens=team.sampling.max_completion_tokens,
            rounds=team.rounds,
        )
        try:
            probe = probe_team(setup, labels[SEATS])
            replaced = replace_roles(setup, labels[SEATS], {name: labels[name] for name in others})
            swaps = swap_matrix(setup, {name: labels[name] for name in (SEATS, EXPERTS)})
        except RuntimeError:
            if team.stop is None:
                raise
            return f"{team.stop}; raise max_cost and run the same command again to go on"
    diagnostics = describe_diagnostics(SEATS, probe, find_faults(probe), swaps, replaced, count)
    folder.mkdir(parents=True, exist_ok=True)
    written = write_diagnostics(folder, diagnostics)
    print_tables(diagnostic_tables(diagnostics))
    print("\n".join([*team.describe_usage(), f"diagnostics: {written}"]))
    return None


def _load(run: Path | None, stage: str, seats: Seats, api: ApiOptions, folder: Path) -> MixedTeam:
    team = load_team(run, stage=stage, seats=seats, api=replace(api, replies=api.replies or folder / REPLIES))
    if not isinstance(team, MixedTeam):
        raise UserError("name players by --seat")
    return team
