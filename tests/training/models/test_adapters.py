"""Adapters: one frozen base and a small set of weights per role, in PEFT folders, through all stages."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from tiny_models import make_tiny_base, same_weights, small_model, tiny_tokenizer, weights_of

from reliability.joint.scripted_models import next_token_logprobs
from roles.errors import UserError
from roles.registry import ROLES
from simulator.engines.adapter_names import adapter_of
from simulator.engines.base import CompletionRequest, Sampling
from simulator.engines.embedded.engine import TransformersEngine
from training.config.loading import load_config
from training.config.model_config import ModelConfig
from training.config.run_config import SftConfig
from training.data.demonstrations import TokenRow
from training.models import adapters
from training.models.adapters import attach, load_adapters, role_parameters, save_adapter
from training.models.weights import find_weights, load_team, load_weights
from training.roles.sft import TrainingSite, run_sft
from training.runs.run_folder import Run
from training.stages.evaluation import evaluate_role, evaluate_team
from training.stages.table import train_stage

LORA = ModelConfig(adapter="lora", lora_rank=4, lora_alpha=8)
IDS = (5, 9, 2, 41, 17, 30)


def spoken_adapter(seed: int, scale: float = 0.3) -> PeftModel:
    """An adapter whose second factor is not zero, so that it changes what the base says."""
    model = attach(small_model(scale=4.0), LORA, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.copy_(torch.randn(parameter.shape, generator=generator) * scale)
    return model


def save(model: PeftModel, folder: Path) -> Path:
    folder.mkdir()
    save_adapter(model, folder, role="cto", base="some/base")
    return folder


def test_a_new_adapter_changes_no_word_and_is_all_that_trains() -> None:
    base = small_model(scale=4.0)
    said = next_token_logprobs(base, IDS)
    model = attach(small_model(scale=4.0), LORA, seed=1)
    assert torch.equal(next_token_logprobs(model, IDS), said)
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert trained
    assert all(".default." in name and "lora_" in name for name in trained)
    assert not any("lm_head" in name or "embed" in name for name in trained)
    # 7 linear layers of one block: rank * (inputs + outputs), by hand
    sizes = [(32, 32)] * 4 + [(32, 48)] * 2 + [(48, 32)]
    assert sum(p.numel() for p in role_parameters(model, "cto")) == sum(4 * (a + b) for a, b in sizes)


def test_an_adapter_comes_back_as_it_was_and_peft_reads_the_folder(tmp_path: Path) -> None:
    model = spoken_adapter(1)
    said = next_token_logprobs(model, IDS)
    folder = save(model, tmp_path / "a")
    assert sorted(path.name for path in folder.iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
    ]
    assert not any("base_layer" in name or "embed" in name for name in load_file(folder / adapters.WEIGHTS))
    config = json.loads((folder / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "some/base"
    assert config["target_modules"] == sorted(config["target_modules"])  # equal adapters have equal files
    assert len(config["target_modules"]) == 7
    plain = PeftModel.from_pretrained(small_model(scale=4.0), folder)  # PEFT alone, nothing of ours
    assert torch.equal(next_token_logprobs(plain.eval(), IDS), said)
    ours = load_adapters(small_model(scale=4.0), {"default": folder})
    assert torch.equal(next_token_logprobs(ours.eval(), IDS), said)
    assert not torch.equal(said, next_token_logprobs(small_model(scale=4.0), IDS))


def load_pair(folder: Path) -> tuple[PeftModel, dict[str, torch.Tensor]]:
    """Two roles on one base, and what each says alone."""
    alone = {"cto": spoken_adapter(1), "coo": spoken_adapter(2)}
    folders = {role: save(model, folder / role) for role, model in alone.items()}
    said = {role: next_token_logprobs(model, IDS) for role, model in alone.items()}
    return load_adapters(small_model(scale=4.0), folders), said


def test_roles_on_one_base_speak_and_learn_apart(tmp_path: Path) -> None:
    model, said = load_pair(tmp_path)
    for role in ("cto", "coo", "cto"):
        model.set_adapter(str(adapter_of(model, role)))
        assert torch.equal(next_token_logprobs(model, IDS), said[role])
        own = {id(parameter) for parameter in role_parameters(model, role)}
        assert {id(p) for p in model.parameters() if p.requires_grad} == own
        model.zero_grad()
        model(input_ids=torch.tensor([IDS])).logits.sum().backward()
        assert {id(p) for p in model.parameters() if p.grad is not None} == own
    assert not torch.equal(said["cto"], said["coo"])
    with pytest.raises(ValueError, match="no adapter of role 'cost'"):
        model.set_adapter(str(adapter_of(model, "cost")))


def test_the_engine_serves_each_role_its_own_adapter(tmp_path: Path) -> None:
    """Both roles in flight at once on one model: every logprob is that of the role's own adapter."""
    model, _ = load_pair(tmp_path)
    engine = TransformersEngine(end_id=1, seed=3)
    for role in ("cto", "coo"):
        engine.set_policy(role, model, version=f"{role}@1")

    async def ask(role: str, number: int) -> tuple[str, tuple[int, ...], Any]:
        prompt = (*IDS, 20 + number)
        request = CompletionRequest(
            policy=role,
            session=f"{role}/{number}",
            prompt_ids=prompt,
            sampling=Sampling(max_completion_tokens=6),
        )
        return role, prompt, await engine.complete(request)

    async def ask_all() -> list[tuple[str, tuple[int, ...], Any]]:
        return await asyncio.gather(*(ask(role, n) for n in range(3) for role in ("cto", "coo")))

    for role, prompt, completion in asyncio.run(ask_all()):
        model.set_adapter(str(adapter_of(model, role)))
        ids = prompt + completion.token_ids
        logprobs = next_token_logprobs(model, ids)
        own = [float(logprobs[i - 1, ids[i]]) for i in range(len(prompt), len(ids))]
        assert completion.logprobs == pytest.approx(own, abs=1e-4)


def test_sft_trains_the_adapter_and_not_the_base(tmp_path: Path) -> None:
    model: Any = attach(small_model(), LORA, seed=0)
    before = weights_of(model)
    rows = [TokenRow(token_ids=(5, 9, 20 + i, 1), loss_mask=(0, 0, 1, 1)) for i in range(8)]
    run_sft(
        model,
        tiny_tokenizer(),
        rows,
        SftConfig(batch_size=4),
        TrainingSite(output_dir=tmp_path, seed=0, on_step=lambda step, metrics: None),
        max_steps=3,
    )
    changed = {name for name, value in weights_of(model).items() if not torch.equal(value, before[name])}
    assert changed
    assert all("lora_" in name for name in changed)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_qlora_without_a_gpu_is_refused_in_one_line() -> None:
    with pytest.raises(UserError, match=r"'qlora' needs a CUDA device.*model\.adapter=lora"):
        adapters.quantization(ModelConfig(adapter="qlora"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["model.adapter=lra"], "lora"),
        (["model.dtype=bfloat16"], "frozen base"),
        (["model.adapter=lora", "model.lora_targets=[all-linear,q_proj]"], "stands alone"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_config(None, settings)


def test_unknown_modules_are_refused() -> None:
    with pytest.raises(UserError, match=r"lora_targets.*no_such_layer"):
        attach(small_model(), ModelConfig(adapter="lora", lora_targets=("no_such_layer",)), seed=0)


SETTINGS = (
    "num_workers=0", "model.hidden_size=32", "model.num_layers=1", "model.num_heads=2",
    "model.intermediate_size=48", "model.adapter=lora", "model.lora_rank=4", "sft.max_steps=3",
    "sft.batch_size=4", "grpo.max_steps=1", "grpo.prompts_per_step=2", "grpo.group_size=2",
    "grpo.max_completion_tokens=6", "grpo.loss.kl_coefficient=0.1", "marl.max_steps=1",
    "marl.scenarios_per_step=2", "marl.report_sets=2",
    "marl.max_completion_tokens=6", "marl.guards.validation_scenarios=2",
    "evaluation.num_role_scenarios=3", "evaluation.num_team_scenarios=2",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("sharing", ["per_role", "shared"])
def test_all_stages_with_adapters(sharing: str, tmp_path: Path) -> None:
    """One base for the run, one adapter folder per owner and stage, and every stage starts from the last."""
    run = Run.create(tmp_path / "run", load_config(None, [*SETTINGS, f"model.adapter_sharing={sharing}"]))
    owners = adapters.list_owners(run.config.model)
    assert owners == (("team",) if sharing == "shared" else tuple(ROLES))
    make_tiny_base(run.path)
    for owner in owners:
        train_stage(run.path, "sft", owner)
        train_stage(run.path, "grpo", owner)
    train_stage(run.path, "marl")
    evaluate_role(run.path, "marl", "cost")
    evaluate_team(run.path, "marl")
    checkpoints = run.path / "checkpoints"
    assert len(list(checkpoints.rglob("model.safetensors"))) == 1
    for stage in ("sft", "grpo", "marl"):
        assert sorted(path.name for path in (checkpoints / stage).iterdir()) == sorted(owners)
    assert all(run.read_payload(f"sft/{owner}")["weights_changed"] for owner in owners)
    base, _ = load_weights(run, "base", "cto")
    team, _ = load_team(run, "marl")
    assert len({id(model) for model in team.values()}) == 1
    stored = {name: value for name, value in weights_of(team["cto"]).items() if "lora_" not in name}
    assert all(torch.equal(a, b) for a, b in zip(stored.values(), weights_of(base).values(), strict=True))
    for role in ROLES:
        alone = load_file(find_weights(run, "sft", role) / adapters.WEIGHTS)
        model, _ = load_weights(run, "sft", role)
        again = {
            name.replace(".default", ""): value
            for name, value in weights_of(model).items()
            if "lora_" in name
        }
        assert same_weights(again, alone)


@pytest.mark.parametrize("change", ["other names", "some lack", "some over"])
def test_an_adapter_whose_names_are_not_the_bases_modules_is_refused(tmp_path: Path, change: str) -> None:
    save_adapter(spoken_adapter(1), tmp_path, role="cto", base="base")
    whole = load_file(tmp_path / adapters.WEIGHTS)
    last = {key: one for key, one in whole.items() if ".layers.0.mlp." in key}
    changed = {
        "other names": {
            key.replace(".model.layers.", ".model.language.layers."): whole[key] for key in whole
        },
        "some lack": {key: whole[key] for key in whole if key not in last},
        "some over": whole | {key.replace(".layers.0.", ".layers.9."): last[key].clone() for key in last},
    }[change]
    save_file(changed, tmp_path / adapters.WEIGHTS, metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"no module of the base takes: .* no weights for: "):
        load_adapters(small_model(scale=4.0), {"cto": tmp_path})


def test_an_adapter_of_another_kind_is_a_users_error(tmp_path: Path) -> None:
    folder = save(spoken_adapter(1), tmp_path / "cto")
    file = folder / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "peft_type": "MAGIC"}))
    with pytest.raises(UserError, match="does not fit its base: unknown 'MAGIC'"):
        load_adapters(small_model(scale=4.0), {"cto": folder})
