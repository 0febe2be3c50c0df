"""R9: rollout workers killed, hung and slowed in the middle of a joint step.

The workers are real processes that speak for every role; one of them fails at a planned call. The step must
learn from whole groups only, and from each of them once.
"""

import random
from collections.abc import Iterator
from functools import partial

import torch

from emads.reliability.joint.rollout_workers import RolloutWorkers
from emads.reliability.joint.scripted_models import ScriptedModelEngine, make_models, make_tokenizer
from emads.reliability.stages.prepared_runs import PreparedRuns
from emads.reliability.trials import Trial, Trials
from roles.registry import ROLES
from scenarios.team import TeamScenario, generate
from simulator.engines.embedded.hf_chat import HFChat
from simulator.reward import TeamRewardWeights
from training.config.marl_config import MarlConfig
from training.joint import marl
from training.joint.marl import JointLearner

KINDS = ("kill", "hang", "slow")
MOST_CALLS = 90  # of a step: 9 report sets of 9 calls, and a second decision on each
PR_FAULTS = (("kill", 3), ("kill", 40), ("kill", 90), ("hang", 20), ("slow", 30))
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


def equal_weights(one: JointLearner, other: JointLearner, role: str) -> bool:
    """Tell whether the role's weights are the same in every bit."""
    mine, theirs = (dict(learner.models[role].named_parameters()) for learner in (one, other))
    return all(torch.equal(mine[name], theirs[name]) for name in mine)


class FaultySteps:
    """Joint steps that are played on worker processes of which one fails."""

    def __init__(self) -> None:
        self.config, self.cases, self.later = LEARNING, draw_cases(3), draw_cases(6)[3:]
        self.workers = RolloutWorkers(draw_cases(6))
        self._tokenizer = make_tokenizer()
        self._chat = HFChat(self._tokenizer, short_prompts=True)

    def make_learner(self) -> JointLearner:
        """A learner of fresh models."""
        return JointLearner(
            make_models(self._tokenizer),
            self.config,
            chat=self._chat,
            reward_weights=TeamRewardWeights(),
            seed=0,
        )

    def try_fault(self, fault: str, at: int) -> str:
        """Let the worker fail that gets call number `at`; what was wrong, or ""."""
        original = getattr(marl, "TransformersEngine")  # noqa: B009 (marl only imports it)

        def make(*, end_id: int, seed: int) -> ScriptedModelEngine:
            return ScriptedModelEngine(self.workers.speakers(), chat=self._chat, end_id=end_id, seed=seed)

        setattr(marl, "TransformersEngine", make)  # noqa: B010
        try:
            return "; ".join(self._problems(fault, at))
        finally:
            setattr(marl, "TransformersEngine", original)  # noqa: B010

    def _problems(self, fault: str, at: int) -> Iterator[str]:
        sets = self.config.report_sets
        self.workers.plan_fault("", 0)
        healthy = self.make_learner()
        complete = healthy.play(self.cases)
        if len(complete) != len(self.cases):
            yield f"{len(complete)} groups of a healthy step"
        faulty, before = self.make_learner(), self.workers.losses
        self.workers.plan_fault(fault, at)
        metrics = faulty.step(self.cases)
        expected = int(fault != "slow")
        if self.workers.losses - before != expected:
            yield f"{self.workers.losses - before} workers lost"
        if int(metrics["sets"]) != (len(self.cases) - expected) * sets:
            yield f"{metrics['sets']} sets in the loss"
        # what was learnt is what a healthy step learns from the very same groups, no more and no less
        again = self.make_learner()
        self.workers.plan_fault(fault, at)
        kept = {one.scenario.key for one in again.play(self.cases)}
        if len(kept) != len(self.cases) - expected:
            yield f"{len(kept)} cases kept"
        self.workers.plan_fault("", 0)
        healthy.learn([one for one in complete if one.scenario.key in kept])
        for role in ROLES:
            if not equal_weights(healthy, faulty, role):
                yield f"{role} learnt something else than its whole groups"
        if faulty.step(self.later)["sets"] != len(self.later) * sets:
            yield "the next step is not whole"

    def close(self) -> None:
        self.workers.close()


def rollout_faults(runs: PreparedRuns, count: int) -> Trials:
    """Yield kills, hangs and slow workers in turn, at calls drawn at random."""
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
