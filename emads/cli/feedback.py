"""Verbs that make, count and move labels."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from emads.cli.choices import check_at_least, choose_roles
from emads.cli.options import RunArgument
from roles.errors import UserError, unknown

if TYPE_CHECKING:
    from training.feedback.exchange import Tool

LabelFileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="Label file (JSONL).")]
ToolOption = Annotated[str, typer.Option("--for", help="label-studio or argilla.")]


def simulate(
    run: RunArgument,
    out: Annotated[Path, typer.Option(help="Label file to add to.")],
    role: Annotated[str, typer.Option(help="Whose answers are labelled.")],
    kind: Annotated[str, typer.Option(help="correction, comparison or verdict.")] = "comparison",
    reviewer: Annotated[str, typer.Option(help="exact, noisy:RATE, biased, slow or hostile.")] = "exact",
    count: Annotated[int, typer.Option(help="Labels to make.")] = 200,
    stage: Annotated[str, typer.Option(help="Stage whose weights answer: sft, grpo or marl.")] = "grpo",
) -> None:
    """Let a simulated reviewer label answers of a run's role."""
    from emads.commands.labels import simulate_labels
    from training.feedback.reviewers import KINDS, Reviewer
    from training.runs.run_folder import Run

    (chosen,) = choose_roles([role])
    if kind not in KINDS:
        raise unknown("kind", kind, list(KINDS))
    if stage not in ("sft", "grpo", "marl"):
        raise unknown("stage", stage, ["sft", "grpo", "marl"])
    check_at_least("--count", count, 1)
    outs = {Reviewer.parse(reviewer): out}
    simulate_labels(Run.open(run), chosen, kind, outs, stage=stage, count=count)
    typer.echo(f"{count} labels of kind {kind} in {out}")


def show(
    file: LabelFileArgument,
    target: Annotated[
        Path | None, typer.Option("--to", help="Write the items into this file, for --for's tool.")
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="Add the rulings that --for's tool exported here.")
    ] = None,
    tool: ToolOption = "label-studio",
) -> None:
    """Count a file's labels and reviewers' agreement; take its items to another tool and the rulings back."""
    from training.feedback.exchange import LABEL_STUDIO_VIEW, export_labels, import_labels
    from training.feedback.labels import add_label, read_labels

    chosen = _choose_tool(tool)
    if target is not None and source is not None:
        raise UserError("--to writes items, --from reads rulings: give one of them")
    if target is not None:
        typer.echo(f"{export_labels(read_labels(file), target, chosen)} items in {target}")
        if chosen == "label-studio":
            typer.echo(f"labelling interface of the project:\n{LABEL_STUDIO_VIEW}", nl=False)
    elif source is not None:
        found = import_labels(source, read_labels(file), chosen)
        if found:
            add_label(file, *found)
        typer.echo(f"{len(found)} new labels in {file}")
    else:
        _count_labels(file)


def _count_labels(file: Path) -> None:
    from collections import Counter

    from training.feedback.labels import read_labels, resolve_labels

    labels = read_labels(file)
    for (seat, kind), number in sorted(Counter((one.seat, one.kind) for one in labels).items()):
        typer.echo(f"{seat} {kind}: {number}")
    found = resolve_labels(labels)
    share = "no item with two reviewers" if found.agreement is None else f"{found.agreement:.2f}"
    typer.echo(
        f"{len(found.labels)} items ruled on, {len(found.disputed)} disputed, {found.num_replaced} labels"
        f" replaced; agreement of pairs of reviewers: {share}"
    )


def _choose_tool(tool: str) -> "Tool":
    if tool == "label-studio":
        return "label-studio"
    if tool == "argilla":
        return "argilla"
    raise unknown("tool", tool, ["label-studio", "argilla"])


LABEL_VERBS: dict[str, Callable[..., Any]] = {"simulate": simulate, "show": show}
