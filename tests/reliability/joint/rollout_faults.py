"""R9: rollout hosts killed, hung and slowed in the middle of a joint step.

The hosts are real processes; one of them fails at a planned call of its engine. The step must learn what it
learns without hosts, to the bit: no group is lost, none is learnt twice.
"""

import os
import random
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import torch

from reliability.joint.scripted_models import (
    ScriptedModelEngine,
    half_expert_team,
    make_models,
    make_tokenizer,
)
from reliability.stages.prepared_runs import PreparedRuns
from reliability.trials import Trial, Trials
from roles.registry import ROLES
from scenarios.team import TeamScenario, generate
from simulator.engines.base import Completion, CompletionRequest
from simulator.engines.embedded.hf_chat import HFChat
from simulator.reward import TeamRewardWeights
from training.config.rl_config import MarlConfig
from training.rl import loop
from training.rl.hosts import Host, HostPool, RolloutHost
from training.rl.loop import RLLearner
from training.rl.remote_hosts import ProcessHost, RayHost
from training.rl.team.algorithm import SHORT_GAME, choose_player, make_team_learner

KINDS = ("kill", "hang", "slow")
MOST_CALLS = 30  # of one case: 3 report sets of 9 calls, and a second decision on each
NUM_HOSTS = 2
TIMEOUT_S = 60.0  # a healthy host has a case played in a second or so
PLAN = "plan"  # file that the first host takes which plays a case
PR_FAULTS = (("kill", 3), ("kill", 30), ("hang", 20), ("slow", 25))
LEARNING = MarlConfig(
    scenarios_per_step=3,
    report_sets=3,
    decisions_per_set=2,
    learning_rate=1e-3,
    max_completion_tokens=40,
)


def draw_cases(count: int) -> list[TeamScenario]:
    """Training cases of difficulty 1 and 2."""
    return [generate("train", 0, index, 1 + index % 2) for index in range(count)]


class FaultyEngine(ScriptedModelEngine):
    """Fails at the planned call, if its process is the one that takes the plan."""

    folder: Path | None = None
    _fault, _at, _arrived = "", 0, 0

    async def complete(self, request: CompletionRequest) -> Completion:
        self._arrived += 1
        if self.folder is not None and self._arrived == 1:
            with suppress(OSError):  # another host has it, or there is none
                plan = (self.folder / PLAN).rename(self.folder / f"{PLAN}.{os.getpid()}")
                self._fault, at = plan.read_text().split()
                self._at = int(at)
        if self._arrived == self._at:
            self._fail()
        return await super().complete(request)

    def _fail(self) -> None:
        self._at = 0
        if self._fault == "slow":
            time.sleep(0.5)
        else:
            os.kill(os.getpid(), signal.SIGKILL if self._fault == "kill" else signal.SIGSTOP)


@contextmanager
def open_faulty_host(folder: Path | None) -> Iterator[RolloutHost]:
    """A host of scripted words; it fails as the plan in `folder` says."""
    tokenizer = make_tokenizer()
    chat, speakers = HFChat(tokenizer, short_prompts=True), half_expert_team(draw_cases(6))

    def make_engine() -> FaultyEngine:
        engine = FaultyEngine(speakers, chat=chat, end_id=chat.end_id)
        engine.folder = folder
        return engine

    player = choose_player(LEARNING, chat=chat, roles=tuple(ROLES), make_game=SHORT_GAME)
    yield RolloutHost(make_models(tokenizer), player, make_engine)


def equal_weights(one: RLLearner, other: RLLearner, role: str) -> bool:
    """Tell whether the role's weights are the same in every bit."""
    mine, theirs = (dict(learner.models[role].named_parameters()) for learner in (one, other))
    return all(torch.equal(mine[name], theirs[name]) for name in mine)


class FaultySteps:
    """Joint steps that are played on hosts of which one fails."""

    def __init__(
        self, host_class: type[ProcessHost] | type[RayHost] = ProcessHost, timeout_s: float = TIMEOUT_S
    ) -> None:
        self._host_class = host_class
        self.cases, self.later = draw_cases(3), draw_cases(6)[3:]
        self._folder = tempfile.TemporaryDirectory(prefix="rollout-faults-")
        self.pool = HostPool(self._make_host, NUM_HOSTS, timeout_s=timeout_s)
        self._tokenizer = make_tokenizer()
        self._chat = HFChat(self._tokenizer, short_prompts=True)
        self.first, self.second = self._learn_alone(1), self._learn_alone(2)

    def _make_host(self, number: int) -> Host:
        return self._host_class(partial(open_faulty_host, Path(self._folder.name)))

    def make_learner(self, hosts: HostPool | None) -> RLLearner:
        """A learner of fresh models."""
        return make_team_learner(
            make_models(self._tokenizer),
            LEARNING,
            chat=self._chat,
            reward_weights=TeamRewardWeights(),
            seed=0,
            hosts=hosts,
            block_size=1,
        )

    def _learn_alone(self, num_steps: int) -> RLLearner:
        """A learner after so many steps in this process."""
        original = getattr(loop, "TransformersEngine")  # noqa: B009 (loop only imports it)
        speakers = half_expert_team(draw_cases(6))
        setattr(loop, "TransformersEngine", partial(ScriptedModelEngine, speakers, chat=self._chat))  # noqa: B010
        try:
            learner = self.make_learner(None)
            for cases in (self.cases, self.later)[:num_steps]:
                learner.step(cases)
            return learner
        finally:
            setattr(loop, "TransformersEngine", original)  # noqa: B010

    def try_fault(self, fault: str, at: int) -> str:
        """Let a host fail at call number `at` of its case; what was wrong, or ""."""
        return "; ".join(self._problems(fault, at))

    def _problems(self, fault: str, at: int) -> Iterator[str]:
        before = self.pool.num_lost
        learner = self.make_learner(self.pool)
        (Path(self._folder.name) / PLAN).write_text(f"{fault} {at}")
        metrics = learner.step(self.cases)
        if self.pool.num_lost - before != int(fault != "slow"):
            yield f"{self.pool.num_lost - before} hosts lost"
        if int(metrics["sets"]) != len(self.cases) * LEARNING.report_sets:
            yield f"{metrics['sets']} sets in the loss"
        for role in ROLES:
            if not equal_weights(learner, self.first, role):
                yield f"{role} learnt something else than without hosts"
        learner.step(self.later)
        if not all(equal_weights(learner, self.second, role) for role in ROLES):
            yield "the next step learnt something else than without hosts"

    def close(self) -> None:
        self.pool.close()
        self._folder.cleanup()


def rollout_faults(runs: PreparedRuns, count: int) -> Trials:
    """Yield kills, hangs and slow hosts in turn, at calls drawn at random."""
    opened: list[FaultySteps] = []

    def call(fault: str, at: int) -> str:
        if not opened:
            opened.append(FaultySteps())
        return opened[0].try_fault(fault, at)

    rng = random.Random("R9")
    for number in range(count):
        fault, at = KINDS[number % len(KINDS)], rng.randint(1, MOST_CALLS)
        yield Trial(f"{number}", fault, partial(call, fault, at))
    if opened:
        opened[0].close()
