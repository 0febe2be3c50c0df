"""`emads plan`: what a config will take, as text."""

import re
from dataclasses import fields

from roles.errors import UserError, unknown
from training.config.run_config import RunConfig
from training.planning.memory import Memory, estimate_memory, host_memory
from training.planning.plan import DEVICES, PhaseTime, estimate_time, host_gpus
from training.planning.shapes import find_shape
from training.planning.workload import JOINT, Phase, list_phases

GIB = 2**30
# Tokens of one turn of a stated workload: what is new to read before it, and what is said.
TURN_READ, TURN_SAMPLED = 256, 128
USABLE_SHARE = 0.9  # of a device's memory; the rest is fragmentation and the runtime
_WORKLOAD = re.compile(r"([1-9][0-9]{0,6})x([1-9][0-9]{0,4})x([1-9][0-9]{0,3})")


def show_plan(config: RunConfig, device: str, ranks: int, price: float | None, workload: str | None) -> str:
    """Sizes, memory per rank, and each phase's floors and expected time.

    Raises:
        UserError: unknown device, unknown model sizes, a malformed workload.
    """
    if device != "cpu" and device not in DEVICES:
        raise unknown("device", device, ["cpu", *DEVICES])
    shape = find_shape(config.model)
    phases = list_phases(config) if workload is None else [stated_workload(workload)]
    if device == "cpu":
        from training.planning.measure import measure_times

        times, title = measure_times(config, phases), "this CPU, measured"
    else:
        times = [estimate_time(shape, config, phase, DEVICES[device], ranks) for phase in phases]
        title = f"{ranks} x {DEVICES[device].name}"
    hosts = config.num_hosts if any(phase.name == JOINT for phase in phases) else 0
    gpus = host_gpus(config) if hosts and device != "cpu" else 0.0
    lines = [f"{config.name}: {config.model.preset}, {shape.num_parameters / 1e6:,.1f} M parameters, {title}"]
    limit = None if device == "cpu" else DEVICES[device].memory
    memory = estimate_memory(shape, config, phases, ranks, device_bytes=limit or 0.0)
    lines.append(f"memory per rank: {_memory_text(memory)}")
    most = memory.total
    if hosts:
        (joint,) = (phase for phase in phases if phase.name == JOINT)
        host = host_memory(shape, config, joint, device_bytes=limit or 0.0)
        most = max(most, host.total)
        where = "" if limit is None else f" on {gpus:g} GPUs beside the ranks'"
        lines.append(f"memory of each of {hosts} rollout hosts{where}: {_memory_text(host)}")
    if limit is not None and most > USABLE_SHARE * limit:
        lines.append(
            f"does not fit into {limit / GIB:.0f} GiB, so it has no time and no price: more ranks (--ranks),"
            " an adapter (model.adapter=lora), model.gradient_checkpointing=true or smaller micro batches"
        )
        return "\n".join(lines)
    lines += _time_lines(phases, times, ranks + gpus, price)
    return "\n".join(lines)


def stated_workload(text: str) -> Phase:
    """One epoch of TASKSxROLLOUTSxTURNS, every rollout trained on once.

    Example: stated_workload("500x8x5").sampled == 500 * 8 * 5 * TURN_SAMPLED

    Raises:
        UserError: another form.
    """
    match = _WORKLOAD.fullmatch(text)
    if match is None:
        raise UserError(f"--workload {text!r} is not of the form TASKSxROLLOUTSxTURNS, e.g. 500x8x5")
    tasks, rollouts, turns = (int(part) for part in match.groups())
    played = tasks * rollouts
    row = turns * (TURN_READ + TURN_SAMPLED)
    return Phase(
        name=f"epoch of {played * turns:,} turns",
        trained=float(played * row),
        read=float(played * turns * TURN_READ),
        sampled=float(played * turns * TURN_SAMPLED),
        batch=256.0,
        row=float(row),
        step_rows=8.0,
    )


def _memory_text(memory: Memory) -> str:
    sizes = {field.name: getattr(memory, field.name) for field in fields(memory)}
    shown = ", ".join(f"{name} {size / GIB:.2f}" for name, size in sizes.items() if size)
    return f"{memory.total / GIB:.2f} GiB ({shown})"


def _time_lines(
    phases: list[Phase], times: list[PhaseTime], devices: float, price: float | None
) -> list[str]:
    heading = f"{'phase':<28}{'trained':>12}{'read':>12}{'sampled':>12}"
    heading += f"{'compute':>10}{'memory':>10}{'expected':>10}{'price':>10}"
    lines = [heading]
    total = 0.0
    for phase, time in zip(phases, times, strict=True):
        total += time.expected_s
        line = f"{phase.name:<28}{phase.trained:>12,.0f}{phase.read:>12,.0f}{phase.sampled:>12,.0f}"
        line += f"{_clock(time.compute_floor_s):>10}{_clock(time.bandwidth_floor_s):>10}"
        lines.append(f"{line}{_clock(time.expected_s):>10}{_cost(time.expected_s, devices, price):>10}")
    lines.append(f"{'all':<84}{_clock(total):>10}{_cost(total, devices, price):>10}")
    lines.append("tokens of each kind; floors of arithmetic and of memory traffic; evaluation is not counted")
    return lines


def _clock(seconds: float) -> str:
    if seconds >= 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.1f} s"


def _cost(seconds: float, devices: float, price: float | None) -> str:
    return "-" if price is None else f"{seconds / 3600 * devices * price:.2f}"
