"""What torchrun starts in tests: scripted joint learning, plain or sharded; states and weights stay.

In float64: a sum over ranks in another order may then differ by rounding of 1e-13, and by nothing else.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from device_rules import DeviceRules
from joint_learning import FaultyEngine
from peft import LoraConfig, get_peft_model
from tiny_models import small_model, speak_by_adapters, tiny_chat

from reliability.joint.scripted_models import half_expert_team
from roles.registry import ROLES
from scenarios.team import generate
from simulator.reward import TeamRewardWeights
from training.config.rl_config import MarlConfig
from training.learner.fsdp import join_ranks, leave_ranks, shard_model, whole
from training.learner.ranks import Ranks
from training.models.adapters import keep_start, role_weights
from training.rl import loop
from training.rl.loop import RLLearner
from training.rl.overlap import copy_models
from training.rl.team.algorithm import make_team_learner
from training.runs.state_files import read_state, split_shards, write_shards, write_state

LEARNING = MarlConfig(report_sets=2, decisions_per_set=2, learning_rate=1e-3, max_completion_tokens=40)
CASES = [generate("train", 0, index, 1 + index % 2) for index in range(12)]


def make_learner(
    ranks: Ranks,
    *,
    options: dict[str, Any],
    sharded: bool = False,
    adapters: bool = False,
    offloaded: bool = False,
) -> RLLearner:
    models: dict[str, Any] = {role: small_model(place).double() for place, role in enumerate(ROLES)}
    references, actors = None, None
    if adapters:
        models = dict.fromkeys(ROLES, adapted_model())
        references = models
    if sharded:
        actors = copy_models(models)
        for model in {id(one): one for one in models.values()}.values():
            shard_model(model, cpu_offload=offloaded)
    return make_team_learner(
        models,
        LEARNING.changed(**options),
        chat=tiny_chat(),
        reward_weights=TeamRewardWeights(),
        seed=0,
        references=references,
        ranks=ranks,
        actors=actors,
    )


def adapted_model() -> Any:
    """A frozen base in bfloat16 with an adapter of each role in float32, and what they were at the start."""
    lora = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    model: Any = get_peft_model(small_model().bfloat16(), lora, adapter_name="cto")
    for role in list(ROLES)[1:]:
        model.add_adapter(role, lora)
    speak_by_adapters(model)
    keep_start(model)
    return model


def work(ranks: Ranks, folder: Path, job: dict[str, Any]) -> None:
    """Steps from `first` to `last`, from the named state where there is one; state and weights are left.

    After every step of `keep`, too, under the name and the step's number.
    """
    kind = {name: job[name] for name in ("sharded", "adapters", "offloaded") if name in job}
    learner = make_learner(ranks, options=job.get("options", {}), **kind)
    if "load" in job:
        learner.load_state(read_state(folder, job["load"]))
    if job.get("watched"):
        watch(learner, folder / f"{job['name']}-calls-{ranks.rank}.json")
    for step in range(job["first"], job["last"]):
        if step in job.get("keep", ()):
            leave(learner, ranks, folder, f"{job['name']}-{step}", is_sharded=job.get("sharded", False))
        learner.step(CASES[3 * step : 3 * step + 3])
    if job.get("validates"):
        validate(learner, folder / f"{job['name']}-validated-{ranks.rank}.json")
    leave(learner, ranks, folder, job["name"], is_sharded=job.get("sharded", False))
    ranks.wait()  # the next job may read it on every rank


def watch(learner: RLLearner, path: Path) -> None:
    """Learn under NCCL's rules, and write the collectives of the latest step."""
    learn = learner.learn

    def learn_watched(groups: Any) -> dict[str, float]:
        with DeviceRules(learner.models.values()) as rules:
            metrics = learn(groups)
        path.write_text(json.dumps(rules.calls))
        return metrics

    setattr(learner, "learn", learn_watched)  # noqa: B010


def validate(learner: RLLearner, path: Path) -> None:
    """Write the scores of five cases, and the cases that this rank played."""
    cases: list[str] = []
    play_here = learner.play_here

    def play_noted(models: Any, version: int, jobs: Any) -> list[Any]:
        cases.extend(case.key for job in jobs for case in job.cases)
        return play_here(models, version, jobs)

    setattr(learner, "play_here", play_noted)  # noqa: B010
    path.write_text(json.dumps([learner.validate(CASES[:5])[0], cases]))


def leave(learner: RLLearner, ranks: Ranks, folder: Path, name: str, *, is_sharded: bool) -> None:
    """Write state and weights under this name."""
    state, shards = split_shards(learner.state())
    assert bool(shards) == is_sharded, "a sharded tensor is never whole"
    if shards:
        write_shards(folder, name, shards)
    weights = {
        f"{role}.{name}": whole(weight)
        for role in ROLES
        for name, weight in role_weights(learner.models[role], role).items()
    }
    for role, critic in (learner.values.critics if learner.values else {}).items():
        weights |= {f"{role}.head.{name}": value.detach() for name, value in critic.head.named_parameters()}
    if ranks.rank == 0:
        write_state(folder, name, state)
        torch.save({part: value.clone() for part, value in weights.items()}, folder / f"{name}.pt")


def take_turns(ranks: Ranks, folder: Path) -> None:
    """Rank 0 is slow; the others find what it left all the same."""
    with ranks.main_process_first():
        if ranks.rank == 0:
            time.sleep(0.5)
            (folder / "left.txt").touch()
        assert (folder / "left.txt").exists(), "rank 0 was not first"
    ranks.wait()
    (folder / "left.txt").unlink(missing_ok=True)


def main(folder: Path, jobs: list[dict[str, Any]]) -> None:
    torch.set_num_threads(1)
    speakers = half_expert_team(CASES)
    setattr(loop, "TransformersEngine", lambda **given: FaultyEngine(speakers, chat=tiny_chat(), **given))  # noqa: B010
    ranks = join_ranks(timeout_s=120)
    take_turns(ranks, folder)
    for job in jobs:
        work(ranks, folder, job)
    leave_ranks(ranks)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
