"""The joint stage of a run with scripted words for the untrained team's: under torchrun, or alone."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from reliability.joint.scripted_models import ScriptedModelEngine, half_expert_team
from roles.registry import ROLES
from training.learner.ranks import end_process
from training.models.weights import load_weights
from training.rl import loop
from training.rl.hosts import RolloutHost
from training.runs.run_folder import Run
from training.stages import on_ranks, rl
from training.stages.from_config import first_joint_case, joint_cases, make_chat, validation_cases
from training.stages.table import train_stage

_open_host = rl.open_host  # tests put `open_scripted_host` in its place


def engine_maker(path: Path) -> Callable[..., ScriptedModelEngine]:
    """Make half experts on every case of the run's joint stage, in place of an engine."""
    run = Run.open(path)
    first, steps = first_joint_case(run), range(run.config.marl.max_steps)
    cases = [case for step in steps for case in joint_cases(run.config, step, first)]
    speakers = half_expert_team([*cases, *validation_cases(run.config)])
    _, tokenizer = load_weights(run, "grpo", next(iter(ROLES)))
    chat = make_chat(tokenizer, run.config)
    return lambda **given: ScriptedModelEngine(speakers, chat=chat, **given)


@contextmanager
def open_scripted_host(path: Path, start: rl.Start) -> Iterator[RolloutHost]:
    """A rollout host of the run that says scripted words, for its process."""
    setattr(rl, "TransformersEngine", engine_maker(path))  # noqa: B010
    with _open_host(path, start) as host:
        yield host


if __name__ == "__main__":
    from reliability.joint import rank_stage  # under the name by which host processes find it

    setattr(loop, "TransformersEngine", engine_maker(Path(sys.argv[1])))  # noqa: B010
    setattr(rl, "open_host", rank_stage.open_scripted_host)  # noqa: B010
    if sys.argv[2:] == ["--alone"]:  # in a process as fresh as a rank
        torch.set_num_threads(1)
        train_stage(Path(sys.argv[1]), "marl")
    else:
        end_process(on_ranks.main([sys.argv[1], "marl", *sys.argv[2:]]))
