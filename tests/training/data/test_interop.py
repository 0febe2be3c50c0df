"""Other trainers on our data: TRL's own commands as they are, rewards by import path, tools as methods."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from datasets import load_dataset
from played_cases import expected, expert_steps, name_case
from safetensors.torch import load_file
from tiny_models import DIFFICULTIES, same_weights, tiny_tokenizer
from transformers.utils.chat_template_utils import get_json_schema

from roles.errors import UserError
from roles.registry import ROLES
from scenarios.registry import FAMILIES
from serving.environments.trl_env import environment_factory, played_reward
from training.config.model_config import ModelConfig
from training.data.demonstrations import role_scenario
from training.data.interop import (
    exact_reward,
    feasible_reward,
    find_scenario,
    verified_reward,
    write_trl_folder,
)
from training.models.base_model import build_tiny_model

ROOT = Path(__file__).parent.parent.parent.parent
ROLE = "cto"


def run_trl(verb: str, config: Mapping[str, Any], folder: Path) -> str:
    """Standard output of `trl VERB --config FILE`, the installed program as it is."""
    file = folder / f"{verb}.yaml"
    file.write_text(yaml.safe_dump(dict(config)))
    done = subprocess.run(
        [Path(sys.executable).parent / "trl", verb, "--config", file],
        cwd=ROOT,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def shipped(name: str, folder: Path, **changes: Any) -> dict[str, Any]:
    """A config of configs/trl/, its places moved to `folder`."""
    text = (ROOT / "configs" / "trl" / f"{name}.yaml").read_text().replace("runs/trl", str(folder))
    return {**yaml.safe_load(text), **changes}


def logged(output: str, name: str) -> list[float]:
    """The values of one metric in the lines that the trainer prints."""
    return [float(value) for value in re.findall(rf"'{re.escape(name)}': '?([-+0-9.e]+|nan)", output)]


@pytest.mark.slow
def test_trl_sft_and_grpo_run_on_our_folders_with_our_rewards(tmp_path: Path) -> None:
    """SFT until answers parse, then GRPO on what the verifier says: weights move, every reward is logged."""
    folders = write_trl_folder(
        tmp_path, "reconcile", count=256, difficulties=(1,), direct=True, style="short"
    )
    assert folders == {"sft": tmp_path / "sft", "grpo": tmp_path / "grpo"}
    size = ModelConfig(hidden_size=64, num_layers=1, num_heads=2, intermediate_size=96)
    base = build_tiny_model(size, tiny_tokenizer(), seed=0)
    for part in (base, tiny_tokenizer()):
        part.save_pretrained(tmp_path / "base")
    said = run_trl("sft", shipped("sft", tmp_path, max_steps=160), tmp_path)
    losses = logged(said, "loss")
    assert losses[-1] < 0.5 * losses[0]
    said = run_trl(
        "grpo", shipped("grpo", tmp_path, max_steps=3, learning_rate=1e-3, max_completion_length=64), tmp_path
    )
    rewards = logged(said, "reward")
    assert len(rewards) == 3
    assert all(0 < reward < 1 for reward in rewards)
    assert logged(said, "rewards/verified_reward/mean") == pytest.approx(rewards)
    for name in ("exact_reward", "feasible_reward"):
        assert len(logged(said, f"rewards/{name}/mean")) == 3
    weights = [load_file(tmp_path / name / "model.safetensors") for name in ("base", "sft-out", "grpo-out")]
    assert not same_weights(weights[0], weights[1])
    assert not same_weights(weights[1], weights[2])


def test_tool_trajectories_open_as_chats_with_tools(tmp_path: Path) -> None:
    folder = write_trl_folder(tmp_path, ROLE, count=8, difficulties=DIFFICULTIES)["sft"]
    rows = load_dataset(str(folder))
    assert {name: len(rows[name]) for name in rows} == {"train": 8, "test": 1}
    row = rows["train"][0]
    assert row["messages"][0] == {"role": "system", "content": ROLES[ROLE].mandate}
    assert [tool["function"]["name"] for tool in row["tools"]] == [tool.name for tool in ROLES[ROLE].tools]
    call = row["messages"][2]["tool_calls"][0]["function"]
    scenario = role_scenario(ROLE, "train", 0, 0, DIFFICULTIES, "full")
    assert row["messages"][1]["content"] == scenario.brief
    assert set(call) == {"name", "arguments"}  # no empty keys of other rows' calls
    assert row["messages"][3]["role"] == "tool"
    last = row["messages"][-1]["content"]
    assert FAMILIES[ROLE].verify(scenario, last).reward == 1


@pytest.mark.parametrize("conversational", [True, False])
def test_rewards_are_the_verdicts_of_the_right_cases(conversational: bool, tmp_path: Path) -> None:
    write_trl_folder(tmp_path, ROLE, count=4, difficulties=DIFFICULTIES)
    rows = load_dataset(str(tmp_path / "grpo"))["train"]
    columns = {name: rows[name][:] for name in rows.column_names if name != "prompt"}
    cases = [role_scenario(ROLE, "train", 0, index, DIFFICULTIES, "full") for index in range(4)]
    golds = [json.dumps(FAMILIES[ROLE].solve(case)) for case in cases]
    texts = [golds[0], golds[0], "{}", golds[3]]  # right, another case's, malformed, right
    completions: list[Any] = (
        [[{"role": "assistant", "content": text}] for text in texts] if conversational else texts
    )
    expected = [FAMILIES[ROLE].verify(case, text) for case, text in zip(cases, texts, strict=True)]
    assert verified_reward(completions, **columns) == [one.reward for one in expected]
    assert [one.reward for one in expected][::3] == [1.0, 1.0]
    assert expected[1].reward < 1
    assert exact_reward(completions, **columns) == [float(one.exact) for one in expected]
    assert feasible_reward(completions, **columns) == [float(one.feasible) for one in expected]
    del columns["seed"]
    with pytest.raises(ValueError, match=r"lacks the columns.*seed"):
        verified_reward(completions, **columns)


@pytest.mark.parametrize("role", sorted(ROLES))
def test_an_environment_has_the_roles_tools(role: str) -> None:
    """Names, types and words as the role's own signature has them; calls answer as the family's do."""
    environment = environment_factory(role)()
    scenario = role_scenario(role, "train", 0, 0, DIFFICULTIES, "full")
    environment.reset(
        family=role, split="train", seed=0, index=0, difficulty=scenario.difficulty, prompt="unused"
    )
    for tool in ROLES[role].tools:
        schema = get_json_schema(getattr(environment, tool.name))["function"]
        assert (schema["name"], schema["description"]) == (tool.name, tool.description)
        assert (
            schema["parameters"]["required"] == tool.parameters.get("required", [])
            if schema["parameters"]["properties"]
            else True
        )
        assert set(schema["parameters"]["properties"]) == set(tool.parameters["properties"])
    row = write_calls(role)
    assert row
    for name, arguments, observation in row:
        assert getattr(environment, name)(**arguments) == observation
    steps = expert_steps(name_case(role))
    environment.reset(**name_case(role).model_dump())
    for step in steps[:-1]:
        assert step.call is not None
        getattr(environment, step.call.name)(**step.call.arguments)
    (reward,) = played_reward([[{"role": "assistant", "content": steps[-1].text}]], [environment])
    assert reward == expected(name_case(role), steps).reward
    environment.reset(**name_case(role).model_dump())
    name = ROLES[role].tools[-1].name
    assert getattr(environment, name)(nonsense=3).startswith("error: ")


def write_calls(role: str) -> list[tuple[str, dict[str, Any], str]]:
    """The expert's calls on the first case, and what they were answered."""
    from training.data.folders.rows import build_rows, load_messages

    messages = load_messages(build_rows(role, "train", 0, 0, DIFFICULTIES[0])[0]["messages"])
    return [
        (call["function"]["name"], call["function"]["arguments"], answer["content"])
        for turn, answer in pairwise(messages)
        for call in turn.get("tool_calls", [])
    ]


def test_unknown_roles_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown family 'ceo'"):
        environment_factory("ceo")
    with pytest.raises(UserError, match="unknown role 'ceo'"):
        write_trl_folder(tmp_path, "ceo", count=1, difficulties=(1,))


def test_rewards_do_not_open_the_test_split() -> None:
    with pytest.raises(UserError, match="sealed"):
        find_scenario("cto", "test", 0, 0, 1)
