"""Verbs that make and check data: generate, validate, import, conformance."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from emads.cli.choices import check_at_least, choose_teacher, parse_difficulties
from emads.cli.options import (
    ApiKeyOption,
    ModelOption,
    TeacherOption,
    TeacherSetOption,
)
from roles.errors import UserError

if TYPE_CHECKING:
    from simulator.engines.openai.endpoint import EndpointSettings
    from training.data.teacher.teacher import TeachingRules


def generate(
    out: Annotated[Path, typer.Option(help="Data folder.")] = Path("runs/data"),
    family: Annotated[
        list[str] | None, typer.Option(help="Only this family, or all. Repeatable; default: all.")
    ] = None,
    count: Annotated[int, typer.Option(help="Scenarios per family.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the scenario streams.")] = 0,
    difficulties: Annotated[str, typer.Option(help="Difficulties, as 1,2 or 1-3.")] = "1,2",
    split: Annotated[str, typer.Option(help="train, validation or test.")] = "train",
    sector: Annotated[
        str | None, typer.Option(help="Only cases of this sector, such as bank; default: all.")
    ] = None,
    processes: Annotated[int | None, typer.Option(help="Worker processes; default: all cores.")] = None,
    unseal: Annotated[
        bool, typer.Option("--unseal", help="Write rows of the sealed test split; the data card says so.")
    ] = False,
    trl: Annotated[
        bool, typer.Option("--trl", help="Write folders that `trl sft` and `trl grpo` open, for one role.")
    ] = False,
    teacher: TeacherOption = None,
    model: ModelOption = None,
    api_key_env: ApiKeyOption = None,
    teacher_set: TeacherSetOption = None,
) -> None:
    """Write verified demonstrations as Parquet, by the oracle or a teacher model; what is done is kept."""
    levels = parse_difficulties(difficulties)
    if sector is not None and (trl or teacher is not None):
        raise UserError("--sector goes with the oracle's data alone: leave --trl and --teacher out")
    if trl:
        _write_for_trl(out, family or (), count, seed, levels, split, teacher)
        return
    chosen = choose_teacher(
        teacher,
        teacher_set,
        processes,
        model=model,
        api_key_env=api_key_env,
    )
    if chosen is not None:
        _generate_with_teacher(chosen, family or (), count, out, seed, levels, split, unseal)
        return
    from training.data.folders.datasets import generate_folder, summarise_folder

    index = generate_folder(
        family or (),
        count,
        out,
        seed=seed,
        difficulties=levels,
        split=split,
        processes=processes,
        sector=sector,
        unseal=unseal,
    )
    typer.echo(f"{out}: {summarise_folder(index)}")


def _write_for_trl(
    out: Path,
    families: Sequence[str],
    count: int,
    seed: int,
    difficulties: Sequence[int],
    split: str,
    teacher: str | None,
) -> None:
    if len(families) != 1 or families[0] == "all":
        raise UserError(f"--trl writes one role, not {len(families)} families: give --family cto, say")
    if teacher is not None or split != "train":
        raise UserError(
            "--trl writes the oracle's train and validation cases: leave --teacher and --split out"
        )
    from training.data.interop import write_trl_folder

    folders = write_trl_folder(out, families[0], count=count, difficulties=difficulties, seed=seed)
    typer.echo(f"trl sft opens {folders['sft']}, trl grpo opens {folders['grpo']}")


def _generate_with_teacher(
    teacher: "tuple[EndpointSettings, TeachingRules]",
    families: Sequence[str],
    count: int,
    out: Path,
    seed: int,
    difficulties: Sequence[int],
    split: str,
    unseal: bool,
) -> None:
    from training.data.teacher.folder import summarise_teaching, teach_folder

    endpoint, rules = teacher
    report = teach_folder(
        families,
        count,
        out,
        endpoint=endpoint,
        rules=rules,
        seed=seed,
        difficulties=difficulties,
        split=split,
        unseal=unseal,
    )
    typer.echo("\n".join(summarise_teaching(report)))
    if report.problem is not None:
        raise UserError(report.problem)


def validate(
    folder: Annotated[Path, typer.Argument(help="Data folder.")],
) -> None:
    """Check every row of a data folder by making and scoring it again."""
    if not any(folder.rglob("*.parquet")):
        raise UserError(f"no data in {folder} (no *.parquet there); make some with `emads generate`")
    from training.data.folders.validation import summarise
    from training.data.tasks.importing import validate_data

    report = validate_data(folder)
    typer.echo("\n".join(summarise(report)))
    if report.problems:
        raise UserError(f"{folder}: {len(report.problems)} problems, the first: {report.problems[0]}")


def import_tasks(
    files: Annotated[list[Path], typer.Argument(help="JSON or JSON Lines files of question and answer.")],
    out: Annotated[Path, typer.Option(help="New data folder.")],
    layout: Annotated[
        str, typer.Option("--format", help="qa: short answers; gsm8k: worked solutions that end in #### n.")
    ] = "qa",
    name: Annotated[str, typer.Option(help="What the tasks are called in rows and keys.")] = "imported",
    check: Annotated[
        str, typer.Option(help="How answers are compared: auto, exact, number, f1 or symbolic.")
    ] = "auto",
) -> None:
    """Turn question files into checked tasks; bad rows are listed with reasons."""
    from training.data.tasks.importing import import_tasks as import_files
    from training.data.tasks.importing import summarise_import

    report = import_files(files, out, layout=layout, name=name, check=check)
    typer.echo("\n".join(summarise_import(report)))


def conformance(
    source: Annotated[str, typer.Argument(metavar="FILE.py:NAME", help="Your family; its file is run.")],
    count: Annotated[int, typer.Option(help="Scenarios to check it on.")] = 50,
) -> None:
    """Check a scenario family of your own against the rules that every family keeps."""
    check_at_least("--count", count, 10)
    from scenarios.conformance import check
    from scenarios.loading import load_family

    family = load_family(source)
    problems = check(family, count=count)
    typer.echo("\n".join(problems) if problems else f"{family.name} conforms ({count} scenarios)")
    if problems:
        raise UserError(f"{source}: {len(problems)} problems are listed, the first: {problems[0]}")
