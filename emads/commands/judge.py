"""`emads judge MODEL`: calibrates a language model as judge; a fit one may score a folder of answers."""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from evaluation.scoring.external_tasks import read_task_folder
from evaluation.scoring.judge_calibration import (
    CRITERIA,
    LEAST_ORDER,
    MOST_GAIN,
    MOST_UNUSABLE,
    Calibration,
    calibrate,
    draw_cases,
    require_fit,
)
from evaluation.stats.intervals import mean_interval
from roles.errors import InfrastructureError, UserError
from scenarios.tasks.grading.judge import score_by_judge
from simulator.engines.openai.chat_engine import EndpointJudge
from simulator.engines.openai.endpoint import EndpointSettings
from simulator.export.atomic_files import explain_os_errors, write_atomic

NUM_CASES = 40  # pairs of answers that a judge is calibrated on


def judge_answers(
    settings: EndpointSettings,
    *,
    answers: Path | None = None,
    criteria: Mapping[str, str],
    out: Path | None = None,
) -> None:
    """Print the calibration; score the answers where the judge is fit, one JSON line each in `out`.

    `criteria`: name -> question; without any those of the calibration.

    Raises:
        UserError: the judge is not fit or cannot be reached, or the folder holds no answers.
    """
    criteria = criteria or CRITERIA
    rows = () if answers is None else read_task_folder(answers).scenarios
    with EndpointJudge(settings) as judge:
        try:
            found = calibrate(judge, draw_cases(NUM_CASES), concurrency=settings.concurrency)
            print("\n".join(describe_calibration(settings.model, found)))
            require_fit(found)
            pairs = [(row.brief, str(row.truth["answer"])) for row in rows]
            with ThreadPoolExecutor(settings.concurrency) as pool:
                scored = pool.map(lambda pair: score_by_judge(judge, criteria, *pair), pairs)
                lines = [{name: one.value for name, one in scores.items()} for scores in scored]
        except InfrastructureError as error:
            raise UserError(f"the judge gave no reply ({error}); nothing was scored") from None
    for name in criteria if lines else ():
        mean = mean_interval([line[name] for line in lines])
        print(f"{name}: {mean:.3f} over {len(lines)} answers")
    if out is not None and pairs:
        with explain_os_errors("write scores", out):
            said = ({"question": one, "answer": other} for one, other in pairs)
            write_atomic(out, "".join(json.dumps(a | b) + "\n" for a, b in zip(said, lines, strict=True)))
        print(f"scores: {out}")


def describe_calibration(model: str, found: Calibration) -> list[str]:
    """A line per figure, each with the bound that a fit judge keeps."""
    return [
        f"{model} on {found.num_cases} pairs of a right and a wrong working:",
        f"  better answer first     {found.order:.2f}  (at least {LEAST_ORDER:g}; chance is 0.5)",
        f"  score, better - worse   {found.gap:+.2f}",
        f"  gained by asking        {found.plea_gain:+.2f}  (at most {MOST_GAIN:g})",
        f"  gained by length        {found.length_gain:+.2f}  (at most {MOST_GAIN:g})",
        f"  replies without scores  {found.unusable:.2f}  (at most {MOST_UNUSABLE:g})",
    ]
