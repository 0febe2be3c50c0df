"""Training on real vLLM: GRPO of one role and joint steps of the team, adapters synced after every step."""

import itertools
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from rank_launch import CHILDREN, launch_ranks
from tiny_models import DIFFICULTIES, tiny_chat, tiny_tokenizer, weights_of
from transformers import AutoModelForCausalLM
from vllm_models import NEEDS_VLLM, ROLES, differ, list_adapters, make_base

from simulator.agents.solo import SoloEpisode
from simulator.reward import TeamRewardWeights
from training.config.loading import load_config
from training.config.rl_config import GrpoConfig, MarlConfig
from training.config.run_config import DataConfig, EngineConfig
from training.data.demonstrations import role_scenario, team_scenario
from training.models.engine_factory import open_engine
from training.models.weights import save_weights
from training.rl.solo.algorithm import make_solo_learner
from training.rl.solo.play import SoloPlayer
from training.rl.team.algorithm import make_team_learner
from training.runs.run_folder import Run

pytestmark = NEEDS_VLLM


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def engine(base: Path) -> Iterator[Any]:
    config = EngineConfig(name="vllm", vllm={"max_model_len": 1024})
    with open_engine(config, end_id=tiny_chat().end_id, seed=0, base=base) as opened:
        yield opened


def adapted(base: Path, names: tuple[str, ...]) -> PeftModel:
    """The base with one trainable adapter per name that does not change it yet."""
    torch.manual_seed(0)
    lora = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
    model: Any = get_peft_model(
        AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), lora, adapter_name=names[0]
    )
    for name in names[1:]:
        model.add_adapter(name, lora)
    assert isinstance(model, PeftModel)
    return model


def check_mismatch(metrics: Mapping[str, float], suffix: str = "") -> None:
    """vLLM and the learner compute the same model in float32: they differ by rounding alone."""
    assert 0 < metrics[f"mismatch_mean{suffix}"] < 1e-4
    assert metrics[f"mismatch_mean{suffix}"] <= metrics[f"mismatch_max{suffix}"] < 1e-2
    assert abs(metrics[f"mismatch_kl{suffix}"]) < 1e-4
    assert metrics[f"effective_share{suffix}"] == pytest.approx(1.0, abs=1e-3)


def test_two_joint_steps_sample_the_newest_adapters_and_log_the_mismatch(
    base: Path, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = adapted(base, ROLES)
    config = MarlConfig().changed(
        scenarios_per_step=2,
        report_sets=2,
        decisions_per_set=4,
        max_completion_tokens=24,
        learning_rate=1e-2,
        loss__importance="call",
        credit__scheme="shared",  # these untrained roles offer nothing that the verifier could value
    )
    learner = make_team_learner(
        dict.fromkeys(ROLES, model),
        config,
        chat=tiny_chat(),
        reward_weights=TeamRewardWeights(),
        seed=0,
        engine=engine,
    )
    score = learner.scorer.score
    monkeypatch.setattr(learner, "scorer", SimpleNamespace(score=lambda groups: differ(score(groups))))
    before = weights_of(model)
    for step in range(2):
        scenarios = [team_scenario(DataConfig(), "train", 10 * step + i, DIFFICULTIES) for i in range(2)]
        groups = learner.play(scenarios)
        versions = {
            turn.policy_version
            for group in groups
            for one in group.report_sets
            for trajectory in one.episodes[0].trajectories.values()
            for turn in trajectory.turns
        }
        assert versions == {f"{role}@{step}" for role in ROLES}
        metrics = learner.learn(groups)
        for role in ROLES:
            assert metrics[f"signal/{role}"] > 0
            check_mismatch(metrics, f"/{role}")
    changed = [name for name, weight in weights_of(model).items() if not torch.equal(weight, before[name])]
    assert all("lora_" in name for name in changed)
    assert {role for role in ROLES for name in changed if f".{role}." in name} == set(ROLES)
    assert len(list_adapters(engine)) == len(ROLES)  # old versions are gone


def score_by_sum(episode: SoloEpisode) -> dict[str, Any]:
    return {"total": float(sum(episode.trajectory.token_ids) % 7)}


def test_a_grpo_step_on_vllm_corrects_per_call_and_logs_the_mismatch(
    base: Path, engine: Any, tmp_path: Path
) -> None:
    model: Any = adapted(base, ("default",))
    scenarios = [role_scenario("coo", "train", 0, index, DIFFICULTIES) for index in range(4)]
    config = GrpoConfig().changed(
        max_steps=2,
        prompts_per_step=2,
        group_size=4,
        max_turns=2,
        max_completion_tokens=24,
        learning_rate=1e-2,
        loss__importance="call",
    )
    before = weights_of(model)
    player, chat = SoloPlayer(config=config, chat=tiny_chat()), tiny_chat()
    learner = make_solo_learner({"coo": model}, config, player=player, chat=chat, seed=0, engine=engine)
    # random weights earn nothing: rewards that differ stand in for the verifier's
    learner.scorer._score = score_by_sum  # type: ignore[attr-defined]
    versions: list[set[str]] = []
    for step in range(2):
        groups = learner.play(scenarios[2 * step : 2 * step + 2])
        turns = [turn for group in groups for one in group.episodes for turn in one.trajectory.turns]
        versions.append({turn.policy_version for turn in turns})
        row = learner.learn(groups)
        check_mismatch(row)
        assert math.isfinite(row["grad_norm"])
        assert row["grad_norm"] > 0
    assert versions == [{"coo@0"}, {"coo@1"}]
    assert any(not torch.equal(weight, before[name]) for name, weight in weights_of(model).items())


@pytest.mark.process
@pytest.mark.parametrize("sharding", ["none", "fsdp2"])
def test_an_engine_beside_each_of_two_ranks_plays_the_newest_adapters(
    base: Path, tmp_path: Path, sharding: str
) -> None:
    """The stage as torchrun starts it: whole models on every rank, or sharded ones without a copy to play."""
    settings = (
        "num_workers=0", "model.adapter=lora", "data.difficulties=[1]", "engine.name=vllm",
        "engine.vllm.max_model_len=1024", "marl.max_steps=2", "marl.scenarios_per_step=2",
        "marl.report_sets=2", "marl.decisions_per_set=2", "marl.max_completion_tokens=24",
        "marl.learning_rate=0.01", "marl.loss.importance=call", "marl.credit.scheme=shared",
        f"marl.memory.sharding={sharding}",
    )  # fmt: skip
    run = Run.create(tmp_path / "run", load_config(None, settings))
    plain, tokenizer = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), tiny_tokenizer()
    save_weights(run, "base", None, plain, tokenizer, step=0)
    model: Any = adapted(base, ROLES)
    for role in ROLES:
        save_weights(run, "grpo", role, model, tokenizer, step=1)
    launch_ranks(2, CHILDREN / "vllm_ranks_child.py", run.path)
    for rank, step in itertools.product(range(2), range(2)):
        versions = json.loads((run.path / f"versions-{rank}-{step}.json").read_text())
        assert versions == sorted(f"{role}@{step}" for role in ROLES)
    rows = [row.metrics for row in run.read_metrics("marl")]
    assert len(rows) == 2
    for role in ROLES:
        assert rows[0][f"grad_norm/{role}"] > 0
        for row in rows:
            check_mismatch(row, f"/{role}")
    assert run.read_payload("marl")["weights_changed"] == dict.fromkeys(ROLES, True)
