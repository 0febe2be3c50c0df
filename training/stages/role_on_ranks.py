"""SFT or GRPO of one role on several processes of `accelerate launch`: data parallel, FSDP2 or ZeRO-2.

    accelerate launch --num_processes 2 -m training.stages.role_on_ranks RUN grpo ROLE
    accelerate launch --config_file configs/accelerate/fsdp2.yaml \
        -m training.stages.role_on_ranks RUN sft ROLE

Weights are sharded as in joint training, not by accelerate, which does so on accelerators only. It starts
several CPU processes by mpirun only: without a GPU `torchrun --nproc_per_node 2 -m
training.stages.role_on_ranks RUN sft ROLE` is data parallel over gloo. A stage that was killed goes on from
its newest checkpoint, by as many processes as before; under ZeRO-2 it starts again. `--fault
KIND@PLACE:COUNT` breaks it on purpose.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from accelerate import PartialState
from accelerate.utils import (
    DeepSpeedPlugin,
    is_deepspeed_available,
    parse_flag_from_env,
)

from roles.errors import UserError
from roles.registry import ROLES
from simulator.engines.adapter_names import SHARED
from training.config.run_config import RunConfig
from training.learner.fsdp import join_ranks
from training.learner.ranks import Ranks, end_process
from training.models.base_model import quiet_libraries
from training.roles.trainer_ranks import uses_deepspeed
from training.runs.faults import parse_faults, plan_faults
from training.runs.memory import keep_freed_memory
from training.runs.run_folder import Run
from training.runs.workers import show_progress
from training.stages.grpo import train_grpo
from training.stages.sft import train_sft


def main(arguments: Sequence[str]) -> int:
    """Train ROLE in RUN; 2 after a user's mistake, and other numbers as `emads` has them."""
    parser = argparse.ArgumentParser(prog="accelerate launch ... -m training.stages.role_on_ranks")
    parser.add_argument("run", type=Path)
    parser.add_argument("stage", choices=["sft", "grpo"])
    parser.add_argument("role", choices=[*ROLES, SHARED])
    parser.add_argument("--fault", action="append", default=[], metavar="KIND@PLACE:COUNT")
    options = parser.parse_args(arguments)
    quiet_libraries()
    try:
        plan_faults(parse_faults(options.fault))
        keep_freed_memory()
        config = Run.open(options.run).config
        shares_weights = check_launcher(options.stage, config)
        place = _join_processes()
        size = place.num_processes
        ranks = Ranks(rank=place.process_index, size=size, shares_weights=shares_weights and size > 1)
        train = train_sft if options.stage == "sft" else train_grpo
        role = options.role
        units = config.sft.steps_of(role) if options.stage == "sft" else 5 * config.grpo.steps_of(role)
        with show_progress(f"{options.stage}/{role}", units, shown=place.is_main_process):
            train(options.run, role, ranks)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    return 0


def check_launcher(stage: str, config: RunConfig) -> bool:
    """Return whether the processes share the weights (FSDP2): `shard_model` cuts them up, not accelerate.

    Raises:
        UserError: DeepSpeed that is not installed, shards weights or is given Muon; another FSDP than the
            second, or of a 4-bit base.
    """
    if uses_deepspeed():
        if not is_deepspeed_available():
            raise UserError("this launch needs DeepSpeed: pip install 'emads[deepspeed]'")
        if (zero_stage := DeepSpeedPlugin().zero_stage) == 3:
            raise UserError(
                "ZeRO stage 3 shards the weights, which play and are published whole: set stage 2"
                " (configs/accelerate/zero2.yaml), or launch with configs/accelerate/fsdp2.yaml"
            )
        if zero_stage and stage == "sft" and config.sft.optimizer == "muon":
            raise UserError("ZeRO cuts matrices up, and sft.optimizer muon needs whole ones: set it to adamw")
    if not parse_flag_from_env("ACCELERATE_USE_FSDP"):
        return False
    if os.environ.get("FSDP_VERSION") != "2" or parse_flag_from_env("FSDP_OFFLOAD_PARAMS"):
        raise UserError("FSDP is version 2 here, without offload: launch with configs/accelerate/fsdp2.yaml")
    if config.model.adapter == "qlora":
        raise UserError("FSDP2 does not shard the 4-bit base of model.adapter qlora: launch without a config")
    del os.environ["ACCELERATE_USE_FSDP"]
    return True


def _join_processes() -> PartialState:
    if uses_deepspeed():
        return PartialState() if torch.cuda.is_available() else PartialState(backend="gloo")
    join_ranks()
    return PartialState(cpu=not torch.cuda.is_available())


if __name__ == "__main__":
    end_process(main(sys.argv[1:]))
