"""Joint training of a run under torchrun: the stage `marl` of `emads train marl` on several ranks.

    torchrun --nproc-per-node 4 -m training.stages.marl_on_ranks RUN [--max-steps N]

A killed stage goes on from its newest checkpoint, on any number of ranks.
`--fault KIND@PLACE:COUNT` breaks it on purpose.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from roles.errors import UserError
from training.learner.fsdp import join_ranks, leave_ranks
from training.learner.ranks import end_process
from training.models.base_model import quiet_libraries
from training.runs.faults import parse_faults, plan_faults
from training.runs.memory import keep_freed_memory
from training.runs.run_folder import Run
from training.runs.workers import show_progress
from training.stages.marl import train_marl


def main(arguments: Sequence[str] | None = None) -> int:
    """Train; 2 after a user's mistake, and other numbers as `emads` has them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--max-steps", type=int)
    parser.add_argument("--fault", action="append", default=[], metavar="KIND@PLACE:COUNT")
    options = parser.parse_args(arguments)
    try:
        plan_faults(parse_faults(options.fault))
        keep_freed_memory()
        ranks = join_ranks()
        quiet_libraries()
        config = Run.open(options.run).config
        torch.set_num_threads(config.threads_per_worker)
        with show_progress("marl", 10 * config.marl.max_steps, shown=ranks.rank == 0):
            train_marl(options.run, ranks, max_steps=options.max_steps)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status
    leave_ranks(ranks)  # not after an error: the others would have to come here too
    return 0


if __name__ == "__main__":
    end_process(main())
