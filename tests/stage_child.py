"""The entry that torchrun starts, with scripted words in place of what an untrained team would say."""

import sys
from collections.abc import Callable
from pathlib import Path

from test_marl import FaultyEngine, half_expert

from training import distributed_stage, marl, stages
from training.runs import Run


def engine_maker(path: Path) -> Callable[..., FaultyEngine]:
    """What stands for the engine class: half experts on every case that the run's joint stage meets."""
    config = Run.open(path).config
    cases = [case for step in range(config.marl.max_steps) for case in stages.joint_cases(config, step)]
    speakers = half_expert([*cases, *stages.validation_cases(config)])
    return lambda **given: FaultyEngine(speakers, **given)


if __name__ == "__main__":
    setattr(marl, "TransformersEngine", engine_maker(Path(sys.argv[1])))  # noqa: B010
    sys.exit(distributed_stage.main())
