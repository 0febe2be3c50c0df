"""Values of options become runs, configs, roles and limits; each refusal names option, value and remedy."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from emads.commands.new_runs import check_model_folder, refuse_missing_run
from roles.errors import UserError, unknown

if TYPE_CHECKING:
    from simulator.engines.openai.endpoint import EndpointSettings
    from training.config.run_config import RunConfig
    from training.data.teacher.teacher import TeachingRules
    from training.runs.run_folder import Run

CASE_SUFFIXES = (".yaml", ".yml", ".md")
TEAMS = Path("teams")  # trained teams that come with the repository
FIRST_SIMULATION = "emads simulate examples/card-payments.yaml --team scripted --html out/"


def check_at_least(option: str, value: int, minimum: int) -> None:
    """Refuse a number under its minimum.

    Raises:
        UserError: names option, value and minimum.
    """
    if value < minimum:
        raise UserError(f"{option} {value} must be {minimum} or more")


def resolve_config(
    run: Path,
    config: Path | None,
    overrides: Sequence[str] | None,
    resume: bool,
    *,
    default: Path | None = None,
) -> "RunConfig":
    """Return the stored config of an existing run, or the one that --config and --set give a new run.

    A new run without --config gets the file `default`; without one it needs --config.

    Raises:
        UserError: wrong config, --resume together with --config or --set or without a run, a new run
            without --config.
    """
    from training.config.loading import load_config
    from training.runs.run_folder import Run

    if resume:
        if config is not None or overrides:
            raise UserError("--resume goes on with the run's stored config: leave out --config and --set")
        return Run.open(run).config
    stored = run / "config.yaml"
    if config is None and stored.exists():
        return load_config(stored, overrides) if overrides else Run.open(run).config
    if config is None and default is None:
        raise UserError(
            f"no run in {run}: make one with --config FILE, e.g. --config configs/demo.yaml,"
            " or name the folder of an existing run"
        )
    return load_config(config or default, overrides or ())


def choose_config(run: Path | None, config: Path | None, overrides: Sequence[str] | None) -> "RunConfig":
    """Return the config of an existing run or of --config, or else the default one, with --set applied.

    Raises:
        UserError: a run beside --config, no such run, wrong config.
    """
    from training.config.loading import load_config

    if run is None:
        return load_config(config, overrides or ())
    if config is not None:
        raise UserError(f"give the run {run} or --config {config}, not both")
    return load_config(open_existing(run) / "config.yaml", overrides or ())


def start_run(
    run: Path,
    config: Path | None,
    overrides: Sequence[str] | None,
    resume: bool,
    print_config: bool,
) -> "Run":
    """Open or make the run of a training verb; with `print_config` print its config and end the program."""
    from training.runs.run_folder import Run

    resolved = resolve_config(run, config, overrides, resume)
    if print_config:
        show_config(resolved)
    if not (run / "config.yaml").exists():
        check_model_folder(resolved.model.preset)
    return Run.create(run, resolved, resume=resume)


def choose_folder(
    run: Path | None, config: Path | None, overrides: Sequence[str] | None, resume: bool
) -> Path:
    """Return the folder of a schedule's run: RUN, else runs/NAME of the config.

    Raises:
        UserError: neither RUN nor --config.
    """
    if run is not None:
        return run
    if config is None or resume:
        raise UserError(
            "give RUN, an existing run, or --config FILE, e.g. --config configs/schedules/tiny.yaml"
        )
    from training.config.loading import load_config

    return Path("runs") / load_config(config, overrides or ()).name


def show_config(config: "RunConfig") -> None:
    """Print the resolved config and end the program."""
    from training.config.loading import render_config

    typer.echo(render_config(config), nl=False)
    raise typer.Exit


def open_existing(path: Path) -> Path:
    """Return the folder of an existing run.

    Raises:
        UserError: no run there.
    """
    refuse_missing_run(path)
    from training.runs.run_folder import Run

    return Run.open(path).path


def split_players(names: Sequence[Path]) -> tuple[Path | None, list[Path]]:
    """Return the run folder, if one is named, and the case files among the arguments of `simulate`.

    Raises:
        UserError: two run folders.
    """
    cases = [name for name in names if name.suffix in CASE_SUFFIXES or name.is_file()]
    runs = [name for name in names if name not in cases]
    if len(runs) > 1:
        suffixes = ", ".join(CASE_SUFFIXES)
        raise UserError(f"two runs, {runs[0]} and {runs[1]}: name one (case files end in {suffixes})")
    return (runs[0] if runs else None), cases


def choose_stage(stage: str, *, with_base: bool = True) -> str:
    """Return the stage.

    Raises:
        UserError: unknown stage, or the base where it does not count.
    """
    from emads.seats.players import STAGES

    stages = STAGES if with_base else STAGES[1:]
    if stage not in stages:
        raise unknown("stage", stage, list(stages))
    return stage


def choose_players(
    names: Sequence[Path],
    team: str | None,
    stage: str | None,
    *,
    has_seats: bool = False,
) -> tuple[Path | str | None, list[Path]]:
    """Return who plays and the case files.

    Who plays is a run folder, "scripted", the folder of a team in `teams/`, or None: those that --seat names.

    Raises:
        UserError: nobody to play, two runs, a run beside --team, no such team, or an option that only runs
            have.
    """
    from emads.teams import SCRIPTED

    run, cases = split_players(names)
    if team is None:
        if run is not None:
            refuse_missing_run(run)
        if run is None and not has_seats:
            raise UserError(f"give a RUN whose team plays, or play without one: `{FIRST_SIMULATION}`")
        return run, cases
    if run is not None:
        raise UserError(f"give the run {run} or --team {team}, not both")
    if team != SCRIPTED:
        known = sorted(record.parent.name for record in TEAMS.glob("*/team.json"))
        if team not in known:
            listed = ", ".join([SCRIPTED, *known])
            raise UserError(
                f"unknown team {team!r} (known: {listed}); a run is an argument: `emads simulate {team}`"
            )
        return TEAMS / team, cases
    if stage is not None:
        raise UserError(f"--stage goes with a RUN, not with --team {team}")
    return team, cases


def choose_roles(names: Sequence[str] | None) -> tuple[str, ...]:
    """The named roles in registry order, all of them for none.

    Raises:
        UserError: unknown role.
    """
    from roles.registry import ROLES

    for name in names or ():
        if name not in ROLES:
            raise unknown("role", name, list(ROLES))
    return tuple(role for role in ROLES if not names or role in names)


def parse_difficulties(text: str) -> tuple[int, ...]:
    """Return the difficulties of "1,2" or "1-3".

    Raises:
        UserError: anything else, a range that runs backwards included.
    """
    difficulties: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(part) > 8:
            raise UserError(f"difficulties {text!r} are not of the form 1,2 or 1-3")
        if dash and int(last) < int(first):
            raise UserError(f"difficulties {text!r}: the range {part.strip()} is empty; write {last}-{first}")
        difficulties += range(int(first), int(last if dash else first) + 1)
    return tuple(difficulties)


def choose_teacher(
    url: str | None,
    overrides: Sequence[str] | None,
    processes: int | None,
    **options: str | float | None,
) -> "tuple[EndpointSettings, TeachingRules] | None":
    """The teacher that --teacher names; None without it.

    Raises:
        UserError: options of a teacher without one, --processes with one, a wrong setting.
    """
    if url is None:
        given = [name for name, value in {**options, "teacher_set": overrides}.items() if value is not None]
        if given:
            raise UserError(f"--{given[0].replace('_', '-')} goes with --teacher URL")
        return None
    if processes is not None:
        raise UserError(
            f"--processes {processes} does not go with --teacher; use --teacher-set concurrency=N"
        )
    from training.data.teacher.teacher import resolve_teacher

    return resolve_teacher(url, options, overrides or ())


def is_governed(
    protocol: str,
    *,
    reviewer: str | None,
    db: Path | None,
    world: int | None,
    company: str | None,
) -> bool:
    """Tell whether the full protocol is asked for.

    Raises:
        UserError: an unknown protocol, or an option of the other one.
    """
    if protocol not in ("assess", "full"):
        raise unknown("protocol", protocol, ["assess", "full"])
    given = {"reviewer": reviewer, "db": db, "world": world, "company": company}
    if protocol != "full" and any(value is not None for value in given.values()):
        first = next(name for name, value in given.items() if value is not None)
        raise UserError(f"--{first} goes with --protocol full")
    return protocol == "full"


def read_agents(agents: Sequence[str], limits: Sequence[str]) -> dict[str, Any]:
    """`kinds` and `limits` of agents from the command line.

    Raises:
        UserError: an unknown role, kind or limit.
    """
    from roles.registry import ROLES
    from simulator.agents.agent_kinds import read_kinds, read_limits

    return {"kinds": read_kinds(agents, ROLES), "limits": read_limits(limits)}
