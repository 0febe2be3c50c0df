"""Verbs that learn from labels (train corrections|dpo|kto|reward|ppo) and verbs that make and move labels."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from emads.cli.choices import check_at_least, choose_roles, open_existing
from emads.cli.options import FaultOption, ResumeOption, RoleOption, RunArgument
from roles.errors import unknown

if TYPE_CHECKING:
    from training.feedback.exchange import Tool

LabelsOption = Annotated[Path | None, typer.Option("--labels", help="Label file (JSONL).")]
SettingOption = Annotated[
    list[str] | None, typer.Option("--set", help="Override one setting: epochs=2. Repeatable.")
]
LabelFileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="Label file (JSONL).")]
ToolOption = Annotated[str, typer.Option("--for", help="label-studio or argilla.")]


def _make_verb(stage: str, summary: str) -> Callable[..., None]:
    def verb(
        run: RunArgument,
        labels: LabelsOption = None,
        role: RoleOption = None,
        settings: SettingOption = None,
        resume: ResumeOption = False,
        fault: FaultOption = None,
    ) -> None:
        _train(stage, run, labels, role, settings, resume, fault)

    verb.__name__, verb.__doc__ = stage, summary
    return verb


def _train(
    stage: str,
    path: Path,
    labels: Path | None,
    role: list[str] | None,
    settings: list[str] | None,
    resume: bool,
    fault: list[str] | None,
) -> None:
    from emads.commands.feedback import read_reward_facts, train_feedback
    from training.runs.faults import parse_faults
    from training.runs.run_folder import Run

    run = replace(Run.open(open_existing(path)), faults=parse_faults(fault or ()))
    roles = choose_roles(role)
    train_feedback(run, stage, roles, labels, settings or (), resume=resume)
    if stage != "reward":
        typer.echo(f"see what changed with `emads evaluate {path}`")
        return
    for one in roles:
        facts = read_reward_facts(run, one)
        share = facts.get("accuracy")
        shown = "not measured" if share is None else f"{share:.2f} on {facts['num_held_out']:.0f} others"
        typer.echo(f"{one}: reward model of {facts['num_rows']:.0f} comparisons, accuracy {shown}")


FEEDBACK_VERBS: dict[str, Callable[..., Any]] = {
    "corrections": _make_verb("corrections", "Fine-tune roles on what reviewers wrote."),
    "dpo": _make_verb("dpo", "Train roles by DPO on comparisons."),
    "kto": _make_verb("kto", "Train roles by KTO on verdicts: approved or rejected."),
    "reward": _make_verb("reward", "Train a reward model per role on comparisons."),
    "ppo": _make_verb("ppo", "Train roles by PPO on the score of their reward model."),
}


def simulate(
    run: RunArgument,
    out: Annotated[Path, typer.Option(help="Label file to add to.")],
    role: Annotated[str, typer.Option(help="Whose answers are labelled.")],
    kind: Annotated[str, typer.Option(help="correction, comparison or verdict.")] = "comparison",
    reviewer: Annotated[str, typer.Option(help="exact, noisy:RATE, biased, slow or hostile.")] = "exact",
    count: Annotated[int, typer.Option(help="Labels to make.")] = 200,
    stage: Annotated[str, typer.Option(help="Stage whose weights answer: sft, grpo or marl.")] = "grpo",
    first: Annotated[int, typer.Option(help="Scenarios to leave out: those of earlier calls.")] = 0,
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
    check_at_least("--first", first, 0)
    outs = {Reviewer.parse(reviewer): out}
    simulate_labels(Run.open(run), chosen, kind, outs, stage=stage, count=count, first=first)
    typer.echo(f"{count} labels of kind {kind} in {out}")


def show(file: LabelFileArgument) -> None:
    """Count the labels of a file, by seat and kind, and how far reviewers agree."""
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


def export(
    file: LabelFileArgument,
    out: Annotated[Path, typer.Option(help="File for the tool: one item per line, or *.json for a list.")],
    tool: ToolOption = "label-studio",
) -> None:
    """Write the items of a label file for Label Studio or Argilla."""
    from training.feedback.exchange import LABEL_STUDIO_VIEW, export_labels
    from training.feedback.labels import read_labels

    chosen = _choose_tool(tool)
    number = export_labels(read_labels(file), out, chosen)
    typer.echo(f"{number} items in {out}")
    if chosen == "label-studio":
        typer.echo(f"labelling interface of the project:\n{LABEL_STUDIO_VIEW}", nl=False)


def import_(
    file: LabelFileArgument,
    source: Annotated[Path, typer.Argument(metavar="EXPORTED", help="What the tool exported.")],
    tool: ToolOption = "label-studio",
) -> None:
    """Add rulings made in Label Studio or Argilla to the label file that the items came from."""
    from training.feedback.exchange import import_labels
    from training.feedback.labels import add_label, read_labels

    found = import_labels(source, read_labels(file), _choose_tool(tool))
    if found:
        add_label(file, *found)
    typer.echo(f"{len(found)} new labels in {file}")


def _choose_tool(tool: str) -> "Tool":
    if tool == "label-studio":
        return "label-studio"
    if tool == "argilla":
        return "argilla"
    raise unknown("tool", tool, ["label-studio", "argilla"])


LABEL_VERBS: dict[str, Callable[..., Any]] = {
    "simulate": simulate,
    "show": show,
    "export": export,
    "import": import_,
}
