"""Verbs that make and check data: generate, validate, import, conformance, labels."""

from pathlib import Path
from typing import Annotated

import typer

from emads.cli.options import RunArgument, check_at_least, check_file_target, choose_roles, parse_difficulties
from roles.errors import UserError, unknown

CONFORMANCE_COUNT = 50


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
    teacher: Annotated[
        str | None,
        typer.Option(
            help="OpenAI-compatible endpoint whose model writes the demonstrations: http://host:8000/v1."
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="The teacher's name at the endpoint.")] = None,
    teacher_set: Annotated[
        list[str] | None,
        typer.Option(
            help="Set how the teacher is asked: concurrency=16; api_key_env=VARIABLE for the key. Repeatable."
        ),
    ] = None,
) -> None:
    """Write verified demonstrations as Parquet, by the oracle or a teacher model; what is done is kept."""
    levels, families = parse_difficulties(difficulties), family or []
    for option, value in {"--model": model, "--teacher-set": teacher_set}.items():
        if value is not None and teacher is None:
            raise UserError(f"{option} goes with --teacher URL")
    if sector is not None and (trl or teacher is not None):
        raise UserError("--sector goes with the oracle's data alone: leave --trl and --teacher out")
    if trl:
        if len(families) != 1 or families[0] == "all":
            raise UserError(f"--trl writes one role, not {len(families)} families: give --family cto, say")
        if teacher is not None or split != "train":
            raise UserError(
                "--trl writes the oracle's train and validation cases: leave --teacher and --split out"
            )
        from training.data.interop import write_trl_folder

        folders = write_trl_folder(out, families[0], count=count, difficulties=levels, seed=seed)
        typer.echo(f"trl sft opens {folders['sft']}, trl grpo opens {folders['grpo']}")
        return
    if teacher is None:
        from training.data.folders.datasets import generate_folder, summarise_folder

        index = generate_folder(
            families,
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
        return
    if processes is not None:
        raise UserError(
            f"--processes {processes} does not go with --teacher; use --teacher-set concurrency=N"
        )
    from training.data.teacher.folder import summarise_teaching, teach_folder
    from training.data.teacher.teacher import resolve_teacher

    endpoint, rules = resolve_teacher(teacher, model, teacher_set or ())
    report = teach_folder(
        families,
        count,
        out,
        endpoint=endpoint,
        rules=rules,
        seed=seed,
        difficulties=levels,
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
    from training.data.tasks import validate_data

    report = validate_data(folder)
    typer.echo("\n".join(summarise(report)))
    if report.problems:
        raise UserError(f"{folder}: {len(report.problems)} problems, the first: {report.problems[0]}")


def import_tasks(
    files: Annotated[
        list[Path], typer.Argument(help="JSON, JSON Lines, CSV or Parquet files of question and answer.")
    ],
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
    from training.data.tasks import import_tasks as import_files
    from training.data.tasks import summarise_import

    report = import_files(files, out, layout=layout, name=name, check=check)
    typer.echo("\n".join(summarise_import(report)))


def conformance(
    source: Annotated[str, typer.Argument(metavar="FILE.py:NAME", help="Your family; its file is run.")],
) -> None:
    """Check a scenario family of your own against the rules that every family keeps."""
    from scenarios.conformance import check, load_family

    family = load_family(source)
    problems = check(family, count=CONFORMANCE_COUNT)
    typer.echo("\n".join(problems) if problems else f"{family.name} conforms ({CONFORMANCE_COUNT} scenarios)")
    if problems:
        raise UserError(f"{source}: {len(problems)} problems are listed, the first: {problems[0]}")


def simulate_labels(
    run: RunArgument,
    out: Annotated[Path, typer.Option(help="Label file to add to.")],
    role: Annotated[str, typer.Option(help="Whose answers are labelled.")],
    kind: Annotated[str, typer.Option(help="correction, comparison or verdict.")] = "comparison",
    reviewer: Annotated[str, typer.Option(help="exact, noisy:RATE, biased, slow or hostile.")] = "exact",
    count: Annotated[int, typer.Option(help="Labels to make.")] = 200,
    stage: Annotated[str, typer.Option(help="Stage whose weights answer: sft, grpo or marl.")] = "grpo",
) -> None:
    """Let a simulated reviewer label answers of a run's role."""
    from emads.commands.review import simulate_labels as write_labels
    from training.feedback.reviewers import KINDS, LabelReviewer
    from training.runs.run_folder import Run

    (chosen,) = choose_roles([role])
    if kind not in KINDS:
        raise unknown("kind", kind, list(KINDS))
    if stage not in ("sft", "grpo", "marl"):
        raise unknown("stage", stage, ["sft", "grpo", "marl"])
    check_at_least("--count", count, 1)
    check_file_target("--out", out)
    write_labels(Run.open(run), chosen, kind, {LabelReviewer.parse(reviewer): out}, stage=stage, count=count)
    typer.echo(f"{count} labels of kind {kind} in {out}")


def show_labels(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Label file (JSONL).")],
) -> None:
    """Count a file's labels, and say how far reviewers agree."""
    from emads.commands.review import count_labels

    typer.echo("\n".join(count_labels(file)))
