"""Tiny runs that checks break: one stage is trained in a fork of this process, and compared by digest.

The model is untrained, so the verifiers' rewards would be all 0 and nothing would be learnt: rewards are
drawn from a hash of what was said instead. Everything else is the product's own code.
"""

import dataclasses
import hashlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from planned_faults import Fault, plan_faults

from roles.registry import ROLES
from simulator import reward
from training.config.loading import load_config
from training.models.base_model import build_tiny_model, quiet_libraries
from training.models.weights import BASE, load_weights, save_weights
from training.rl.solo import play
from training.runs.checkpoints import verify
from training.runs.resume import StageCheckpoints
from training.runs.run_folder import Run
from training.stages import sft
from training.stages.table import train_stage

SETTINGS = (
    "name=tiny",
    "num_workers=0",
    "model.hidden_size=16",
    "model.num_layers=1",
    "model.num_heads=1",
    "model.intermediate_size=16",
    "data.difficulties=[1]",
    "checkpoint_every=1",
    "sft.max_steps=12",
    "sft.batch_size=2",
    "grpo.max_steps=8",
    "grpo.prompts_per_step=1",
    "grpo.group_size=2",
    "grpo.minibatches=2",
    "grpo.updates_per_batch=2",
    "grpo.max_turns=1",
    "grpo.max_completion_tokens=6",
    "marl.max_steps=4",
    "marl.scenarios_per_step=1",
    "marl.report_sets=2",
    "marl.decisions_per_set=2",
    "marl.credit.scheme=shared",  # the drawn rewards of an untrained team say nothing of exchanged reports
    "marl.max_completion_tokens=4",
    "marl.guards.validation_scenarios=2",
)
ROLE = "cto"
STAGES = {"sft": f"sft/{ROLE}", "grpo": f"grpo/{ROLE}", "marl": "marl"}  # as they are called in a run
TRAIN: dict[str, Callable[[Path], None]] = {
    "sft": lambda path: train_stage(path, "sft", ROLE),
    "grpo": lambda path: train_stage(path, "grpo", ROLE),
    "marl": lambda path: train_stage(path, "marl"),
}
STATE_FILES = ("weights", "optimizer", "scheduler", "random", "learner", "best")
_replaced: list[Callable[[], None]] = []  # calls that put back what `set_up` has replaced
COUNT_ONLY = Fault(
    kind="kill", place="step", count=10**8, stage=None
)  # never strikes, but places are counted


def set_up() -> None:
    """Put in place, once per process: small tokenizer, one thread, rewards by hash, finished states kept."""
    if _replaced:
        return
    quiet_libraries()
    paid = _pay_team(reward.score_episode)
    for name, module in list(sys.modules.items()):
        if name.startswith("training.") and hasattr(module, "score_episode"):
            _replace(module, "score_episode", paid)
    _replace(sft, "TOKENIZER_SCENARIOS", 10)
    _replace(play, "episode_reward", _pay_solo(play.episode_reward))
    _replace(StageCheckpoints, "clear", lambda self: None)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    _replaced.append(lambda: torch.set_num_threads(threads))


def put_back() -> None:
    """Put back everything that `set_up` replaced in this process."""
    while _replaced:
        _replaced.pop()()


def _replace(owner: object, name: str, value: object) -> None:
    _replaced.append(partial(setattr, owner, name, getattr(owner, name)))
    setattr(owner, name, value)


def _pay_solo(original: Callable[..., dict[str, float]]) -> Callable[..., dict[str, float]]:
    def pay(episode: Any, *args: Any, **kwargs: Any) -> dict[str, float]:
        return {**original(episode, *args, **kwargs), "total": _draw(episode.trajectory.token_ids)}

    return pay


def _pay_team(original: Callable[..., Any]) -> Callable[..., Any]:
    def pay(scenario: Any, episode: Any, *args: Any, **kwargs: Any) -> Any:
        said = [(role, one.token_ids) for role, one in sorted(episode.trajectories.items())]
        return dataclasses.replace(original(scenario, episode, *args, **kwargs), reward=_draw(said))

    return pay


def _draw(said: object) -> float:
    """A number in [0, 1) that only what was said decides."""
    return int.from_bytes(hashlib.sha256(repr(said).encode()).digest()[:4]) / 2**32


def prepare(folder: Path, overrides: Sequence[str] = ()) -> None:
    """A run in which every stage can start: weights of all roles after SFT and GRPO, untrained."""
    run = Run.create(folder, load_config(None, [*SETTINGS, *overrides]))
    train_stage(folder, "base")
    _, tokenizer = load_weights(run, BASE, ROLE)
    for number, role in enumerate(ROLES):
        model = build_tiny_model(run.config.model, tokenizer, seed=number)
        for stage in ("sft", "grpo"):
            if f"{stage}/{role}" not in STAGES.values():
                save_weights(run, stage, role, model, tokenizer, step=0)
                run.mark_done(f"{stage}/{role}", {"train_s": 1.0, "weights_changed": True, "signal": 1.0})


def copy_source_weights(folder: Path, stage: str) -> None:
    """Save the weights that `stage` starts from for the one role that earlier stages would train."""
    run = Run.open(folder)
    before = {"grpo": "sft", "marl": "grpo"}.get(stage)
    if before is not None:
        model, tokenizer = load_weights(run, BASE, ROLE)
        save_weights(run, before, ROLE, model, tokenizer, step=0)


def train_in_fork(
    folder: Path, stage: str, planned: Sequence[Fault] = (), *, kill_after_s: float | None = None
) -> int:
    """Train the stage in a fork, from wherever the folder stands; its wait status.

    What it prints goes to FOLDER.log, how often each place of a fault was reached to FOLDER.counts.
    """
    child = os.fork()
    if child == 0:
        _train_and_exit(folder, stage, planned)
    if kill_after_s is not None:
        time.sleep(kill_after_s)
        os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def _train_and_exit(folder: Path, stage: str, planned: Sequence[Fault]) -> None:
    status = 1
    try:
        log = os.open(folder.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        sys.stdout = sys.stderr = os.fdopen(log, "a")  # a test runner has put its own in their place
        plan = plan_faults([*planned, COUNT_ONLY])
        TRAIN[stage](folder)
        folder.with_suffix(".counts").write_text(json.dumps(plan.counts))
        status = 0
    except BaseException as error:
        status = getattr(error, "status", 1)
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def read_log(folder: Path) -> str:
    """Return what all forks of this folder printed."""
    file = folder.with_suffix(".log")
    return file.read_text() if file.exists() else ""


def read_counts(folder: Path) -> dict[str, int]:
    """Return the count of each place that the last fork to end reached."""
    counts: dict[str, int] = json.loads(folder.with_suffix(".counts").read_text())
    return counts


def digest(folder: Path, stage: str) -> dict[str, str]:
    """Return digests of a finished stage: weights, optimizer and all other state, metrics without times."""
    found: dict[str, str] = {}
    published = folder / "checkpoints" / ("marl" if stage == "marl" else STAGES[stage])
    for file in sorted(published.rglob("*.safetensors")):
        found[f"final/{file.relative_to(published)}"] = _hash(file.read_bytes())
    newest = max((folder / "checkpoints" / "unfinished" / STAGES[stage]).iterdir(), key=_step)
    verify(newest)
    for name in STATE_FILES:
        for file in sorted(newest.glob(f"{name}.*")):
            if stage == "sft" or name != "random":  # nothing else draws from the process's own generators
                found[f"state/{file.name}"] = _hash(file.read_bytes())
    rows = [
        (row.stage, row.step, sorted((k, repr(v)) for k, v in row.metrics.items() if "time" not in k))
        for row in Run.open(folder).read_metrics()
    ]
    found["metrics"] = _hash(repr(rows).encode())
    return found


def differences(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Names of what differs between two digests."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step_")) if path.name.startswith("step_") else -1
