"""GRPO of a role by a process of torchrun, for tests: an untrained model, whose rewards are drawn by hash."""

import sys

from reliability.stages.tiny_runs import set_up
from training.stages.on_ranks import main

if __name__ == "__main__":
    set_up()
    sys.exit(main(sys.argv[1:]))
