"""Plays later steps in a background thread while the learner updates on an earlier one.

With `max_staleness` s, the thread receives step n + s before the update of step n, with a copy of the weights
of that moment; so rollouts are exactly s updates old, from step s on. Results depend on seed and config
alone: a play is a function of its weights, its cases and its step. The learner's importance weights correct
for the age. s = 0 plays and learns in turn, without thread or copy. On rollout hosts all of these steps are
played at once: at most (s + 1) steps' cases are under way, played or being learnt.
"""

import copy
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import torch

from training.models.adapters import role_weights
from training.rl.loop import RLLearner
from training.runs.resume import load_tensors

Weights = dict[str, dict[str, torch.Tensor]]
Base = Literal["copied", "shared", "left_out"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pending:
    """One play under way."""

    step: int
    version: int  # updates that its weights have seen
    weights: Weights
    result: Future[Sequence[Any]]


class OverlappedLearner:
    """A learner whose rollouts run `max_staleness` steps ahead."""

    def __init__(self, learner: RLLearner, cases_of: Callable[[int], Sequence[Any]], max_steps: int) -> None:
        self.learner, self.cases_of, self.max_steps = learner, cases_of, max_steps
        staleness, on_hosts = learner.config.max_staleness, learner.hosts is not None
        self._actors = (
            copy_models(learner.updater.actors, base="shared") if staleness and not on_hosts else {}
        )
        self._queue: deque[_Pending] = deque()
        self._player = ThreadPoolExecutor(staleness + 1 if on_hosts else 1, thread_name_prefix="rollouts")

    def step(self) -> dict[str, float]:
        """Learn from the oldest rollouts while later ones are played; returns the step's metrics."""
        if not self.learner.config.max_staleness:
            return self.learner.step(self.cases_of(self.learner.num_steps))
        while len(self._queue) <= self.learner.config.max_staleness:
            following = self._queue[-1].step + 1 if self._queue else self.learner.num_steps
            if following >= self.max_steps:
                break
            self._submit(following, self.learner.num_steps, _copy_weights(self.learner))
        pending = self._queue.popleft()
        groups = pending.result.result()
        groups = self.learner.select_rank_groups(groups, self.cases_of(pending.step))
        staleness = self.learner.num_steps - pending.version
        return self.learner.learn(groups) | {"staleness": float(staleness)}

    def close(self) -> None:
        """Wait for the play under way and stop."""
        self._player.shutdown(wait=True, cancel_futures=True)

    def _submit(self, step: int, version: int, weights: Weights) -> None:
        future = self._player.submit(self._play, step, version, weights)
        self._queue.append(_Pending(step=step, version=version, weights=weights, result=future))

    def _play(self, step: int, version: int, weights: Weights) -> Sequence[Any]:
        learner, cases = self.learner, self.cases_of(step)
        if learner.hosts is not None:
            return learner.hosts.play(weights, version, learner.cut_jobs(cases, step))
        for role, of_role in weights.items():
            load_tensors(of_role, role_weights(self._actors[role], role))
        cases, first_place = learner.ranks.shard(cases)
        return learner.play_here(self._actors, version, learner.cut_jobs(cases, step, first_place))

    def state(self) -> dict[str, Any]:
        """The learner's state, and for every waiting play the weights to play it again."""
        waiting = [{"step": one.step, "version": one.version, "weights": one.weights} for one in self._queue]
        return {"learner": self.learner.state(), "waiting": waiting}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`: waiting plays are played again, to the same rollouts, up to `max_steps`."""
        self.learner.load_state(state["learner"])
        for one in [play for play in state["waiting"] if play["step"] < self.max_steps]:
            self._submit(one["step"], one["version"], one["weights"])


def copy_models(models: Mapping[str, Any], *, base: Base = "copied") -> dict[str, Any]:
    """Models of the same weights to play with; roles on one base keep sharing one.

    `base`: of adapters. `shared`: the tensors of the learner's own, which nobody changes. `left_out`: without
    values, for an engine that has a base and takes adapters alone.
    """
    copies = {id(model): copy.deepcopy(model, _place_base(model, base)) for model in models.values()}
    return {role: copies[id(model)] for role, model in models.items()}


def _place_base(model: Any, base: Base) -> dict[int, Any]:
    """Map the base's tensors, by identity, to what a copy has in their place; {} without adapters."""
    if base == "copied" or not hasattr(model, "peft_config"):
        return {}
    own = [one for name, one in model.named_parameters() if "lora_" not in name]
    if base == "shared":
        return {id(one): one for one in own}
    return {id(one): torch.nn.Parameter(one.detach().to("meta"), requires_grad=False) for one in own}


def _copy_weights(learner: RLLearner) -> Weights:
    """Of the models that play: whole ones, also where the learner's weights are sharded."""
    return {
        role: {name: weight.clone() for name, weight in weights.items()}
        for role, weights in learner.updater.actor_weights().items()
    }
