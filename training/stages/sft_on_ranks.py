"""SFT of one role on several processes of `accelerate launch`: data parallel, or sharded by its FSDP2 config.

    accelerate launch --config_file configs/accelerate/fsdp2.yaml -m training.stages.sft_on_ranks RUN ROLE

accelerate shards on accelerators only, and starts several CPU processes by mpirun only: without a GPU
`torchrun --nproc_per_node 2 -m training.stages.sft_on_ranks RUN ROLE` is data parallel over gloo. A
data-parallel stage that was killed goes on from its newest checkpoint, by as many processes as before; a
sharded one starts again. `--fault KIND@PLACE:COUNT` breaks it on purpose.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from accelerate import PartialState
from accelerate.utils import DistributedType, parse_flag_from_env

from roles.errors import UserError
from roles.registry import ROLES
from simulator.engines.adapter_names import SHARED
from training.learner.ranks import Ranks
from training.models.base_model import quiet_libraries
from training.runs.faults import parse_faults, plan_faults
from training.runs.run_folder import Run
from training.runs.workers import show_progress
from training.stages.sft import train_sft


def main(arguments: Sequence[str]) -> int:
    """Train ROLE in RUN; 2 after a user's mistake, and other numbers as `emads` has them."""
    parser = argparse.ArgumentParser(prog="accelerate launch ... -m training.stages.sft_on_ranks")
    parser.add_argument("run", type=Path)
    parser.add_argument("role", choices=[*ROLES, SHARED])
    parser.add_argument("--fault", action="append", default=[], metavar="KIND@PLACE:COUNT")
    options = parser.parse_args(arguments)
    quiet_libraries()
    try:
        plan_faults(parse_faults(options.fault))
        max_steps = Run.open(options.run).config.sft.max_steps
        place = PartialState(cpu=not torch.cuda.is_available())
        if parse_flag_from_env("ACCELERATE_USE_FSDP") and place.distributed_type == DistributedType.MULTI_CPU:
            place.print("accelerate shards on accelerators only: here every process holds all weights")
        ranks = Ranks(rank=place.process_index, size=place.num_processes)
        with show_progress(f"sft/{options.role}", max_steps, shown=place.is_main_process):
            train_sft(options.run, options.role, ranks)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
