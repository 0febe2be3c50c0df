"""A stage on several processes that share its batches: workers of this machine, or ranks of torchrun.

    torchrun --nproc-per-node 4 -m training.stages.on_ranks RUN marl [--max-steps N]
    torchrun --nproc-per-node 2 -m training.stages.on_ranks RUN grpo ROLE
    accelerate launch --num_processes 2 -m training.stages.on_ranks RUN sft ROLE

GRPO and joint training shard weights by their `memory.sharding`, and a killed stage goes on from its newest
checkpoint on any number of ranks. SFT runs on a trainer of TRL: accelerate launches it (data parallel, FSDP2
or ZeRO-2) or, without a GPU, torchrun; it goes on with as many processes as before, under ZeRO-2 from the
start.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from accelerate import PartialState
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import DeepSpeedPlugin, is_deepspeed_available, parse_flag_from_env

from roles.errors import UserError
from roles.registry import ROLES
from simulator.engines.adapter_names import SHARED
from training.config.run_config import RunConfig
from training.learner.fsdp import join_ranks, leave_ranks
from training.learner.ranks import Ranks, end_process
from training.models.adapters import list_owners
from training.models.base_model import quiet_libraries
from training.rl.hosts import longest_play_s
from training.roles.sft import uses_deepspeed
from training.runs.run_folder import Run
from training.runs.workers import keep_freed_memory, show_progress
from training.stages.table import STAGES, train_stage


def main(arguments: Sequence[str] | None = None) -> int:
    """Train; 2 after a user's mistake, and other numbers as `emads` has them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("stage", choices=[name for name, one in STAGES.items() if one.on_ranks])
    parser.add_argument("role", nargs="?", choices=[*ROLES, SHARED])
    parser.add_argument("--max-steps", type=int, help="of marl: stop there, to go on later")
    options = parser.parse_args(arguments)
    if (options.role is None) != (options.stage == "marl"):
        parser.error("sft and grpo train one ROLE, marl trains the team")
    if options.max_steps and options.stage != "marl":
        parser.error("--max-steps is of marl")
    quiet_libraries()
    try:
        keep_freed_memory()
        config = Run.open(options.run).config
        torch.set_num_threads(config.threads_per_worker)
        ranks = join_trainer_ranks(config) if options.stage == "sft" else join_learner_ranks(config)
        stage, more = STAGES[options.stage], {"max_steps": options.max_steps} if options.max_steps else {}
        units = stage.step_reports * stage.count_steps(config, options.role)
        title = "/".join(filter(None, (options.stage, options.role)))
        with show_progress(title, units, shown=ranks.rank == 0):
            train_stage(options.run, options.stage, options.role, ranks, **more)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status
    leave_ranks(ranks)  # not after an error: the others would have to come here too
    return 0


def join_learner_ranks(config: RunConfig) -> Ranks:
    """This process among the ranks of a stage of RL.

    Raises:
        UserError: accelerate was told to shard, which the config's memory.sharding does.
    """
    if uses_deepspeed() or parse_flag_from_env("ACCELERATE_USE_FSDP"):
        raise UserError(
            "GRPO and joint training shard by grpo.memory.sharding and marl.memory.sharding fsdp2: launch"
            " with torchrun, without a config of accelerate"
        )
    return join_ranks(timeout_s=longest_play_s(config.rollouts))


def join_trainer_ranks(config: RunConfig) -> Ranks:
    """This process among those of SFT."""
    shares_weights = check_launcher(config)
    if uses_deepspeed():
        place = PartialState() if torch.cuda.is_available() else PartialState(backend="gloo")
    else:
        join_ranks()
        place = PartialState(cpu=not torch.cuda.is_available())
    size = place.num_processes
    return Ranks(rank=place.process_index, size=size, shares_weights=shares_weights and size > 1)


def check_launcher(config: RunConfig) -> bool:
    """Return whether the processes of SFT share the weights (FSDP2): `shard_model` cuts them up.

    Raises:
        UserError: DeepSpeed that is not installed, shards weights or is given Muon; another FSDP than the
            second, or of a 4-bit base.
    """
    if uses_deepspeed():
        if not is_deepspeed_available():
            raise UserError("this launch needs DeepSpeed: pip install 'emads[deepspeed]'")
        if (zero_stage := DeepSpeedPlugin().zero_stage) == 3:
            raise UserError(
                "ZeRO stage 3 shards the weights, which are published whole: set stage 2"
                " (configs/accelerate/zero2.yaml), or launch with configs/accelerate/fsdp2.yaml"
            )
        if zero_stage and config.sft.optimizer == "muon":
            raise UserError("ZeRO cuts matrices up, and sft.optimizer muon needs whole ones: set it to adamw")
    if not parse_flag_from_env("ACCELERATE_USE_FSDP"):
        return False
    if os.environ.get("FSDP_VERSION") != "2" or parse_flag_from_env("FSDP_OFFLOAD_PARAMS"):
        raise UserError("FSDP is version 2 here, without offload: launch with configs/accelerate/fsdp2.yaml")
    if config.model.adapter == "qlora":
        raise UserError("FSDP2 does not shard the 4-bit base of model.adapter qlora: launch without a config")
    del os.environ["ACCELERATE_USE_FSDP"]
    return True


def train_on_ranks(path: Path, name: str, owner: str | None) -> None:
    """Call `train_stage` as the rank that this process's variables say, or alone.

    For worker processes, on a CPU alone: processes of several GPUs are started by torchrun. After an error
    the group stays open: the others wait in it until whoever started them ends them.
    """
    if "RANK" not in os.environ:
        return train_stage(path, name, owner)
    ranks = join_ranks(timeout_s=longest_play_s(Run.open(path).config.rollouts))
    PartialState(cpu=True)
    train_stage(path, name, owner, ranks)
    leave_ranks(ranks)
    GradientState._reset_state()
    AcceleratorState._reset_state(reset_partial_state=True)
    return None


def count_ranks(config: RunConfig, name: str) -> int:
    """Workers that share the batches of a stage: of joint training, or where one model plays all roles."""
    is_shared = STAGES[name].on_ranks and (name == "marl" or len(list_owners(config.model)) == 1)
    return config.num_ranks if is_shared and not torch.cuda.is_available() else 1


if __name__ == "__main__":
    end_process(main())
