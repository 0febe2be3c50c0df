"""`rollouts`: where the episodes of GRPO and joint training are played."""

from typing import Annotated, Literal

from pydantic import Field

from training.config.section import Count, Section, Weight


class RolloutsConfig(Section):
    """Where the episodes of GRPO and joint training are played; `block_size` alone changes the weights."""

    hosts: Count = 0
    """Processes that play, each with all policies; 0 plays in the learner's process."""
    block_size: Count = 0
    """Cases that are played side by side, what a host takes at a time; 0: all of a step, for one host."""
    backend: Literal["process", "ray"] = "process"
    """Hosts are processes on this machine, or actors of a Ray cluster."""
    timeout_s: Annotated[float, Field(gt=0)] = 1800.0
    """Seconds after which a silent host is replaced; ranks without hosts wait as long for each other."""
    address: str = ""
    """Ray cluster for backend `ray` (`auto` finds one on this machine); empty starts one here."""
    gpus_per_host: Weight = 0.0
    """GPUs of each Ray host, also parts of one; processes take turns in the visible GPUs."""
