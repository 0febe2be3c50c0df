"""How ranks join on GPUs, without one: a backend for either device, a GPU for every process, one base."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from device_rules import DeviceRules
from peft import LoraConfig, get_peft_model
from tiny_models import small_model

from roles.errors import UserError
from roles.registry import ROLES
from training.config.loading import load_config
from training.config.model_config import ModelConfig
from training.learner import fsdp
from training.learner.ranks import Ranks
from training.models import adapters, base_model
from training.rl.overlap import copy_models

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "x", "MASTER_PORT": "1"}


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """What a process of torchrun on a machine of two GPUs asks for."""
    asked: list[tuple[str, Any]] = []
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: asked.append(("device", device)))
    monkeypatch.setattr(
        torch.distributed,
        "init_process_group",
        lambda names, **kinds: asked.append((names, kinds["device_id"])),
    )
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    return asked


def test_counts_on_the_host_and_gradients_on_the_gpu_have_a_backend_each(
    joined: list[tuple[str, Any]],
) -> None:
    """nccl alone refuses the first sum of a step: counts of rows are CPU tensors."""
    assert fsdp.join_ranks() == Ranks(rank=1, size=2)
    device = torch.device("cuda", 1)
    assert joined == [("device", device), ("cpu:gloo,cuda:nccl", device)]


def test_a_packed_base_is_loaded_onto_the_gpu_of_its_rank(
    joined: list[tuple[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """QLoRA packs weights while they are loaded, so that they cannot move to the rank's GPU afterwards."""
    asked: list[Any] = []
    monkeypatch.setattr(
        torch.cuda, "current_device", lambda: dict(joined).get("device", torch.device("cuda", 0)).index
    )
    monkeypatch.setattr(adapters, "find_spec", lambda name: name)
    monkeypatch.setattr(base_model, "load_tokenizer", lambda path: None)
    monkeypatch.setattr(base_model, "load_model", lambda path, **options: asked.append(options["device_map"]))
    base_model.load_frozen_base(tmp_path, ModelConfig(adapter="qlora"))
    fsdp.join_ranks()
    base_model.load_frozen_base(tmp_path, ModelConfig(adapter="qlora"))
    assert asked == [{"": torch.device("cuda", 0)}, {"": torch.device("cuda", 1)}]


def test_a_packed_base_is_not_sharded() -> None:
    with pytest.raises(UserError, match="does not shard the 4-bit base"):
        load_config(None, ["model.adapter=qlora", "marl.memory.sharding=fsdp2"])


def test_a_process_without_a_gpu_is_told_how_many_there_are(
    joined: list[tuple[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(UserError, match="1 visible; use --nproc-per-node 1"):
        fsdp.join_ranks()
    assert joined == []


class StrictBackends:
    """Collectives that refuse a tensor of a device without a backend, and note what they were given."""

    def __init__(self, devices: set[str]) -> None:
        self.devices, self.seen = devices, []  # type: ignore[var-annotated]

    def all_reduce(self, tensor: torch.Tensor, op: Any = None) -> None:
        if tensor.device.type not in self.devices:
            raise RuntimeError(f"No backend type associated with device type {tensor.device.type}")
        self.seen.append((tensor.device.type, tuple(tensor.shape)))


@pytest.mark.parametrize("devices", [{"cpu", "meta"}, {"meta"}])
def test_a_step_sums_counts_on_the_host_and_all_gradients_at_once(
    devices: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradients on the meta device stand for those on a GPU; nccl alone takes no step."""
    backends = StrictBackends(devices)
    monkeypatch.setattr("training.learner.ranks.dist.all_reduce", backends.all_reduce)
    weights = [torch.nn.Parameter(torch.zeros(size, device="meta")) for size in (3, 5)]
    weights[0].grad = torch.zeros(3, device="meta")  # this rank had no rows for the other one
    unused = [torch.nn.Parameter(torch.zeros(7, device="meta"))]
    ranks = Ranks(rank=0, size=2)
    if "cpu" not in devices:
        with pytest.raises(RuntimeError, match="device type cpu"):
            ranks.add_gradients([weights, unused], [True, False])
        return
    assert ranks.add_gradients([weights, unused], [True, False]) == [True, False]
    assert backends.seen == [("cpu", (2,)), ("meta", (8,))]


def test_a_gradient_that_is_made_on_the_host_breaks_the_rules_of_gpus(tmp_path: Path) -> None:
    """`DeviceRules` lets counts pass on the host and refuses gradients there."""
    model, tokens = small_model(), torch.tensor([[3, 4, 5]])
    ranks, weights = Ranks(rank=0, size=2), list(model.parameters())
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        with DeviceRules([model]) as rules:
            model(input_ids=tokens).logits.sum().backward()
            ranks.add_gradients([weights], [True])
        assert [(name, device) for name, device, _ in rules.calls] == [
            ("allreduce_", "cpu"),
            ("allreduce_", "gpu"),
        ]
        broken = pytest.raises(RuntimeError, match="cat is given tensors on the GPU and on the host")
        with broken, DeviceRules([model]):
            model(input_ids=tokens).logits.sum().backward()
            weights[0].grad = torch.zeros(weights[0].shape)
            ranks.add_gradients([weights], [True])
    finally:
        torch.distributed.destroy_process_group()


def test_roles_on_one_base_play_with_one_copy_of_it() -> None:
    lora = LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
    model: Any = get_peft_model(small_model(), lora, adapter_name="cto")
    for role in list(ROLES)[1:]:
        model.add_adapter(role, lora)
    copies = copy_models(dict.fromkeys(ROLES, model))
    places = {one.get_input_embeddings().weight.data_ptr() for one in copies.values()}
    assert len(places) == 1
    assert places != {model.get_input_embeddings().weight.data_ptr()}


def test_what_exports_adapters_keeps_no_base() -> None:
    lora = LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
    model: Any = get_peft_model(small_model(), lora, adapter_name="cto")
    copied = dict(copy_models({"cto": model}, base="left_out")["cto"].named_parameters())
    for name, weight in model.named_parameters():
        assert copied[name].is_meta == ("lora_" not in name)
        assert copied[name].is_meta or torch.equal(copied[name], weight)
        assert copied[name].data_ptr() != weight.data_ptr()


def test_what_plays_ahead_has_adapters_of_its_own_on_the_learners_base() -> None:
    lora = LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
    model: Any = get_peft_model(small_model(), lora, adapter_name="cto")
    model.add_adapter("coo", lora)  # inactive, so frozen at this moment
    (copied,) = {
        id(one): one for one in copy_models({"cto": model, "coo": model}, base="shared").values()
    }.values()
    theirs = dict(copied.named_parameters())
    shared = {name for name, one in model.named_parameters() if one.data_ptr() == theirs[name].data_ptr()}
    assert shared == {name for name in theirs if "lora_" not in name}
    whole: Any = small_model()
    own = copy_models({"cto": whole}, base="shared")["cto"]  # without adapters everything is trained
    assert own.get_input_embeddings().weight.data_ptr() != whole.get_input_embeddings().weight.data_ptr()


ABORTS_WHEN_TORN_DOWN = """
import atexit, os, sys
from training.learner.ranks import end_process

class AsyncWork:  # what a thread of gloo does to a process that goes away
    def __del__(self, abort=os.abort):
        abort()

sys.modules["kept"] = AsyncWork()
atexit.register(print, "exit functions ran")
if sys.argv[1] == "end_process":
    end_process(3)
sys.exit(3)
"""


@pytest.mark.parametrize(
    ("way", "status", "said"),
    [("end_process", 3, "exit functions ran\n"), ("exit", -6, "exit functions ran\n")],
)
def test_a_rank_that_is_done_is_not_torn_down(way: str, status: int, said: str) -> None:
    done = subprocess.run([sys.executable, "-c", ABORTS_WHEN_TORN_DOWN, way], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (status, said)
