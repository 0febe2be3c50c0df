"""Training on real vLLM: GRPO of one role and joint steps of the team, adapters synced after every step."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from tiny_models import DIFFICULTIES, tiny_chat, weights_of
from transformers import AutoModelForCausalLM
from vllm_models import NEEDS_VLLM, ROLES, make_base

from simulator.agents.solo import SoloEpisode
from simulator.reward import TeamRewardWeights
from training.config.grpo_config import GrpoConfig
from training.config.marl_config import MarlConfig
from training.config.run_config import EngineConfig
from training.data.demonstrations import role_scenario, team_scenario
from training.models.engine_factory import open_engine
from training.rl.records import ScoredGroup
from training.rl.solo.algorithm import make_solo_learner
from training.rl.solo.play import SoloPlayer
from training.rl.team.algorithm import make_team_learner

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


def differ(groups: Sequence[ScoredGroup]) -> list[ScoredGroup]:
    """Random weights earn nothing: rewards that differ stand in for the team's."""
    drawn = (0.1 * (number % 5) for number in itertools.count())
    return [
        replace(
            group,
            report_sets=tuple(
                replace(
                    one,
                    scored=tuple(
                        replace(scored, verdict=replace(scored.verdict, reward=next(drawn)))
                        for scored in one.scored
                    ),
                )
                for one in group.report_sets
            ),
        )
        for group in groups
    ]


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
        scenarios = [team_scenario("train", 0, 10 * step + i, DIFFICULTIES) for i in range(2)]
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
    assert len(engine.list_adapters()) == len(ROLES)  # old versions are gone


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
