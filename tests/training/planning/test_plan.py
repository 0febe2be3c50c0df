"""Plans against numbers worked out by hand, and real parameter counts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_models import SMALL, small_model

from emads.cli import main
from roles.errors import UserError
from training.config.loading import load_config
from training.config.model_config import ModelConfig
from training.config.run_config import RunConfig
from training.models.shapes import SHAPES, Shape, find_shape
from training.planning import (
    DEVICES,
    JOINT,
    TURN_READ,
    TURN_SAMPLED,
    Device,
    Workload,
    activation_bytes,
    estimate_memory,
    estimate_time,
    host_memory,
    joint_memory,
    list_phases,
    sampling_bytes,
    show_plan,
    stated_workload,
    training_flops_per_token,
    working_bytes,
)

# 2 layers: queries 8x8, keys and values 8x4 each, output 8x8, three feed-forward maps 8x16: 576 per layer
BY_HAND = Shape(hidden=8, layers=2, heads=2, kv_heads=1, head_size=4, inner=16, vocab=100, is_tied=True)
PHASE = Workload(name="SFT", trained=1000.0, read=400.0, sampled=200.0, batch=10.0, row=30.0, step_rows=4.0)
UNIT = Device(
    name="unit",
    flops=1e6,
    bandwidth=1e5,
    memory=1e9,
    training_share=0.5,
    reading_share=0.5,
    sampling_share=0.5,
)


def test_sizes_by_hand() -> None:
    assert BY_HAND.num_parameters == 100 * 8 + 2 * 576
    assert BY_HAND.num_working == BY_HAND.num_parameters
    untied = Shape(hidden=8, layers=2, heads=2, kv_heads=1, head_size=4, inner=16, vocab=100, is_tied=False)
    assert (untied.num_parameters, untied.num_working) == (2 * 800 + 1152, 800 + 1152)
    assert BY_HAND.cache_bytes(2) == 2 * 2 * 4 * 2
    assert BY_HAND.lora_parameters(2) == 2 * 2 * (16 + 12 + 12 + 16 + 24 + 24 + 24)
    layer = 2 * 4 * 8 + 2 * (2 * 8 + 2 * 8 + 2 * 4 + 4 * 16)  # norms' inputs take 4 bytes, the rest 2
    assert activation_bytes(BY_HAND, 2, checkpointing=False) == 2 * layer
    assert activation_bytes(BY_HAND, 2, checkpointing=True) == 2 * 2 * 8
    again = 10 * (layer + 2 * (16 + 2 * 8))
    assert working_bytes(BY_HAND, 2, 10, 700.0, checkpointing=False) == 700
    assert working_bytes(BY_HAND, 2, 10, 700.0, checkpointing=True) == again > 700
    assert working_bytes(BY_HAND, 2, 10, 1e6, checkpointing=True) == 1e6


def test_the_tiny_model_has_as_many_parameters_as_planned() -> None:
    model = small_model()
    config = SMALL.model_copy(update={"vocab_size": model.config.vocab_size})
    real = sum(parameter.numel() for parameter in model.parameters())
    assert find_shape(config).num_parameters == pytest.approx(real, rel=0.01)  # norms are left out


@pytest.mark.parametrize(
    ("preset", "millions"),
    [
        ("smollm2-135m", 134.5),
        ("qwen2.5-0.5b", 494),
        ("qwen2.5-1.5b", 1544),
        ("qwen2.5-3b", 3086),
        ("qwen2.5-7b", 7616),
    ],
)
def test_presets_have_their_published_sizes(preset: str, millions: float) -> None:
    assert SHAPES[preset].num_parameters == pytest.approx(millions * 1e6, rel=0.001)


def test_work_per_token_by_hand() -> None:
    full = RunConfig()
    lora = RunConfig(model=ModelConfig(adapter="lora"))
    saving = RunConfig(model=ModelConfig(adapter="lora", gradient_checkpointing=True))
    found = [
        training_flops_per_token(BY_HAND, config) / BY_HAND.num_working for config in (full, lora, saving)
    ]
    assert found == [6, 4, 6]


def test_time_by_hand() -> None:
    """N = 1952, 30 positions per row: attention 4 * 2 * 8 * 15 = 960 per token and forward pass."""
    found = estimate_time(BY_HAND, RunConfig(model=ModelConfig(preset="qwen2.5-3b")), PHASE, UNIT, ranks=1)
    learning = 1000 * (6 * 1952 + 3 * 960)
    reading = 400 * (2 * 1952 + 960)
    sampling = 200 * (2 * 1952 + 960)
    moved = 20 * 2 * 1952 + 200 * 30 * 32  # 20 steps of 10 transcripts; 32 bytes of cache per token
    assert found.compute_floor_s == pytest.approx((learning + reading + sampling) / 1e6)
    assert found.bandwidth_floor_s == pytest.approx(moved / 1e5)
    assert found.expected_s == pytest.approx(2 * (learning + reading) / 1e6 + 2 * moved / 1e5)
    assert sampling_bytes(BY_HAND, PHASE, RunConfig(model=ModelConfig(preset="qwen2.5-3b"))) == moved


def test_the_embedded_engine_samples_at_the_share_that_was_measured() -> None:
    config = RunConfig(model=ModelConfig(preset="qwen2.5-3b"))
    served, embedded = (
        estimate_time(BY_HAND, config.changed(engine__name=name), PHASE, UNIT, ranks=1).expected_s
        for name in ("vllm", "transformers")
    )
    moved = sampling_bytes(BY_HAND, PHASE, config)
    assert embedded - served == pytest.approx(moved / 1e5 * (1 / UNIT.embedded_share - 1 / 0.5))


def test_memory_of_one_role_by_hand() -> None:
    """A role is trained on one GPU, however many ranks joint training has."""
    one, two = (estimate_memory(BY_HAND, RunConfig(), [PHASE], ranks) for ranks in (1, 2))
    assert (one.weights, one.gradients, one.optimizer) == (4 * 1952, 4 * 1952, 8 * 1952)
    assert one.activations == 4 * 30 * activation_bytes(BY_HAND, 4, checkpointing=False)
    assert one.working == 4 * 30 * 100 * 16
    assert one.cache == 10 * 1.25 * 30 * BY_HAND.cache_bytes(4)
    assert two == one


def test_joint_memory_by_hand_and_over_ranks() -> None:
    """Five models of full weights, one base and five adapters; sharded, each rank plays with whole copies."""
    full = RunConfig().changed(marl__memory__logit_rows=64)
    one = joint_memory(BY_HAND, full, 2)
    assert (one.weights, one.gradients, one.optimizer) == (5 * 4 * 1952, 5 * 4 * 1952, 5 * 8 * 1952)
    assert one.activations == 16_384 * activation_bytes(BY_HAND, 4, checkpointing=False)
    assert (one.working, one.players) == (64 * 100 * 12, 0)
    half = joint_memory(BY_HAND, full.changed(marl__memory__sharding="fsdp2"), 2)
    assert (half.gradients, half.optimizer) == (one.gradients / 2, one.optimizer / 2)
    assert half.players == one.weights
    gathered = 4 * (2 * 576 + 800)  # two layers, embeddings and head, while they are used
    assert half.weights == one.weights / 2 + gathered
    lora = RunConfig(model=ModelConfig(adapter="lora", dtype="bfloat16", lora_rank=2))
    frozen = joint_memory(BY_HAND, lora, 2)
    adapters = 5 * BY_HAND.lora_parameters(2)
    assert frozen.weights == 2 * 1952 + 4 * adapters  # one base, on every rank
    assert (frozen.gradients, frozen.optimizer) == (4 * adapters, 8 * adapters)
    spared = joint_memory(BY_HAND, lora.changed(model__gradient_checkpointing=True), 2)
    assert spared.activations < frozen.activations


def test_a_reference_is_counted_and_so_is_a_copy_in_bfloat16() -> None:
    """With adapters the reference is adapters alone; the base is there."""
    full = RunConfig().changed(marl__memory__logit_rows=64)
    lora = RunConfig(model=ModelConfig(adapter="lora", lora_rank=2))
    for config, kept in ((full, 5 * 4 * 1952), (lora, 5 * 4 * BY_HAND.lora_parameters(2))):
        with_kl = config.changed(marl__loss__kl_coefficient=0.1)
        found = joint_memory(BY_HAND, with_kl, 1).weights - joint_memory(BY_HAND, config, 1).weights
        assert found == kept
    cast = full.changed(marl__memory__bf16=True)
    assert joint_memory(BY_HAND, cast, 1).weights == joint_memory(BY_HAND, full, 1).weights + 2 * 1952


def test_vllm_in_the_process_takes_its_share_in_turn_with_the_learner() -> None:
    config = RunConfig().changed(engine={"name": "vllm", "vllm": {"gpu_memory_utilization": 0.5}})
    joint, learner = replace(PHASE, name=JOINT), joint_memory(BY_HAND, config, 1)
    in_turn = learner.activations + learner.working
    for device, cache in ((4 * in_turn, in_turn), (in_turn, 0.0)):
        found = estimate_memory(BY_HAND, config, [joint], 1, device_bytes=device)
        assert found.cache == pytest.approx(cache)
    ahead = config.changed(marl__max_staleness=1, marl__loss__importance="call")
    found = estimate_memory(BY_HAND, ahead, [joint], 1, device_bytes=in_turn)
    assert found.cache == pytest.approx(0.5 * in_turn)


def test_the_plan_is_of_the_phase_that_needs_most() -> None:
    config = RunConfig().changed(marl__memory__logit_rows=64)
    joint = replace(PHASE, name=JOINT)
    found = estimate_memory(BY_HAND, config, [PHASE, joint], 4)
    assert found.total == joint_memory(BY_HAND, config, 4).total + 10 / 4 * 1.25 * 30 * BY_HAND.cache_bytes(4)


HOSTS = {
    "rollouts__hosts": 2,
    "rollouts__block_size": 2,
    "marl__scenarios_per_step": 4,
    "marl__report_sets": 5,
}


def test_hosts_play_beside_the_ranks() -> None:
    """Two hosts with two cases each; the rank learns before, after or, one step ahead, meanwhile."""
    joint = replace(PHASE, name=JOINT, batch=20.0)
    embedded = RunConfig(model=ModelConfig(preset="qwen2.5-3b")).changed(engine__name="transformers")
    alone = embedded.changed(marl__memory__logit_rows=64)
    spread = alone.changed(**HOSTS)
    ahead = spread.changed(marl__max_staleness=1, marl__loss__importance="call")
    host = host_memory(BY_HAND, spread, joint)
    assert (host.weights, host.cache) == (5 * 4 * 1952, 2 * 5 * 1.25 * 30 * BY_HAND.cache_bytes(4))
    assert host.total == host.weights + host.cache
    assert estimate_memory(BY_HAND, spread, [joint], 1).cache == 0
    assert estimate_memory(BY_HAND, alone, [joint], 1).cache == 20 * 1.25 * 30 * BY_HAND.cache_bytes(4)
    learns_s = 2 * 1000 * (6 * 1952 + 3 * 960) / 1e6
    moved = 20 * 2 * 1952 + 200 * 30 * 32  # 20 steps of 10 transcripts
    plays_s = (2 * 400 * (2 * 1952 + 960) / 1e6 + 2 * moved / 1e5) / 2
    served = [one.changed(engine__name="vllm") for one in (spread, ahead)]
    times = [estimate_time(BY_HAND, config, joint, UNIT, ranks=1).expected_s for config in served]
    assert times == pytest.approx([learns_s + plays_s, max(learns_s, plays_s)])


def test_rollouts_that_run_ahead_keep_a_version_of_their_own_weights() -> None:
    """Of adapters alone: their base is the learner's. Hosts have it, so that the learner keeps none."""
    full = RunConfig().changed(marl__max_staleness=1, marl__loss__importance="call")
    lora = full.changed(model__adapter="lora", model__lora_rank=2)
    assert joint_memory(BY_HAND, full, 1).players == 5 * 4 * 1952
    assert joint_memory(BY_HAND, lora, 1).players == 5 * 4 * BY_HAND.lora_parameters(2)
    assert joint_memory(BY_HAND, lora.changed(**HOSTS), 1).players == 0


def test_the_plan_lists_hosts_and_pays_for_their_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["plan", "--config", "configs/schedules/tiny.yaml", "--device", "a100", "--price", "2"]
    hosts = ["--set", "rollouts.hosts=2", "--set", "rollouts.block_size=12"]
    assert main([*arguments, *hosts]) == 0
    assert "memory of each of 2 rollout hosts on 2 GPUs beside the ranks': 0." in capsys.readouterr().out


def test_roles_alone_take_as_many_ranks_as_there_are_roles() -> None:
    times = [estimate_time(BY_HAND, RunConfig(), PHASE, UNIT, ranks).expected_s for ranks in (1, 5, 8)]
    assert times[0] == pytest.approx(5 * times[1])
    assert times[1] == times[2]


def test_the_seed_workload_has_20000_turns_and_meets_its_floors() -> None:
    phase = stated_workload("500x8x5")
    assert phase.name == "epoch of 20,000 turns"
    assert (phase.read, phase.sampled) == (20_000 * TURN_READ, 20_000 * TURN_SAMPLED)
    assert phase.trained == phase.read + phase.sampled
    config = load_config(None, ["model.preset=qwen2.5-3b", "model.adapter=lora", "model.dtype=bfloat16"])
    times = {
        name: estimate_time(SHAPES["qwen2.5-3b"], config, phase, device, 1)
        for name, device in DEVICES.items()
    }
    for one in times.values():
        assert one.expected_s > one.compute_floor_s + one.bandwidth_floor_s
    assert times["a100"].expected_s > times["h100"].expected_s > times["h200"].expected_s


@pytest.mark.parametrize("text", ["", "500", "500x8", "0x8x5", "500x8x5x1", "-1x8x5", "500*8*5"])
def test_malformed_workloads_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="not of the form TASKSxROLLOUTSxTURNS"):
        stated_workload(text)


def test_phases_count_every_role_and_pass() -> None:
    config = load_config(None, ["sft.max_steps=10", "grpo.max_steps=4", "marl.max_steps=2"])
    sft, grpo, marl = list_phases(config)
    assert sft.trained == pytest.approx(5 * 10 * 16 * sft.row)
    assert grpo.sampled + grpo.read == pytest.approx(grpo.trained) == pytest.approx(5 * 4 * 64 * grpo.row)
    assert marl.trained == pytest.approx(2 * 24 * 4 * (4 + 2) * marl.row)
    twice = list_phases(load_config(None, ["sft.max_steps=20", "grpo.max_steps=8", "marl.max_steps=4"]))
    assert [b.trained / a.trained for a, b in zip((sft, grpo, marl), twice, strict=True)] == pytest.approx(
        [2] * 3
    )


def test_a_joint_step_holds_every_transcript_as_wide_as_the_widest() -> None:
    """Blocks of 16 cases and 8 report sets took 640 rows of 4,864 columns at 135M on an H100: 72 GB."""
    config = load_config(Path("configs/schedules/smollm2.yaml"), ["marl.scenarios_per_step=16"])
    marl = list_phases(config.changed(marl__report_sets=8, marl__decisions_per_set=2))[-1]
    assert marl.batch == 768
    assert marl.widest > marl.row
    paged = estimate_memory(SHAPES["smollm2-135m"], config, [marl], 1, device_bytes=80e9)
    embedded = config.changed(engine__name="transformers")
    held = estimate_memory(SHAPES["smollm2-135m"], embedded, [marl], 1, device_bytes=80e9)
    value = 4
    assert held.cache == 768 * 1.25 * marl.widest * SHAPES["smollm2-135m"].cache_bytes(value)
    assert paged.cache <= 0.4 * 80e9


GPU_CONFIGS = {
    "marl/1xa100": 1, "marl/4xa100": 4, "marl/8xa100": 8, "marl/2node": 16,
    "schedules/smollm2": 1, "schedules/qwen2.5-3b-a100": 1, "schedules/qwen2.5-7b-fsdp": 8,
    "one-gpu": 1,
}  # fmt: skip


@pytest.mark.parametrize(("name", "ranks"), GPU_CONFIGS.items())
def test_a_config_for_gpus_fits_them(name: str, ranks: int) -> None:
    assert set(GPU_CONFIGS) | {"schedules/tiny"} == {
        str(path.relative_to("configs").with_suffix(""))
        for folder in ("marl", "schedules")
        for path in Path("configs", folder).glob("*.yaml")
    } | {"one-gpu"}
    told = show_plan(load_config(Path(f"configs/{name}.yaml")), "a100", ranks, None, None)
    assert "does not fit" not in told, told


def test_unknown_sizes_and_devices_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match=r"use a preset \(tiny, smollm2-135m"):
        show_plan(load_config(None, ["model.preset=some/where"]), "a100", 1, None, None)
    assert main(["plan", "--device", "h20"]) == 2
    assert "did you mean 'h200'" in capsys.readouterr().err


def test_a_folder_tells_its_sizes(tmp_path: Path) -> None:
    sizes = {
        "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
        "head_dim": 4, "intermediate_size": 16, "vocab_size": 100, "tie_word_embeddings": True,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(sizes))
    assert find_shape(ModelConfig(preset=str(tmp_path))) == BY_HAND


def test_the_plan_shows_price_and_what_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    device = ["--device", "a100", "--price", "2", "--workload", "500x8x5"]
    arguments = ["plan", "--set", "model.preset=qwen2.5-7b", *device]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "7,615.3 M parameters, 1 x A100 80 GB" in shown
    assert "does not fit into 75 GiB, so it has no time and no price" in shown  # full weights with AdamW
    assert "expected" not in shown
    smaller = ("model.adapter=lora", "model.dtype=bfloat16", "model.gradient_checkpointing=true")
    assert main([*arguments, *(part for setting in smaller for part in ("--set", setting))]) == 0
    shown = capsys.readouterr().out
    assert "does not fit" not in shown
    assert float(shown.splitlines()[-2].split()[-1]) > 0


def test_every_pass_over_a_batch_counts() -> None:
    twice, once = (
        next(phase for phase in list_phases(load_config(None, settings)) if "GRPO" in phase.name)
        for settings in (("grpo.updates_per_batch=2",), ())
    )
    assert twice.trained == 2 * once.trained
    assert twice.sampled == once.sampled


def test_learning_from_a_quarter_of_each_group_trains_on_a_quarter_of_the_tokens() -> None:
    part, whole = (
        next(phase for phase in list_phases(load_config(None, settings)) if "GRPO" in phase.name)
        for settings in (("grpo.group_size=8", "grpo.trained_per_group=2"), ("grpo.group_size=8",))
    )
    assert part.trained == pytest.approx(whole.trained / 4)
    assert part.step_rows == whole.step_rows / 4
    assert (part.read, part.sampled) == (whole.read, whole.sampled)
