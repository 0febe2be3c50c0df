"""Cases per second of one and of two rollout hosts, with and without a slow tool, and what overlap gains.

    python -m benchmarks.joint.host_rates --run runs/demo --tool-ms 50 --steps 5

The run folder holds its roles' GRPO weights. Settings take turns, so that other load meets all alike. A tool
is a pause before every call of an engine. Overlap: wall seconds of so many joint steps on one host, played
and learnt in turn (staleness 0) or at the same time (1), first play and last update included.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.joint.hosts import make_learner
from simulator.engines.base import Completion, CompletionRequest
from simulator.engines.embedded.engine import TransformersEngine
from training.models.base_model import quiet_libraries
from training.rl.hosts import HostPool, RolloutHost
from training.rl.overlap import OverlappedLearner
from training.rl.remote_hosts import ProcessHost
from training.runs.run_folder import Run
from training.stages import rl
from training.stages.from_config import joint_cases

AHEAD = {"max_staleness": 1, "loss__importance": "token"}


class ToolEngine(TransformersEngine):
    """Waits before every call, as for a tool."""

    def __init__(self, tool_s: float, **given: Any) -> None:
        super().__init__(**given)
        self._tool_s = tool_s

    async def complete(self, request: CompletionRequest) -> Completion:
        await asyncio.sleep(self._tool_s)
        return await super().complete(request)


@contextmanager
def open_host(path: Path, tool_s: float) -> Iterator[RolloutHost]:
    """A host of the run whose calls wait."""
    setattr(rl, "TransformersEngine", partial(ToolEngine, tool_s))  # noqa: B010
    with rl.open_host(path, ("grpo", None)) as host:
        yield host


def measure_play(run: Run, options: argparse.Namespace) -> None:
    """Print cases per second of each setting, the settings in turn."""
    learner = make_learner(run)
    learner.block_size = options.block_size
    weights = learner.updater.actor_weights()
    settings = [(hosts, tool_s) for tool_s in (0.0, options.tool_ms / 1000) for hosts in (1, 2)]
    pools = {one: _make_pool(run, *one) for one in settings}
    rates: dict[tuple[int, float], list[float]] = {one: [] for one in settings}
    try:
        for step in range(options.steps + 1):  # the first one waits for the hosts' start
            cases = joint_cases(run.config, step)
            for one, pool in pools.items():
                start = time.perf_counter()
                pool.play(weights, 0, learner.cut_jobs(cases, step))
                rates[one].append(len(cases) / (time.perf_counter() - start))
    finally:
        for pool in pools.values():
            pool.close()
    print("| tool | hosts | cases per second, median | least | most |\n|---|---|---|---|---|")
    for (hosts, tool_s), found in rates.items():
        shown = (statistics.median(found[1:]), min(found[1:]), max(found[1:]))
        print(f"| {1000 * tool_s:.0f} ms | {hosts} | " + " | ".join(f"{rate:.2f}" for rate in shown) + " |")


def measure_overlap(run: Run, options: argparse.Namespace) -> None:
    """Print wall seconds of joint steps on one host in turn and at the same time."""
    pool = _make_pool(run, 1, options.tool_ms / 1000)
    took: dict[int, list[float]] = {0: [], 1: []}
    try:
        for attempt in range(options.attempts):
            for staleness, found in took.items():
                learner = make_learner(run, **(AHEAD if staleness else {}))
                learner.block_size, learner.hosts = options.block_size, pool
                learner.updater.num_steps = first = (2 * attempt + staleness) * options.steps
                trainer = OverlappedLearner(learner, partial(joint_cases, run.config), first + options.steps)
                if not found:  # a host that is not there yet would be waited for
                    pool.play(
                        learner.updater.actor_weights(), -1, learner.cut_jobs(trainer.cases_of(0)[:1], 0)
                    )
                start = time.perf_counter()
                for _ in range(options.steps):
                    trainer.step()
                found.append(time.perf_counter() - start)
                trainer.close()
    finally:
        pool.close()
    print("| staleness | seconds for all steps, by attempt |\n|---|---|")
    for staleness, found in took.items():
        print(f"| {staleness} | " + ", ".join(f"{seconds:.1f}" for seconds in found) + " |")


def _make_pool(run: Run, hosts: int, tool_s: float) -> HostPool:
    opened = partial(open_host, run.path, tool_s)
    return HostPool(lambda number: ProcessHost(opened, number=number), hosts, timeout_s=600)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--tool-ms", type=float, default=50.0)
    parser.add_argument("--block-size", type=int, default=12)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--attempts", type=int, default=2, help="of the overlap")
    parser.add_argument("--only", choices=["play", "overlap"])
    options = parser.parse_args()
    quiet_libraries()
    torch.set_num_threads(1)
    run = Run.open(options.run)
    for part, measure in (("play", measure_play), ("overlap", measure_overlap)):
        if options.only in (None, part):
            measure(run, options)


if __name__ == "__main__":
    main()
