"""Options that several verbs share, and how they become a config and an opened run."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from roles.errors import UserError, unknown

if TYPE_CHECKING:
    from simulator.engines.openai.endpoint import EndpointSettings
    from training.config.run_config import RunConfig
    from training.data.teacher.teacher import TeachingRules
    from training.runs.run_folder import Run

DEFAULT_RUN = Path("runs/demo")

RunOption = Annotated[Path, typer.Option("--run", help="Run folder.")]
OneRunOption = Annotated[
    Path | None, typer.Option("--run", help=f"Run folder (default {DEFAULT_RUN}).", show_default=False)
]
RunsArgument = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[RUN]...", help="Run folders; a folder of several seeds counts as all of them."),
]
TeamOption = Annotated[Path, typer.Option("--team", "--run", help="Run folder whose team plays.")]
EngineOption = Annotated[
    str | None, typer.Option("--engine", help="transformers or vllm (default: the run's engine.name).")
]
ConfigOption = Annotated[Path | None, typer.Option("--config", help="YAML config file.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="Override one config key: grpo.max_steps=20. Repeatable.")
]
PrintOption = Annotated[bool, typer.Option("--print-config", help="Print the resolved config and stop.")]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Go on with the run in --run, with its stored config.")
]
FaultOption = Annotated[
    list[str] | None,
    typer.Option("--fault", help="Break it on purpose: kill@save:3, oom@grpo/cto:step:5. Repeatable."),
]
RoleOption = Annotated[
    list[str] | None, typer.Option("--role", help="Only this role. Repeatable; default: all roles.")
]
TeacherOption = Annotated[
    str | None,
    typer.Option(
        help="OpenAI-compatible endpoint whose model writes the demonstrations: http://host:8000/v1."
    ),
]
ModelOption = Annotated[str | None, typer.Option(help="The teacher's name at the endpoint.")]
ApiKeyOption = Annotated[
    str | None, typer.Option("--api-key-env", help="Environment variable that holds the API key.")
]
PriceInOption = Annotated[float | None, typer.Option(help="Price of a million prompt tokens.")]
PriceOutOption = Annotated[float | None, typer.Option(help="Price of a million completion tokens.")]
MaxCostOption = Annotated[float | None, typer.Option(help="Stop before the teacher has cost more.")]
TeacherSetOption = Annotated[
    list[str] | None,
    typer.Option("--teacher-set", help="Set a key of docs/teacher.md: concurrency=16. Repeatable."),
]
ProtocolOption = Annotated[
    str, typer.Option(help="assess: reports and decision. full: also approval, execution, re-plan.")
]
ReviewerOption = Annotated[
    str | None, typer.Option(help="Who stands at the gate (with --protocol full): simulated or terminal.")
]
WorldOption = Annotated[
    int | None,
    typer.Option(help="Seed of what happens to plans (with --protocol full; default 0): what if?"),
]
AgentOption = Annotated[
    list[str] | None,
    typer.Option("--agent", help="Agent in a seat: cto=code, or for all: react (chat, react, code)."),
]
LimitOption = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        help="Where an agent is cut off: turns=4, turn_tokens, total_tokens, tool_calls, failed_calls.",
    ),
]
StoreOption = Annotated[
    Path | None,
    typer.Option("--db", help="SQLite store (with --protocol full): the same call goes on where it stopped."),
]


class VerbGroup(TyperGroup):
    """Verbs with the nearest match for a mistyped one."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The verb that the arguments begin with.

        Raises:
            UserError: unknown verb.
        """
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            raise unknown("verb", args[0], list(self.commands))
        return super().resolve_command(ctx, args)


def check_at_least(option: str, value: int, minimum: int) -> None:
    """Refuse a number under its minimum.

    Raises:
        UserError: names option, value and minimum.
    """
    if value < minimum:
        raise UserError(f"{option} {value} must be {minimum} or more")


def resolve_config(
    run: Path, config: Path | None, overrides: Sequence[str] | None, resume: bool
) -> "RunConfig":
    """The stored config of an existing run unless --config or --set ask for one; --resume takes nothing else.

    Raises:
        UserError: wrong config, or --resume together with --config or --set, or without a run.
    """
    from training.config.loading import load_config
    from training.runs.run_folder import Run

    is_given = config is not None or bool(overrides)
    if resume and is_given:
        raise UserError("--resume goes on with the run's stored config: leave out --config and --set")
    if resume or (not is_given and (run / "config.yaml").exists()):
        return Run.open(run).config
    return load_config(config, overrides or ())


def start_run(
    run: Path,
    config: Path | None,
    overrides: Sequence[str] | None,
    resume: bool,
    print_config: bool,
    fault: Sequence[str] | None = None,
) -> "Run":
    """The opened run of a training verb; with `print_config` the config is printed and the program ends."""
    from training.runs.faults import parse_faults
    from training.runs.run_folder import Run

    faults = parse_faults(fault or ())
    resolved = resolve_config(run, config, overrides, resume)
    if print_config:
        show_config(resolved)
    return replace(Run.create(run, resolved, resume=resume), faults=faults)


def open_schedule(
    config: Path | None,
    overrides: Sequence[str] | None,
    run: Path | None,
    resume: Path | None,
    fault: Sequence[str] | None,
    print_config: bool,
) -> "Run":
    """The run of a schedule, new or resumed.

    Raises:
        UserError: --resume together with anything that it would contradict, no config, another run's folder.
    """
    if resume is not None:
        if config is not None or overrides or run is not None:
            raise UserError("--resume RUN takes nothing else: leave out --config, --set and --run")
        return start_run(resume, None, None, True, print_config, fault)
    if config is None:
        raise UserError("give --config FILE, e.g. configs/schedules/tiny.yaml, or --resume RUN")
    from training.config.loading import load_config

    folder = Path("runs") / load_config(config, overrides or ()).name if run is None else run
    return start_run(folder, config, overrides, False, print_config, fault)


def show_config(config: "RunConfig") -> None:
    """Print the resolved config and end the program."""
    from training.config.loading import render_config

    typer.echo(render_config(config), nl=False)
    raise typer.Exit


def choose_runs(runs: Sequence[Path] | None, run: Path | None) -> list[Path]:
    """The folders given as arguments or by --run, else the default one.

    Raises:
        UserError: both ways at once.
    """
    if runs and run is not None:
        raise UserError(f"give run folders as arguments or by --run {run}, not both")
    return list(runs or [run or DEFAULT_RUN])


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
    """Difficulties as "1,2" or "1-3".

    Raises:
        UserError: anything else.
    """
    difficulties: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(part) > 8:
            raise UserError(f"difficulties {text!r} are not of the form 1,2 or 1-3")
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
    from training.data.teacher.settings import resolve_teacher

    return resolve_teacher(url, options, overrides or ())


def is_governed(protocol: str, *, reviewer: str | None, db: Path | None, world: int | None) -> bool:
    """Whether the full protocol is asked for.

    Raises:
        UserError: an unknown protocol, or an option of the other one.
    """
    if protocol not in ("assess", "full"):
        raise unknown("protocol", protocol, ["assess", "full"])
    given = {"reviewer": reviewer, "db": db, "world": world}
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
