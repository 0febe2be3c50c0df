"""A stage of a role by a process of torchrun, for tests: rewards are drawn by hash, `--fault F` breaks it."""

import sys

from planned_faults import parse_faults, plan_faults

from reliability.stages.tiny_runs import set_up
from training.stages.on_ranks import main

if __name__ == "__main__":
    set_up()
    words, faults = sys.argv[1:], []
    while "--fault" in words:
        place = words.index("--fault")
        faults.append(words[place + 1])
        del words[place : place + 2]
    plan_faults(parse_faults(faults))
    sys.exit(main(words))
