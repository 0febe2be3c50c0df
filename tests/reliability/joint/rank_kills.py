"""R10: two gloo ranks under torchrun train sharded (FSDP2); one is killed, the run goes on to the same end.

A trial kills one rank at a random time, sees torchrun end with an error (nothing hangs), starts the same
command again and compares sha256 of the published weights and of the logged metrics with the undisturbed
run. Every third trial goes on from the killed one's checkpoint on one rank for a step, and on two again: then
weights may differ by rounding, 1e-5 at most.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

import torch

from reliability.joint.scripted_models import make_models, make_tokenizer
from reliability.stages.prepared_runs import PreparedRuns
from reliability.trials import Trial, Trials
from roles.registry import ROLES
from training.config.loading import load_config
from training.models.weights import load_weights, save_weights
from training.runs.run_folder import Run

STEPS = 4
SETTINGS = (
    "num_workers=0", "model.hidden_size=32", "model.num_layers=1", "model.num_heads=2",
    "model.intermediate_size=48", "data.difficulties=[1]", f"marl.max_steps={STEPS}",
    "marl.scenarios_per_step=3", "marl.report_sets=2", "marl.decisions_per_set=2", "marl.learning_rate=0.001",
    "marl.memory.sharding=fsdp2", "marl.max_completion_tokens=40", "checkpoint_every=1",
    "marl.guards.validation_scenarios=2",
)  # fmt: skip
LIMIT_S = 300.0  # for two ranks to start, train and end
Weights = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Undisturbed:
    """The run that killed ones are compared with."""

    weights: Weights
    metrics: list[str]
    started_s: float  # from the start to the first step's line
    step_s: float  # from there, per step


def make_source(folder: Path) -> Path:
    """A run whose roles are as they might be after GRPO."""
    if not folder.exists():
        run = Run.create(making := folder.with_suffix(".making"), load_config(None, SETTINGS))
        tokenizer = make_tokenizer()
        for role, model in make_models(tokenizer).items():
            save_weights(run, "grpo", role, model, tokenizer, step=1)
        making.rename(folder)
    return folder


def start(folder: Path, ranks: int, *options: str) -> "subprocess.Popen[str]":
    """The stage under torchrun, in a process group of its own."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    return subprocess.Popen(
        [*command, "-m", "reliability.joint.rank_stage", str(folder), *options],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """(exit status, what it said); a process that hangs is ended and counts as status 124."""
    try:
        _, said = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return 124, "hangs"
    return process.returncode, said


def find_rank(launcher: int, rank: int) -> int | None:
    """The process of this rank, by its environment."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            status, environment = (folder / "status").read_text(), (folder / "environ").read_bytes()
        except OSError:  # it has just ended
            continue
        if f"\nPPid:\t{launcher}\n" in status and f"\0RANK={rank}\0".encode() in b"\0" + environment:
            return int(folder.name)
    return None


def read_end(folder: Path) -> tuple[Weights, list[str]]:
    """Published weights of all roles, and the metrics of every step without times."""
    run = Run.open(folder)
    weights = {
        f"{role}.{name}": parameter.detach()
        for role in ROLES
        for name, parameter in load_weights(run, "marl", role)[0].named_parameters()
    }
    rows = [
        json.dumps([row.step, sorted((k, repr(v)) for k, v in row.metrics.items() if "time" not in k)])
        for row in run.read_metrics("marl")
    ]
    return weights, rows


def train_undisturbed(source: Path, folder: Path) -> Undisturbed:
    """Train once without a fault.

    Raises:
        RuntimeError: it did not come to its end.
    """
    shutil.copytree(source, folder)
    begin, process, started_s = time.monotonic(), start(folder, 2), 0.0
    while process.poll() is None and not Run.open(folder).read_metrics("marl"):
        time.sleep(0.05)
    started_s = time.monotonic() - begin
    status, said = finish(process)
    if status:
        raise RuntimeError(f"two ranks ended with {status}:\n{said[-2000:]}")
    weights, metrics = read_end(folder)
    step_s = (time.monotonic() - begin - started_s) / STEPS
    return Undisturbed(weights=weights, metrics=metrics, started_s=started_s, step_s=step_s)


def wait_for_a_moment(plain: Undisturbed, folder: Path, process: "subprocess.Popen[str]", seed: str) -> None:
    """Until some time before the first step, or after a step drawn at random, by what is logged."""
    rng = random.Random(seed)
    steps = rng.randrange(STEPS)
    if steps == 0:
        time.sleep(rng.uniform(0.5, 1.0) * plain.started_s)
    while process.poll() is None and len(Run.open(folder).read_metrics("marl")) < steps:
        time.sleep(0.02)
    if steps:
        time.sleep(rng.uniform(0.0, plain.step_s))


def kill_a_rank(plain: Undisturbed, source: Path, folder: Path, seed: str, *, change_ranks: bool) -> str:
    """Kill, resume, compare; what was wrong, or ""."""
    for number in count():
        shutil.copytree(source, folder)
        process = start(folder, 2)
        wait_for_a_moment(plain, folder, process, f"{seed}/{number}")
        process_id = find_rank(process.pid, random.Random(seed).randrange(2))
        if process_id is not None:
            os.kill(process_id, signal.SIGKILL)
        status, _ = finish(process)
        if status == 124:
            return "after the kill the launcher hangs"
        if status != 0 and not Run.open(folder).is_done("marl"):
            break
        shutil.rmtree(folder)  # it had ended already
    if change_ranks:
        done = len(Run.open(folder).read_metrics("marl"))
        status, said = finish(start(folder, 1, "--max-steps", str(min(STEPS, done + 1))))
        if status:
            return f"one rank did not go on: {said[-4000:]}"
    status, said = finish(start(folder, 2))
    if status:
        return f"did not go on: {said[-4000:]}"
    weights, metrics = read_end(folder)
    shutil.rmtree(folder)
    bound = 1e-5 if change_ranks else 0.0
    gap = max(float((weights[name] - value).abs().max()) for name, value in plain.weights.items())
    if gap > bound:
        return f"weights differ by {gap:.1e}"
    return "" if change_ranks or metrics == plain.metrics else "metrics differ"


def rank_kills(runs: PreparedRuns, num_trials: int) -> Trials:
    """Yield one kill each; every third changes the number of ranks before it goes on."""
    plain: list[Undisturbed] = []

    def call(number: int, change_ranks: bool) -> str:
        source = make_source(runs.folder / "source-ranks")
        if not plain:
            plain.append(train_undisturbed(source, runs.fresh("plain-ranks")))
        folder = runs.fresh("killed-ranks")
        return kill_a_rank(plain[0], source, folder, f"ranks/{number}", change_ranks=change_ranks)

    for number in range(num_trials):
        change = number % 3 == 2
        yield Trial(f"{number}", "2, 1, 2 ranks" if change else "2 ranks", partial(call, number, change))
