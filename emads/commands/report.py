"""`emads report`: the HTML page of each run, and one Markdown page of all."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from emads.commands.evaluation.evaluate import find_runs
from evaluation.report.page import write_report
from evaluation.report.results_page import write_results_page


def report_runs(
    paths: Sequence[Path], *, markdown: Path | None = None, ablations: Path | None = None
) -> list[Path]:
    """Write report.html into every run, and the Markdown page where asked for; returns what was written.

    Raises:
        UserError: no run, or a run that is not evaluated.
    """
    runs = find_runs(paths)
    written = [write_report(run.path) for run in runs]
    if markdown is not None:
        parts = ["emads", "report", *map(str, paths), "--markdown", str(markdown)]
        parts += ["--ablations", str(ablations)] if ablations is not None else []
        folders = [run.path for run in runs]
        written.append(write_results_page(markdown, folders, ablations=ablations, command=shlex.join(parts)))
    return written
