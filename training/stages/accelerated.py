"""SFT of one role on several processes of `accelerate launch`: data parallel, or sharded by its FSDP2 config.

    accelerate launch --config_file configs/accelerate/fsdp2.yaml -m training.stages.accelerated RUN ROLE

Every process draws the same rows and trains its part of each batch; the first one logs and publishes.
accelerate shards on accelerators only, and starts several CPU processes by mpirun only: without a GPU
`torchrun --nproc_per_node 2 -m training.stages.accelerated RUN ROLE` is data parallel over gloo. A
data-parallel
stage that was killed goes on from its newest checkpoint, by as many processes as before; a sharded one starts
again.
`--fault KIND@PLACE:COUNT` breaks it on purpose.
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from accelerate import PartialState
from accelerate.utils import DistributedType, parse_flag_from_env
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

from roles.errors import UserError
from roles.registry import ROLES
from simulator.engines.adapter_names import SHARED
from training.data.demonstrations import supervised_rows, take_turns
from training.models.adapters import roles_of
from training.models.base_model import quiet_libraries
from training.models.weights import BASE, copy_weights, is_finished, load_trainable
from training.roles.sft import run_sft
from training.runs.faults import parse_faults, plan_faults
from training.runs.resume import StageCheckpoints
from training.runs.run_folder import Run
from training.stages import stages


def main(arguments: Sequence[str]) -> int:
    """RUN and ROLE; 2 after a user's mistake."""
    parser = argparse.ArgumentParser(prog="accelerate launch ... -m training.stages.accelerated")
    parser.add_argument("run", type=Path)
    parser.add_argument("role", choices=[*ROLES, SHARED])
    parser.add_argument("--fault", action="append", default=[], metavar="KIND@PLACE:COUNT")
    options = parser.parse_args(arguments)
    quiet_libraries()
    try:
        plan_faults(parse_faults(options.fault))
        train_sft(options.run, options.role)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    return 0


def train_sft(path: Path, role: str) -> None:
    """The SFT stage of one role, as `emads train sft` does it in one process.

    Raises:
        UserError: no base weights, or a batch that the processes cannot share evenly.
    """
    run = Run.open(path)
    config, place = run.config, PartialState(cpu=not torch.cuda.is_available())
    if is_finished(run, "sft", role):
        return
    if parse_flag_from_env("ACCELERATE_USE_FSDP") and place.distributed_type == DistributedType.MULTI_CPU:
        place.print("accelerate shards on accelerators only: here every process holds all weights")
    if config.sft.batch_size % place.num_processes:
        raise UserError(
            f"sft.batch_size {config.sft.batch_size} must be a multiple of {place.num_processes} processes"
        )
    model, tokenizer = load_trainable(run, BASE, role)
    before = copy_weights(model, role)
    chat = stages.make_chat(tokenizer, config)
    count = max(1, config.sft.max_steps) * config.sft.batch_size
    streams = [
        supervised_rows(
            one,
            chat,
            num_rows=count,
            first_row=0,
            seat_share=config.data.seat_share,
            seed=config.data.seed,
            difficulties=config.data.difficulties,
            conventions=config.data.conventions,
        )
        for one in roles_of(role)
    ]
    share = config.sft.batch_size // place.num_processes
    own = {"batch_size": share, "micro_batch_size": 0, "validate_every": 0, "patience": 0}
    checkpoints = StageCheckpoints(run, f"sft/{role}", every_steps=config.sft.checkpoint_every)

    def on_step(step: int, metrics: Mapping[str, float]) -> None:
        if place.is_main_process:
            run.log(f"sft/{role}", step, metrics)

    with tempfile.TemporaryDirectory(prefix="emads-") as scratch:
        step = run_sft(
            model,
            tokenizer,
            take_turns(streams, count),
            config.sft.model_copy(update=own),
            max_steps=config.sft.max_steps,
            output_dir=Path(scratch),
            seed=config.seed,
            on_step=on_step,
            checkpoints=checkpoints,
            gradient_checkpointing=config.model.gradient_checkpointing,
        )
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if place.is_main_process:
        fresh, _ = load_trainable(run, BASE, role)
        fresh.load_state_dict(whole)
        stages.finish_stage(
            run, "sft", role, fresh, tokenizer, before, step=step, train_s=checkpoints.train_s
        )
        checkpoints.clear()
    place.wait_for_everyone()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
