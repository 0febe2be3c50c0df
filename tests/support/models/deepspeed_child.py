"""SFT of a role with DeepSpeed on CPU processes, for tests: nothing is compiled, rewards by hash."""

import sys
from typing import Any

from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer

from reliability.stages.tiny_runs import set_up
from training.stages.on_ranks import main

_step = DeepSpeedZeroOptimizer.step


def _show_part(self: Any, *args: Any, **kwargs: Any) -> Any:
    own, all_weights = self.single_partition_of_fp32_groups[0].numel(), self.bit16_groups_flat[0].numel()
    print(f"steps on {own} of {all_weights} weights", file=sys.stderr)
    return _step(self, *args, **kwargs)


if __name__ == "__main__":
    DeepSpeedZeroOptimizer.step = _show_part
    # DeepSpeed's all-reduce through shared memory would take minutes of C++ compilation
    setattr(sys.modules["deepspeed.comm.torch"], "build_shm_op", lambda: None)  # noqa: B010
    set_up()
    sys.exit(main(sys.argv[1:]))
