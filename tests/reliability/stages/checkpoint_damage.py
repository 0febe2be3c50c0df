"""R4: every file of a checkpoint damaged in every way: it must be set aside and the older one taken."""

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from planned_faults import Fault

from reliability.stages import tiny_runs
from reliability.stages.prepared_runs import PreparedRuns
from reliability.trials import Trial, Trials
from training.runs.checkpoints import MANIFEST, QUARANTINE_SUFFIX, DamagedCheckpointError
from training.runs.resume import StageCheckpoints
from training.runs.run_folder import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """One damaged checkpoint and what became of it.

    Example: Damage(name="optimizer.json: half", fell_back=True, reason="... has 80 bytes, not 160; ...")
    """

    name: str
    fell_back: bool  # the older checkpoint was chosen, the damaged one renamed
    reason: str  # what was printed


def interrupt(source: Path, folder: Path, stage: str) -> tuple[Path, Path]:
    """Train until two checkpoints stand, kill; the older and the newer one."""
    shutil.copytree(source, folder)
    fault = Fault(kind="kill", place="save", count=4, stage=None)
    tiny_runs.train_in_fork(folder, stage, [fault])
    place = folder / "checkpoints" / "unfinished" / tiny_runs.STAGES[stage]
    steps = sorted(int(path.name.removeprefix("step_")) for path in place.glob("step_*"))
    if len(steps) != 2:
        raise RuntimeError(f"{place} has the steps {steps}, not two:\n{tiny_runs.read_log(folder)[-2000:]}")
    return place / f"step_{steps[0]}", place / f"step_{steps[1]}"


def damage_all(ours: Path, theirs: Path, scratch: Path, stage: str, seed: str) -> Iterator[Damage]:
    """Every damage to the newer checkpoint of `ours`; `theirs` is the folder of another interrupted run."""
    place = Path("checkpoints") / "unfinished" / tiny_runs.STAGES[stage]
    steps = sorted((ours / place).glob("step_*"), key=lambda path: int(path.name.removeprefix("step_")))
    older, newer = steps[0].name, steps[1].name
    for name, spoil in _list_damage(ours / place / newer, ours / place / older, theirs / place / newer, seed):
        if scratch.exists():
            shutil.rmtree(scratch)
        shutil.copytree(ours / place, scratch / place)
        shutil.copy(ours / "config.yaml", scratch)
        spoil(scratch / place / newer)
        printed: list[str] = []
        run = Run.open(scratch)
        checkpoints = StageCheckpoints(run, tiny_runs.STAGES[stage], every_steps=1, report=printed.append)
        found: Path | None = None
        try:
            found = checkpoints.find()
        except DamagedCheckpointError as error:  # loaded after all, and found out too late
            printed.append(str(error))
        set_aside = (scratch / place / f"{newer}{QUARANTINE_SUFFIX}").is_dir()
        yield Damage(
            name=name,
            fell_back=found == scratch / place / older and set_aside,
            reason=next((line for line in printed if newer in line and "set aside" in line), ""),
        )


def _list_damage(
    sound: Path, older: Path, foreign: Path, seed: str
) -> Iterator[tuple[str, Callable[[Path], object]]]:
    rng = random.Random(seed)
    for file in sorted(path.name for path in sound.iterdir()):
        content = (sound / file).read_bytes()
        bit = rng.randrange(8 * len(content))
        yield f"{file}: missing", partial(_put, file, None)
        yield f"{file}: empty", partial(_put, file, b"")
        yield f"{file}: half", partial(_put, file, content[: len(content) // 2])
        yield f"{file}: bit {bit}", partial(_put, file, _flip(content, bit))
        for what, other in (("other run's", foreign), ("older step's", older)):
            strange = (other / file).read_bytes() if (other / file).is_file() else content
            if strange != content:  # the same bytes are no damage
                yield f"{file}: {what}", partial(_put, file, strange)
    yield "folder: other run's", partial(_replace, foreign)
    yield "folder: wrong step", partial(_replace, older)
    yield "folder: no manifest and emptied", _empty
    yield "folder: extra file", partial(_put, "extra.bin", b"x")
    yield "folder: file as link", _link
    yield "manifest: of the older step", partial(_put, MANIFEST, (older / MANIFEST).read_bytes())


def _flip(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def _put(file: str, content: bytes | None, path: Path) -> None:
    """Write the file of a checkpoint, or remove it."""
    if content is None:
        (path / file).unlink()
    else:
        (path / file).write_bytes(content)


def _replace(other: Path, path: Path) -> None:
    shutil.rmtree(path)
    shutil.copytree(other, path)


def _empty(path: Path) -> None:
    for file in path.iterdir():
        file.unlink()


def _link(path: Path) -> None:
    """The same bytes, but behind a link that leads out of the checkpoint."""
    elsewhere = path.parent / "elsewhere"
    (path / "random.json").rename(elsewhere)
    (path / "random.json").symlink_to(elsewhere)


def checkpoint_damage(runs: PreparedRuns, count: int) -> Trials:
    """Yield every damage; in the pr tier to GRPO's checkpoint alone."""
    for stage in ("grpo",) if runs.tier == "pr" else tuple(tiny_runs.STAGES):
        ours, theirs = runs.fresh(f"ours-{stage}"), runs.fresh(f"theirs-{stage}")
        interrupt(runs.source(stage), ours, stage)
        interrupt(runs.source(stage, foreign=True), theirs, stage)
        for one in damage_all(ours, theirs, runs.folder / "damaged", stage, f"damage/{stage}"):
            problem = "" if one.fell_back and one.reason else f"{one.name}: {one}"
            yield Trial(f"{stage}: {one.name}", stage, partial(str, problem))
