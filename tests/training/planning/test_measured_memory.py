"""What the plan expects of a joint update against peaks that were measured on a GPU, within 8 percent."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from peak_child import STEPS, planned

from benchmarks.gpu.learner import largest_batch, make_config, planned_memory
from benchmarks.gpu.records import read_records
from benchmarks.gpu.sizes import make_rows
from training.models.shapes import SHAPES

RESULTS = Path(__file__).parent.parent.parent.parent / "benchmarks" / "gpu" / "results"
MEASURED = [
    one
    for path in sorted(RESULTS.glob("*.jsonl"))
    for one in read_records(path)
    if one["kind"] == "learner" and one["layout"] != "packed"  # a layout of an earlier version
]


def test_there_are_measurements_with_and_without_checkpoints() -> None:
    assert {one["checkpointing"] for one in MEASURED} == {True, False}
    assert {one["layout"] for one in MEASURED} == {"padded", "shared_prompt"}


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("kind", sorted(STEPS))
def test_a_step_on_this_cpu_takes_what_is_planned(kind: str) -> None:
    """The resident peak of a step of the 135M shape, in a process of its own, within 15 percent."""
    child = Path(__file__).parents[2] / "support" / "models" / "peak_child.py"
    done = subprocess.run(
        [sys.executable, child, kind],
        env=os.environ | {"MALLOC_MMAP_THRESHOLD_": str(2**18), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    assert planned(kind) == pytest.approx(float(done.stdout.splitlines()[-1]), rel=0.15)


@pytest.mark.parametrize(
    "one", MEASURED, ids=lambda one: f"{one['preset']}-{one['layout']}-{one['checkpointing']}"
)
def test_a_peak_is_as_planned(one: dict[str, float | str | bool]) -> None:
    preset, layout = str(one["preset"]), str(one["layout"])
    rows = make_rows(SHAPES[preset], groups=2, prompt=512, own=(32, 192))
    config = make_config(layout, int(one["micro_batch_tokens"]))
    together = [row for of_role in rows.values() for row in of_role]
    sides = list(rows.values()) if layout == "padded" else [together]  # padded: a pass per role
    tokens = max(largest_batch(side, config) for side in sides)
    planned = planned_memory(preset, config, bool(one["checkpointing"]), tokens)
    assert planned == pytest.approx(float(one["peak_gib"]), rel=0.08)
