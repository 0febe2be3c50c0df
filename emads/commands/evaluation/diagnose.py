"""`emads diagnose`: probes a run's team, mixes it with other stages and runs, and says what is wrong."""

from pathlib import Path

from evaluation.probes.diagnostics import (
    describe_diagnostics,
    find_faults,
    probe_team,
    replace_roles,
    swap_matrix,
    write_diagnostics,
)
from evaluation.probes.probe_setup import ProbeSetup, Team, adversary_team
from evaluation.summary.run_tables import diagnostic_tables
from evaluation.summary.tables import print_tables
from roles.team import TEAM_ROLES
from simulator.chat import Chat
from simulator.chat_messages import MessageChat
from simulator.chat_plain import PlainChat
from simulator.engines.base import Engine
from simulator.engines.routed import RoutedEngine, route_teams
from simulator.engines.scripted import ScriptedEngine
from training.data.demonstrations import team_scenario
from training.models.base_model import quiet_libraries
from training.models.weights import load_team, stage_marker
from training.runs.run_folder import Run
from training.stages.from_config import choose_game, make_chat, team_engine

UNTRAINED, ADVERSARY = "untrained", "adversary"
MIXED_STAGES = ("sft", "grpo", "marl")

Seated = tuple[Engine, Chat]


def diagnose(path: Path, *, stage: str = "marl", count: int = 200) -> None:
    """Probe the team of a stage on `count` sealed cases; writes diagnostics.json and prints its tables.

    The swap matrix mixes its specialists and chair with those of the run's other stages.

    Raises:
        UserError: no weights of the stage, or no such run.
    """
    quiet_libraries()
    run = Run.open(path)
    data = run.config.data
    scenarios = [team_scenario("test", data.seed, index, data.difficulties) for index in range(count)]
    teams: dict[str, Seated] = {}
    for label in dict.fromkeys((stage, *(one for one in MIXED_STAGES if _has(run, one)), "base")):
        teams[UNTRAINED if label == "base" else label] = _seat(run, label)
    mixable = [label for label in teams if label != UNTRAINED]
    plain = PlainChat()
    teams[ADVERSARY] = ScriptedEngine(plain, seeded=adversary_team(scenarios), has_limit=False), plain
    setup = ProbeSetup(
        scenarios=scenarios,
        engine=RoutedEngine(route_teams(teams, TEAM_ROLES)),
        chat=MessageChat(),
        weights=run.config.team_reward,
        make_game=choose_game(run.config),
        max_completion_tokens=run.config.marl.max_completion_tokens,
        rounds=run.config.marl.rounds,
    )
    home = _team(stage)
    probe = probe_team(setup, home)
    diagnostics = describe_diagnostics(
        stage,
        probe,
        find_faults(probe),
        swap_matrix(setup, {label: _team(label) for label in mixable}),
        replace_roles(setup, home, {label: _team(label) for label in teams if label != stage}),
        count,
    )
    written = write_diagnostics(run.path, diagnostics)
    print_tables(diagnostic_tables(diagnostics))
    print(f"diagnostics: {written}")


def _seat(run: Run, stage: str) -> Seated:
    """The engine of a run's team after a stage, and the chat of its tokens."""
    models, tokenizer = load_team(run, stage)
    return team_engine(models, tokenizer, run.config, stage), make_chat(tokenizer, run.config)


def _team(label: str) -> Team:
    return {role: f"{label}:{role}" for role in TEAM_ROLES}


def _has(run: Run, stage: str) -> bool:
    return all(run.is_done(stage_marker(run, stage, role)) for role in TEAM_ROLES)
