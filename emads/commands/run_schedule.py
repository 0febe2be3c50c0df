"""The whole schedule of a team as one resumable command: SFT, GRPO per role, joint RL, cases for people.

    base, sft/ROLE  ->  grpo/ROLE  ->  marl  ->  review/queue.jsonl

What is done is skipped, a stage that was killed goes on from its newest checkpoint, and the time that all
attempts took together is shown after each phase, with what it cost at the configured price.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Event, Thread

from emads.commands.review_queue import STAGE, train_review
from emads.commands.stage_tasks import perform, role_tasks
from roles.errors import UserError
from training.models.adapters import list_owners
from training.planning.workload import JOINT
from training.runs.run_folder import Run
from training.runs.workers import Task

CLOCK = "schedule_time.json"
TICK_S = 10.0  # how much of the shown time a kill can lose


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One phase. Example: Phase(name=JOINT, tasks=(...,), markers=("marl",))"""

    name: str
    tasks: tuple[Task, ...]
    markers: tuple[str, ...]  # stages that are done when it is


def list_phases(run: Run) -> list[Phase]:
    """The phases of a run's config, in order."""
    owners = list_owners(run.config.model)
    sft, grpo = (tuple(f"{stage}/{owner}" for owner in owners) for stage in ("sft", "grpo"))
    roles = role_tasks(run)
    phases = [
        Phase(name="SFT", tasks=(roles["base"], *(roles[name] for name in sft)), markers=("base", *sft)),
        Phase(name="GRPO per role", tasks=tuple(roles[name] for name in grpo), markers=grpo),
        Phase(name=JOINT, tasks=(roles["marl"],), markers=("marl",)),
    ]
    if run.config.review.num_scenarios:
        task = Task(name=STAGE, call=train_review, args=(run.path,), units=20)
        phases.append(Phase(name="review queue", tasks=(task,), markers=(STAGE,)))
    return phases


def run_schedule(run: Run, show: Callable[[str], None]) -> None:
    """Do all phases that are not done yet.

    Raises:
        UserError: a phase failed; the run can be resumed.
    """
    phases = list_phases(run)
    for number, phase in enumerate(phases, start=1):
        title = f"phase {number}/{len(phases)}, {phase.name}"
        open_markers = [marker for marker in phase.markers if not run.is_done(marker)]
        if not open_markers:
            show(f"{title}: done before")
            continue
        start_s = time.monotonic()
        with _stopwatch(run):
            _perform(run, phase.tasks, title)
        skipped = len(phase.markers) - len(open_markers)
        note = f", {skipped} of {len(phase.markers)} stages done before" if skipped else ""
        show(f"{title}: {time.monotonic() - start_s:.0f} s{note}; {describe_spent(run)}")
    if run.config.review.num_scenarios:
        count = run.read_payload(STAGE)["num_cases"]
        show(f"{count} uncertain cases wait for people: emads review {run.path}")


def describe_spent(run: Run) -> str:
    """Time of all attempts so far, and its price where one is configured."""
    seconds = _read_clock(run)
    text = f"so far {_format_time(seconds)}"
    price = run.config.price_per_hour
    return f"{text}, {price * seconds / 3600:.2f} at {price:g} per hour" if price else text


def _perform(run: Run, tasks: Sequence[Task], title: str) -> None:
    names = {task.name for task in tasks}
    ready = [replace(task, after=tuple(name for name in task.after if name in names)) for task in tasks]
    perform(run, ready, title)


def _read_clock(run: Run) -> float:
    if not (run.path / CLOCK).exists():
        return 0.0
    try:
        return float(run.read_json(CLOCK)["wall_s"])
    except (UserError, KeyError, TypeError, ValueError):
        return 0.0  # the clock decides nothing: a damaged one starts again


@contextmanager
def _stopwatch(run: Run) -> Iterator[None]:
    """Add the block's time to the run's clock, every TICK_S, so that a kill loses little of it."""
    before, start = _read_clock(run), time.monotonic()
    over = Event()

    def tick() -> None:
        while not over.wait(TICK_S):
            save()

    def save() -> None:
        run.write_json(CLOCK, {"wall_s": before + time.monotonic() - start})

    thread = Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        save()


def _format_time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
