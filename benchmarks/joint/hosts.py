"""Time of a joint step in one process against the same step on rollout hosts, in turn, from the same weights.

    python -m benchmarks.joint.hosts --run runs/demo --hosts 2 --block-size 12 --steps 5

The run folder holds its roles' GRPO weights. Wall seconds of every step, the median of their ratios, CPU
seconds of all processes without the hosts' start, and whether the weights are the same to the bit.
"""

import argparse
import os
import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch

from training.models.base_model import quiet_libraries
from training.models.weights import load_team
from training.rl.hosts import HostPool
from training.rl.loop import RLLearner
from training.rl.remote_hosts import ProcessHost
from training.rl.team.algorithm import make_team_learner
from training.runs.run_folder import Run
from training.stages.from_config import choose_game, joint_cases, make_chat
from training.stages.rl import open_host

TICKS = os.sysconf("SC_CLK_TCK")


def read_cpu_s(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def make_learner(run: Run, **changes: Any) -> RLLearner:
    """The run's team after GRPO, ready to learn."""
    models, tokenizer = load_team(run, "grpo")
    return make_team_learner(
        models,
        run.config.marl.changed(**changes),
        chat=make_chat(tokenizer, run.config),
        reward_weights=run.config.team_reward,
        seed=run.config.seed,
        make_game=choose_game(run.config),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--block-size", type=int, default=12)
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    quiet_libraries()
    torch.set_num_threads(1)
    run = Run.open(options.run)
    alone, spread = make_learner(run), make_learner(run)
    made: list[ProcessHost] = []

    def make(number: int) -> ProcessHost:
        made.append(ProcessHost(partial(open_host, run.path, ("grpo", None)), number=number))
        return made[-1]

    pool = HostPool(make, options.hosts, timeout_s=600)
    alone.block_size = spread.block_size = options.block_size
    spread.hosts = pool
    try:
        spread.hosts.play(
            spread.updater.actor_weights(), 0, spread.cut_jobs(joint_cases(run.config, 999)[:1], 999)
        )
        rows = [step_in_turn(alone, spread, run, made, step) for step in range(options.steps)]
    finally:
        pool.close()
    print("| step | one process, wall s | CPU s | hosts, wall s | CPU s | ratio of wall |")
    print("|---|---|---|---|---|---|")
    for step, row in enumerate(rows):
        print(f"| {step} | " + " | ".join(f"{value:.2f}" for value in (*row, row[2] / row[0])) + " |")
    print(f"median ratio {statistics.median(row[2] / row[0] for row in rows):.2f}")
    same = all(
        torch.equal(one, other)
        for role in alone.models
        for one, other in zip(alone.models[role].parameters(), spread.models[role].parameters(), strict=True)
    )
    print(f"weights {'are the same to the bit' if same else 'DIFFER'}")


def step_in_turn(
    alone: RLLearner, spread: RLLearner, run: Run, hosts: list[ProcessHost], step: int
) -> tuple[float, ...]:
    """Wall and CPU seconds of the step in this process, then on hosts."""
    cases = joint_cases(run.config, step)
    row: list[float] = []
    for learner in (alone, spread):
        pids = [os.getpid(), *(host.process.pid or 0 for host in hosts if host.process.is_alive())]
        wall, cpu = time.perf_counter(), sum(map(read_cpu_s, pids))
        learner.step(cases)
        row += [time.perf_counter() - wall, sum(map(read_cpu_s, pids)) - cpu]
    return tuple(row)


if __name__ == "__main__":
    main()
