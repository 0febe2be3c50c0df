"""Which batteries there are, how many trials each tier has, and the bench that runs them one by one."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.reliability import (
    artefacts,
    artefacts_inputs,
    damage,
    disk,
    governed,
    kills,
    ranks,
    rollout_faults,
    victims,
)

ROOT = Path(__file__).parent.parent.parent
Result = dict[str, Any]  # id, group, ok, detail


@dataclass(frozen=True, slots=True, kw_only=True)
class Battery:
    """One row. `trials` yields what is to be done as (id, group, call); a call says what was wrong, or ""."""

    probe: str
    pr: int  # trials; 0: all that there are
    full: int
    trials: "Callable[[Bench, int], Iterator[tuple[str, str, Callable[[], str]]]]"


class Bench:
    """A folder with the prepared runs and the results so far."""

    def __init__(self, folder: Path, tier: str) -> None:
        self.folder, self.tier = folder, tier
        self.folder.mkdir(parents=True, exist_ok=True)
        self._plain: dict[str, kills.Undisturbed] = {}
        self._is_set_up = False

    def run(self, name: str, battery: Battery) -> list[Result]:
        """All results of a battery, those of earlier calls included."""
        file = self.folder / "results.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        done = {result["id"]: result for result in map(json.loads, lines)}
        results = []
        count = battery.pr if self.tier == "pr" else battery.full
        for identity, group, call in battery.trials(self, count):
            key = f"{name}/{identity}"
            if key not in done:
                problem = call()
                done[key] = {"id": key, "group": group, "ok": not problem, "detail": problem}
                with file.open("a") as out:
                    out.write(json.dumps(done[key]) + "\n")
                print(f"{key}: {problem or 'ok'}", file=sys.stderr, flush=True)
            results.append(done[key])
        return results

    def source(self, stage: str, *, foreign: bool = False) -> Path:
        """A run in which the stage can start; `foreign`: another one, of another seed."""
        self._set_up()
        folder = self.folder / f"source-{stage}{'-foreign' if foreign else ''}"
        if not folder.exists():
            shutil.rmtree(making := folder.with_suffix(".making"), ignore_errors=True)
            victims.prepare(making, ["seed=1"] if foreign else ())
            victims.lend_source(making, stage)
            making.rename(folder)
        return folder

    def undisturbed(self, stage: str) -> kills.Undisturbed:
        """The run without a fault, trained once per process."""
        if stage not in self._plain:
            folder = self.fresh(f"plain-{stage}")
            self._plain[stage] = kills.play_undisturbed(self.source(stage), folder, stage)
        return self._plain[stage]

    def fresh(self, name: str) -> Path:
        """A folder that is not there yet."""
        folder = self.folder / name
        for path in (folder, folder.with_suffix(".log"), folder.with_suffix(".counts")):
            if path.is_dir():
                shutil.rmtree(path)
            path.unlink(missing_ok=True)
        return folder

    def _set_up(self) -> None:
        if not self._is_set_up:
            victims.set_up()
            self._is_set_up = True


def _kills(stage: str) -> Callable[[Bench, int], Iterator[tuple[str, str, Callable[[], str]]]]:
    def trials(bench: Bench, count: int) -> Iterator[tuple[str, str, Callable[[], str]]]:
        for number in range(count):
            inside = number % 2 == 0

            def call(number: int = number, inside: bool = inside) -> str:
                plain = bench.undisturbed(stage)
                folder = bench.fresh(f"killed-{stage}")
                trial = kills.kill_and_resume(plain, folder, stage, f"{stage}/{number}", inside_save=inside)
                return f"{trial.kills}: {trial.differences}" if trial.differences else ""

            yield f"{stage}-{number}", "inside a save" if inside else "any time", call

    return trials


def _damage(bench: Bench, count: int) -> Iterator[tuple[str, str, Callable[[], str]]]:
    for stage in ("grpo",) if bench.tier == "pr" else tuple(victims.STAGES):
        ours, theirs = bench.fresh(f"ours-{stage}"), bench.fresh(f"theirs-{stage}")
        damage.interrupt(bench.source(stage), ours, stage)
        damage.interrupt(bench.source(stage, foreign=True), theirs, stage)
        for one in damage.damage_all(ours, theirs, bench.folder / "damaged", stage, f"damage/{stage}"):
            problem = "" if one.fell_back and one.reason else f"{one.name}: {one}"
            yield f"{stage}: {one.name}", stage, partial(str, problem)


def _disk(bench: Bench, count: int) -> Iterator[tuple[str, str, Callable[[], str]]]:
    for number in range(count):
        kind = disk.KINDS[number % len(disk.KINDS)]
        stage = ("grpo", "sft", "marl")[number // len(disk.KINDS) % 3]

        def call(number: int = number, kind: str = kind, stage: str = stage) -> str:
            plain = bench.undisturbed(stage)
            trial = disk.fail_a_save(plain, bench.fresh("disk"), stage, kind, f"disk/{number}")
            return f"{trial.what}: {'; '.join(trial.problems)}" if trial.problems else ""

        yield f"{number}", kind, call


def _determinism(bench: Bench, count: int) -> Iterator[tuple[str, str, Callable[[], str]]]:
    """All stages in a new process with another hash seed."""
    for number in range(count):

        def call(number: int = number) -> str:
            plain = {stage: bench.undisturbed(stage) for stage in victims.STAGES}
            command = [sys.executable, "-m", "benchmarks.reliability.digest"]
            for stage in victims.STAGES:
                command += [stage, str(bench.source(stage)), str(bench.fresh(f"again-{stage}"))]
            done = subprocess.run(
                command,
                cwd=ROOT,
                env=os.environ | {"PYTHONHASHSEED": str(1 + number)},
                capture_output=True,
                text=True,
            )
            if done.returncode:
                return done.stderr[-500:]
            again = json.loads(done.stdout.splitlines()[-1])
            found = {stage: victims.differences(plain[stage].digest, again[stage]) for stage in plain}
            return f"differs: {found}" if any(found.values()) else ""

        yield f"{number}", "all stages", call


def _artefacts(bench: Bench, count: int) -> Iterator[tuple[str, str, Callable[[], str]]]:
    for name, probe in (artefacts.PROBES | artefacts_inputs.INPUT_PROBES).items():

        def call(name: str = name, probe: artefacts.Probe = probe) -> str:
            return artefacts.try_artefact(bench.fresh(f"artefact-{name}"), probe)

        yield name, "refused", call


BATTERIES: dict[str, Battery] = {
    "R1": Battery(
        probe="kill -9 in SFT, then resume: equal in every bit", pr=4, full=50, trials=_kills("sft")
    ),
    "R2": Battery(
        probe="kill -9 in GRPO, mid-window too, then resume: equal in every bit",
        pr=4,
        full=60,
        trials=_kills("grpo"),
    ),
    "R3": Battery(
        probe="kill -9 in joint RL, then resume: equal in every bit", pr=4, full=60, trials=_kills("marl")
    ),
    "R4": Battery(
        probe="every file of a checkpoint damaged: set aside, older one taken", pr=0, full=0, trials=_damage
    ),
    "R5": Battery(
        probe="disk full, read-only, broken, file too large inside a save", pr=3, full=20, trials=_disk
    ),
    "R9": Battery(
        probe="rollout workers killed, hung, slowed: only whole groups are learnt, each once",
        pr=5,
        full=40,
        trials=rollout_faults.trials,
    ),
    "R10": Battery(
        probe="two sharded ranks under torchrun, one killed, then resume: equal in every bit",
        pr=1,
        full=10,
        trials=ranks.trials,
    ),
    "D3": Battery(
        probe="training in new processes, other hash seeds: equal in every bit",
        pr=1,
        full=5,
        trials=_determinism,
    ),
    "S1": Battery(
        probe="malicious artefacts: nothing executed, one clear line", pr=0, full=0, trials=_artefacts
    ),
    "R7": Battery(
        probe="kill -9 of governed episodes: 0 decisions lost, 0 effects twice",
        pr=20,
        full=300,
        trials=governed.kills,
    ),
    "V9": Battery(
        probe="team reward: order, duplicates, silence, agreeing on bad, free riders, random plays each",
        pr=100,
        full=5_000,
        trials=governed.axioms,
    ),
    "I1": Battery(
        probe="prompt injections, 12 families, obeyed by the model: 0 commits, 0 breaches",
        pr=120,
        full=1_500,
        trials=governed.injections,
    ),
    "G1": Battery(
        probe="ways past the human gate, in other cases and batched or not: 0 commits",
        pr=63,
        full=1_260,
        trials=governed.gate_probes,
    ),
    "D2": Battery(
        probe="shuffled arrival, 1 and 8 in flight: same traces", pr=2, full=20, trials=governed.shuffles
    ),
    "L1": Battery(
        probe="memory and descriptors flat over so many episodes",
        pr=500,
        full=10_000,
        trials=governed.soak,
    ),
}
