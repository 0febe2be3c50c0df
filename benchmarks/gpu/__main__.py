"""Everything that a GPU says about this code, in at most nine minutes; results are kept as they come.

    python -m benchmarks.gpu --out results.jsonl            # on a CUDA device
    python -m benchmarks.gpu --out results.jsonl --rehearse # the same code on a CPU, toy shapes, a minute

It needs torch 2.11 or newer, transformers, peft and what `emads` imports; TRL's step is measured where TRL
is installed. Every part is a process of its own with a limit of time: one that breaks costs only itself.
"""

import argparse
import datetime
import multiprocessing
import os
import time
import traceback
from collections.abc import Callable, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.checks import check_device
from benchmarks.gpu.embedded import measure_attention, measure_engine
from benchmarks.gpu.joint import measure_joint
from benchmarks.gpu.learner import measure_learner
from benchmarks.gpu.records import Record, open_record, read_records
from benchmarks.gpu.sizes import REAL, REHEARSAL, Scale
from benchmarks.gpu.trl_side import measure_trl

Part = Callable[[Scale, Record], None]
PARTS: dict[str, tuple[float, Part]] = {  # name -> most seconds, and the measurement
    "checks": (60, check_device),
    "learner-1.5b": (100, lambda scale, record: measure_learner(scale, "qwen2.5-1.5b", record)),
    "engine-0.5b": (60, lambda scale, record: measure_engine(scale, "qwen2.5-0.5b", record)),
    "attention-135m": (60, lambda scale, record: measure_attention(scale, "smollm2-135m", record)),
    "joint-0.5b": (90, lambda scale, record: measure_joint(scale, "qwen2.5-0.5b", record)),
    "trl-1.5b": (60, lambda scale, record: measure_trl(scale, "qwen2.5-1.5b", record)),
    "learner-3b": (100, lambda scale, record: measure_learner(scale, "qwen2.5-3b", record)),
    "engine-1.5b": (60, lambda scale, record: measure_engine(scale, "qwen2.5-1.5b", record)),
}


def run_part(name: str, scale: Scale, path: Path) -> None:
    """Measure one part in this process; an error is a record."""
    record = open_record(path, name)
    try:
        if scale.device == "cpu":
            torch.set_num_threads(1)
        PARTS[name][1](scale, record)
    except BaseException as error:
        place = traceback.format_exc().splitlines()[-8:]
        record("error", error=f"{type(error).__name__}: {error}"[:1000], place=place)


def run_parts(names: Sequence[str], scale: Scale, path: Path, limit_s: float) -> None:
    """Every part in a process of its own; what does not fit into the limit is left out, and said so."""
    start = time.monotonic()
    forked = multiprocessing.get_context("fork")  # torch is imported once; CUDA is first used in the children
    for name in names:
        left = limit_s - (time.monotonic() - start)
        if left < 20:
            open_record(path, name)("left_out", reason=f"{left:.0f} s left of {limit_s:.0f}")
            continue
        began = time.monotonic()
        process = forked.Process(target=run_part, args=(name, scale, path))
        process.start()
        process.join(min(left, PARTS[name][0]))
        if process.is_alive():
            process.kill()
            process.join()
            open_record(path, name)("stopped", reason="out of time", exitcode=process.exitcode)
        open_record(path, name)("took", seconds=time.monotonic() - began, exitcode=process.exitcode)


def describe(scale: Scale) -> dict[str, Any]:
    """Date, device and versions; call it in a process of its own: a fork may not follow the use of CUDA."""
    names = ("torch", "transformers", "peft", "trl")
    found: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "rehearsal": scale.is_toy,
        "versions": {name: version(name) for name in names if find_spec(name)},
        "cuda": torch.version.cuda,
    }
    if scale.device == "cuda":
        found |= {"device": torch.cuda.get_device_name(), "memory": torch.cuda.mem_get_info()[1]}
    return found


def _record_description(scale: Scale, path: Path) -> None:
    open_record(path, "device")("description", **describe(scale))


def show(records: Sequence[dict[str, Any]]) -> None:
    """The main figures, one line each."""
    for one in records:
        kind, values = one["kind"], {k: v for k, v in one.items() if k not in ("part", "kind", "place")}
        print(f"{one['part']:<14}{kind:<18}" + " ".join(f"{k}={v}" for k, v in values.items()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; 1 where a part broke in a rehearsal."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("gpu.jsonl"))
    parser.add_argument("--rehearse", action="store_true", help="toy shapes on the CPU")
    parser.add_argument("--part", choices=PARTS, action="append", help="this part alone; may be repeated")
    parser.add_argument("--limit-s", type=float, default=520.0)
    options = parser.parse_args(arguments)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.unlink(missing_ok=True)
    scale = REHEARSAL if options.rehearse else REAL
    told = multiprocessing.get_context("fork").Process(target=_record_description, args=(scale, options.out))
    told.start()
    told.join(60)
    if told.exitcode:
        raise SystemExit("no CUDA device here: --rehearse runs the same code on a CPU")
    run_parts(options.part or list(PARTS), scale, options.out, options.limit_s)
    records = read_records(options.out)
    show(records)
    broken = [one for one in records if "error" in one or one["kind"] in ("stopped", "left_out")]
    return 1 if options.rehearse and broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
