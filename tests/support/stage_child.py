"""The entry that torchrun starts, and the stage alone, with scripted words for an untrained team's."""

import sys
from collections.abc import Callable
from pathlib import Path

import torch
from test_marl import FaultyEngine, half_expert

from training.joint import marl
from training.runs.run_folder import Run
from training.stages import distributed_stage, stages


def engine_maker(path: Path) -> Callable[..., FaultyEngine]:
    """What stands for the engine class: half experts on every case that the run's joint stage meets."""
    config = Run.open(path).config
    cases = [case for step in range(config.marl.max_steps) for case in stages.joint_cases(config, step)]
    speakers = half_expert([*cases, *stages.validation_cases(config)])
    return lambda **given: FaultyEngine(speakers, **given)


if __name__ == "__main__":
    setattr(marl, "TransformersEngine", engine_maker(Path(sys.argv[1])))  # noqa: B010
    if sys.argv[2:] == ["--alone"]:  # in a process as fresh as a rank
        torch.set_num_threads(1)
        stages.train_marl(Path(sys.argv[1]))
    else:
        sys.exit(distributed_stage.main())
