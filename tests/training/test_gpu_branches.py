"""Branches that a GPU takes, taken on a CPU: `is_cuda` and torch.cuda are faked, numbers are real."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from joint_learning import change
from peft import LoraConfig, get_peft_model
from tiny_models import same_weights, small_model, tiny_chat, weights_of
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from roles.errors import UserError
from roles.registry import ROLES
from simulator.engines.embedded.engine import TransformersEngine
from simulator.engines.embedded.grouped_attention import grouped_attention
from simulator.engines.embedded.lanes import device_memory
from simulator.engines.vllm.library import free_cached_memory
from training.config.loading import load_config
from training.learner import fsdp, row_attention
from training.learner.ranks import ONE_RANK, Ranks
from training.models.engine_factory import open_rollouts
from training.rl.update import PolicyUpdater
from training.roles.sft import device_options
from training.runs.run_folder import Run
from training.runs.state_files import capture_random_states, restore_random_states
from training.stages import on_ranks
from training.stages.rl import open_play, prepare_policies

SMALL = ("num_workers=0", "model.hidden_size=32", "model.num_heads=2")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU is there, and all tensors say that they are on it."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda _: True), raising=False)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("tokens", [1, 5])
@pytest.mark.parametrize("key_heads", [4, 2])
def test_a_gpu_samples_with_the_attention_that_sdpa_computes(tokens: int, key_heads: int) -> None:
    torch.manual_seed(0)
    query, key, value = (
        torch.randn(3, heads, size, 8) for heads, size in ((4, tokens), *[(key_heads, 9)] * 2)
    )
    mask = torch.rand(3, 1, tokens, 9) > 0.3
    mask[..., 0] = True
    module: Any = SimpleNamespace(num_key_value_groups=4 // key_heads, is_causal=True, training=False)
    with torch.no_grad():
        found, _ = grouped_attention(module, query, key, value, mask)
        keys, values = (one.repeat_interleave(4 // key_heads, 1) for one in (key, value))
        wanted = scaled_dot_product_attention(query, keys, values, attn_mask=mask).transpose(1, 2)
    torch.testing.assert_close(found, wanted)


def test_the_memory_of_a_gpu_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {torch.device("cuda", 0): 1 << 30, torch.device("cuda", 1): 1 << 31}
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=sizes[device])
    )
    assert [device_memory(one) for one in (*sizes, torch.device("cpu"))] == [1 << 30, 1 << 31, None]


@pytest.mark.parametrize("is_initialized", [False, True])
def test_cached_memory_is_freed_where_cuda_has_begun(
    is_initialized: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question alone must not start CUDA in a process that has not."""
    freed: list[bool] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: is_initialized)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: freed.append(True))
    free_cached_memory()
    assert freed == [True] * is_initialized


@pytest.mark.usefixtures("gpu")
def test_packed_rows_under_autocast_go_to_the_kernel_in_its_precision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rotary positions leave queries in float32, which the kernel of a GPU refuses."""
    given: list[torch.dtype] = []

    def attend(query: Tensor, key: Tensor, value: Tensor, layout: Any, scaling: Any) -> Tensor:
        given.extend(one.dtype for one in (query, key, value))
        return query.transpose(1, 2)

    monkeypatch.setattr(row_attention, "_attend_at_once", attend)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: kind == "cuda")
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda kind: torch.bfloat16)
    layout = row_attention.RowLayout.of([row_attention.Segment(0, 3)], "cpu")
    query = torch.zeros(1, 2, 3, 4)
    row_attention.row_attention(nn.Module(), query, query, query.bfloat16(), None, layout=layout)
    assert given == [torch.bfloat16] * 3


def test_a_fused_optimizer_steps_as_a_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def step(is_on_gpu: bool) -> dict[str, Tensor]:
        with monkeypatch.context() as patch:
            patch.setattr(torch.nn.Parameter, "is_cuda", property(lambda _: is_on_gpu), raising=False)
            updater = PolicyUpdater({"cto": small_model()}, change())
        optimizer = updater.optimizers["cto"]
        assert optimizer.defaults["fused"] is (True if is_on_gpu else None)
        torch.manual_seed(1)
        for parameter in updater.models["cto"].parameters():
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()
        return weights_of(updater.models["cto"])

    fused, plain = step(True), step(False)
    for name, weight in plain.items():
        torch.testing.assert_close(fused[name], weight)


def test_random_states_of_gpus_go_with_a_checkpoint_to_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, count = [torch.tensor([1]), torch.tensor([2])], [2]
    restored: list[Any] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: kept)
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", restored.append)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count[0])
    states = capture_random_states()
    restore_random_states(states)
    count[0] = 1
    restore_random_states(states)
    assert restored == [kept]


def test_offloaded_shards_are_computed_on_the_gpu_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """They rest on the host, in a mesh of GPUs."""
    shard = SimpleNamespace(device_mesh=SimpleNamespace(device_type="cuda"), device=torch.device("cpu"))
    model: Any = SimpleNamespace(parameters=lambda: iter([shard]))
    assert fsdp.compute_device(model) == torch.device("cpu")
    monkeypatch.setattr(fsdp, "DTensor", SimpleNamespace)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    assert fsdp.compute_device(model) == torch.device("cuda", 3)


@pytest.mark.parametrize("has_gpu", [False, True])
def test_trainers_take_the_gpu_in_bfloat16(has_gpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    assert device_options() == {"use_cpu": not has_gpu, "bf16": has_gpu}
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    assert device_options() == {"bf16": False} | ({} if has_gpu else {"ddp_backend": "gloo"})


@pytest.mark.parametrize("has_gpu", [False, True])
@pytest.mark.parametrize("has_deepspeed", [False, True])
def test_ranks_of_sft_are_on_the_device_that_trains(
    has_gpu: bool, has_deepspeed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []
    place = SimpleNamespace(num_processes=2, process_index=1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)

    def open_state(**options: Any) -> SimpleNamespace:
        asked.append(options)
        return place

    monkeypatch.setattr(on_ranks, "PartialState", open_state)
    monkeypatch.setattr(on_ranks, "check_launcher", lambda config: False)
    monkeypatch.setattr(on_ranks, "uses_deepspeed", lambda: has_deepspeed)
    monkeypatch.setattr(on_ranks, "join_ranks", lambda: ONE_RANK)
    assert on_ranks.join_trainer_ranks(load_config(None, SMALL)) == Ranks(rank=1, size=2)
    if has_deepspeed:
        assert asked == [{} if has_gpu else {"backend": "gloo"}]
    else:
        assert asked == [{"cpu": not has_gpu}]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", load_config(None, SMALL))


@pytest.mark.parametrize("has_gpu", [False, True])
def test_an_engine_is_kept_with_its_recorded_steps_on_a_gpu_alone(
    run: Run, has_gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    with open_rollouts(run, end_id=2) as engine:
        assert isinstance(engine, TransformersEngine) is has_gpu


def test_play_ahead_in_the_learners_process_is_refused_on_a_gpu(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Play and learning would share a stream and an interpreter lock: stale rollouts, and nothing gained."""
    models, config = dict.fromkeys(ROLES, small_model()), change(max_staleness=1, loss__importance="call")
    with open_play(run, models, config, tiny_chat()) as options:
        assert options["engine"] is None
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    refused = pytest.raises(UserError, match=r"set rollouts\.hosts to 1 or more")
    with refused, open_play(run, models, config, tiny_chat()):
        pass


def test_copies_in_bfloat16_play_and_weights_in_float32_are_published(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    models, config = dict.fromkeys(ROLES, small_model()), change(memory__bf16=True)
    actors = prepare_policies(run, models, config, ONE_RANK, lambda: models)["actors"]
    assert {one.dtype for one in actors["cto"].parameters()} == {torch.bfloat16}
    assert {one.dtype for one in actors["cto"].buffers()} == {torch.float32}  # rotary frequencies
    updater = PolicyUpdater(models, config, actors=actors)
    assert updater.whole_models() is updater.models
    monkeypatch.setattr("training.rl.update.is_sharded", lambda model: True)
    assert same_weights(weights_of(updater.whole_models()["cto"]), weights_of(models["cto"]))


@pytest.mark.parametrize("plays_alone", [False, True])
def test_sharded_adapters_play_on_vllm_without_a_copy_of_the_base(
    plays_alone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = (*SMALL, "model.adapter=lora", "engine.name=vllm")
    run = Run.create(tmp_path / "adapted", load_config(None, settings))
    lora = LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
    models: Any = dict.fromkeys(ROLES, get_peft_model(small_model(), lora, adapter_name="cto"))
    monkeypatch.setattr("training.stages.rl.shard_model", lambda model, **options: None)
    policies = prepare_policies(
        run,
        models,
        change(memory__sharding="fsdp2"),
        Ranks(rank=0, size=2),
        lambda: models,
        plays_alone=plays_alone,
    )
    for name, weight in policies["actors"]["cto"].named_parameters():
        assert weight.is_meta == (plays_alone and "lora_" not in name)
