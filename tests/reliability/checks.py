"""The checks, the number of trials of each tier, and how the trials of a check are run and kept."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from reliability.data.corrupt_rows import corrupt_rows
from reliability.data.generation_kills import generation_kills
from reliability.governed.kills import governed_kills
from reliability.governed.memory_trials import memory_growth
from reliability.governed.schedules import store_schedules
from reliability.honesty.cheat_trials import cheating
from reliability.joint.rank_kills import rank_kills
from reliability.joint.rollout_faults import rollout_faults
from reliability.malicious.input_files import malicious_files
from reliability.stages.checkpoint_damage import checkpoint_damage
from reliability.stages.disk_faults import disk_faults
from reliability.stages.kills import grpo_kills, marl_kills, sft_kills
from reliability.stages.prepared_runs import PreparedRuns, other_processes
from reliability.trials import Trials

Result = dict[str, Any]  # id, group, ok, detail


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliabilityCheck:
    """One row of the table."""

    probe: str  # what is broken and what must hold
    pr: int  # trials in tests; 0: all that there are
    full: int  # trials of the full run
    trials: Callable[[PreparedRuns, int], Trials]


def run_check(name: str, check: ReliabilityCheck, runs: PreparedRuns) -> list[Result]:
    """All results of a check; those that an earlier call has written down are not run again."""
    file = runs.folder / "results.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    done = {result["id"]: result for result in map(json.loads, lines)}
    results = []
    for trial in check.trials(runs, check.pr if runs.tier == "pr" else check.full):
        key = f"{name}/{trial.name}"
        if key not in done:
            problem = trial.call()
            done[key] = {"id": key, "group": trial.group, "ok": not problem, "detail": problem}
            with file.open("a") as out:
                out.write(json.dumps(done[key]) + "\n")
            print(f"{key}: {problem or 'ok'}", file=sys.stderr, flush=True)
        results.append(done[key])
    return results


CHECKS: dict[str, ReliabilityCheck] = {
    "R1": ReliabilityCheck(
        probe="kill -9 in SFT, then resume: equal in every bit", pr=4, full=50, trials=sft_kills
    ),
    "R2": ReliabilityCheck(
        probe="kill -9 in GRPO, mid-window too, then resume: equal in every bit",
        pr=4,
        full=60,
        trials=grpo_kills,
    ),
    "R3": ReliabilityCheck(
        probe="kill -9 in joint RL, then resume: equal in every bit", pr=4, full=60, trials=marl_kills
    ),
    "R4": ReliabilityCheck(
        probe="every file of a checkpoint damaged: set aside, older one taken",
        pr=0,
        full=0,
        trials=checkpoint_damage,
    ),
    "R5": ReliabilityCheck(
        probe="disk full, read-only, broken, file too large inside a save", pr=3, full=20, trials=disk_faults
    ),
    "R9": ReliabilityCheck(
        probe="rollout hosts killed, hung, slowed: a step learns to the bit what it learns without hosts",
        pr=5,
        full=40,
        trials=rollout_faults,
    ),
    "R10": ReliabilityCheck(
        probe="two sharded ranks under torchrun, one killed, then resume: equal in every bit",
        pr=1,
        full=10,
        trials=rank_kills,
    ),
    "D3": ReliabilityCheck(
        probe="training in new processes, other hash seeds: equal in every bit",
        pr=1,
        full=5,
        trials=other_processes,
    ),
    "S1": ReliabilityCheck(
        probe="malicious artefacts: nothing executed, one clear line", pr=0, full=0, trials=malicious_files
    ),
    "R7": ReliabilityCheck(
        probe="kill -9 of governed episodes: 0 decisions lost, 0 effects twice",
        pr=20,
        full=300,
        trials=governed_kills,
    ),
    "R15": ReliabilityCheck(
        probe="live processes on a store that is rolled back, cut, hidden, replayed: 0 double effects",
        pr=6,
        full=200,
        trials=store_schedules,
    ),
    "V10": ReliabilityCheck(
        probe="43 cheats at the table: no gain of the team, no advantage of the cheater under any credit",
        pr=50,
        full=5_000,
        trials=cheating,
    ),
    "L1": ReliabilityCheck(
        probe="memory and descriptors flat over so many episodes",
        pr=500,
        full=10_000,
        trials=memory_growth,
    ),
    "R8": ReliabilityCheck(
        probe="kill -9 while data is made, then resume: equal bytes", pr=5, full=50, trials=generation_kills
    ),
    "R14": ReliabilityCheck(
        probe="corrupt rows of 20 kinds: named, sound rows kept", pr=120, full=5_000, trials=corrupt_rows
    ),
}
