"""A rollout host: models, engine and player that turn cases into groups of episodes.

The same class plays in the learner's process, in a process of its own and in a Ray actor. What is sampled
depends on the weights, the cases, their place in the step and the stream's name, never on who plays it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import safetensors.torch
from torch import Tensor

from simulator.engines.adapter_names import adapter_of
from simulator.engines.base import Engine, PolicyEngine
from training.rl.role_weights import load_role_weights


class Player(Protocol):
    """Plays scenarios as groups of episodes that are compared with each other."""

    def play(self, engine: Engine, scenarios: Sequence[Any], stream: str, first_place: int = 0) -> list[Any]:
        """The groups of these scenarios, which begin at `first_place` of the step's."""
        ...

    def play_validation(
        self, engine: Engine, scenarios: Sequence[Any], stream: str, first_place: int = 0
    ) -> list[Any]:
        """One episode of every scenario, sampled as in a step; raises InfrastructureError if one is lost."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Cases that one host plays side by side: the unit that is played again when a host is lost.

    Example: Job(cases=(first, second), stream="marl/3", first_place=12)
    """

    cases: tuple[Any, ...]
    stream: str  # names what is sampled; jobs of one stream have different places
    first_place: int = 0  # of the cases in the whole list
    is_validation: bool = False  # one episode of every case


def cut_jobs(
    cases: Sequence[Any],
    stream: str,
    *,
    block_size: int,
    first_place: int = 0,
    is_validation: bool = False,
) -> list[Job]:
    """Jobs of `block_size` neighbouring cases each, the last of what is left; 0 makes one of all."""
    size = block_size or max(1, len(cases))
    return [
        Job(
            cases=tuple(cases[start : start + size]),
            stream=stream,
            first_place=first_place + start,
            is_validation=is_validation,
        )
        for start in range(0, len(cases), size)
    ]


class RolloutHost:
    """Plays jobs with the weights that it was given last."""

    def __init__(
        self, models: Mapping[str, Any], player: Player, make_engine: Callable[[], PolicyEngine]
    ) -> None:
        """`make_engine` gives a new engine for each job, or always the same one."""
        self.models, self._player, self._make_engine = models, player, make_engine
        self._versions: dict[str, int] = {}

    def load(self, role: str, version: int, weights: bytes) -> None:
        """Take a role's weights (safetensors, whole); one role may stand for all that share them.

        Raises:
            DamagedCheckpointError: other names or shapes than the host's own model has.
        """
        load_role_weights(self.models[role], role, safetensors.torch.load(weights))
        self._versions[role] = version

    def play(self, job: Job, version: int) -> list[Any]:
        """The complete groups of the job's cases, played with weights of this version.

        Raises:
            RuntimeError: the weights that were loaded are of another version.
            InfrastructureError: an episode of a validation was lost.
        """
        if not self._versions or set(self._versions.values()) != {version}:
            raise RuntimeError(f"version {version} is to be played, but loaded are {self._versions}")
        return self.play_with(self.models, job, version)

    def play_with(self, models: Mapping[str, Any], job: Job, version: int) -> list[Any]:
        """`play` with models of this process, which are of that version."""
        engine = serve_roles(self._make_engine(), models, version)
        if job.is_validation:
            return self._player.play_validation(engine, job.cases, job.stream, job.first_place)
        return self._player.play(engine, job.cases, job.stream, job.first_place)


def serve_roles(engine: PolicyEngine, models: Mapping[str, Any], version: int) -> PolicyEngine:
    """The engine, serving every role by its model as that version."""
    for role, model in models.items():
        options = {} if (adapter := adapter_of(model, role)) is None else {"adapter": adapter}
        engine.set_policy(role, model, version=f"{role}@{version}", **options)
    return engine


def encode_weights(weights: Mapping[str, Mapping[str, Tensor]]) -> dict[str, bytes]:
    """Each role's weights as safetensors, as `RolloutHost.load` takes them."""
    return {
        role: safetensors.torch.save({name: one.detach().cpu().contiguous() for name, one in named.items()})
        for role, named in weights.items()
    }
