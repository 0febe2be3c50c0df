"""What goes wrong with a real vLLM engine has a name, costs the calls concerned only, and hangs nothing."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import tiny_chat
from vllm_models import END, NEEDS_VLLM, ROLES, complete, list_adapters, make_adapter, make_base, make_prompts

from roles.errors import InfrastructureError, UserError
from simulator.engines.base import Completion, CompletionRequest, Sampling
from simulator.engines.vllm.adapters import WEIGHTS
from simulator.engines.vllm.engine import VLLMEngine
from simulator.graph.runner import play_episodes
from training.config.run_config import DataConfig
from training.data.demonstrations import team_scenario

pytestmark = NEEDS_VLLM
PATIENCE_S = 120.0  # far more than anything here may take: a hang fails instead of lasting


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def adapter(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_adapter(base, tmp_path_factory.mktemp("adapter") / "cto", 1)


@pytest.fixture(scope="module")
def engine(base: Path, adapter: Path) -> Iterator[VLLMEngine]:
    engine = VLLMEngine(base, end_id=END)
    engine.set_policy("cto", adapter, version="cto@0")
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def endless(base: Path) -> Iterator[VLLMEngine]:
    """Every completion has the length that was asked for."""
    engine = VLLMEngine(base, end_id=None)
    engine.set_policy("cto", None, version="cto@0")
    engine.start()
    yield engine
    engine.close()


def ask(engine: VLLMEngine, prompt: tuple[int, ...], *, policy: str = "cto", tokens: int = 8) -> Completion:
    (completion,) = asyncio.run(
        asyncio.wait_for(complete(engine, [(policy, prompt)], tokens=tokens), PATIENCE_S)
    )
    return completion


def check_alive(engine: VLLMEngine) -> None:
    """The engine goes on serving, and by the version it had."""
    assert ask(engine, make_prompts(1)[0]).policy_version == "cto@0"


def test_bad_prompts_are_refused_by_name_and_the_engine_lives(engine: VLLMEngine) -> None:
    for prompt, match in [
        ((5,) * 1024, "prompt of 1024 tokens: the engine takes 1023"),
        ((5, 100_000), "ids must lie in 0.."),
        ((5, -1), "ids must lie in 0.."),
        ((), "prompt of 0 tokens"),
    ]:
        with pytest.raises(InfrastructureError, match=match):
            ask(engine, prompt)
    check_alive(engine)


def test_a_context_that_fills_up_is_no_fault_of_the_policy(endless: VLLMEngine) -> None:
    with pytest.raises(InfrastructureError, match="context full: 1000"):
        ask(endless, (5,) * 1000, tokens=100)


def test_unknown_policies_and_missing_or_damaged_adapters_have_names(
    engine: VLLMEngine, base: Path, adapter: Path, tmp_path: Path
) -> None:
    with pytest.raises(InfrastructureError, match="no policy 'cfo'"):
        ask(engine, (5, 6), policy="cfo")
    with pytest.raises(FileNotFoundError):
        (tmp_path / "none" / WEIGHTS).read_bytes()
    with pytest.raises(InfrastructureError, match="none"):
        engine.set_policy("cto", tmp_path / "none", version="cto@1")
    cut = make_adapter(base, tmp_path / "cut", 2)
    content = (cut / WEIGHTS).read_bytes()
    (cut / WEIGHTS).write_bytes(content[: len(content) // 2])
    with pytest.raises(InfrastructureError, match=r"adapter .*cut is damaged"):
        engine.set_policy("cto", cut, version="cto@1")
    nan = make_adapter(base, tmp_path / "nan", 3)
    tensors = {key: value.clone() for key, value in load_file(nan / WEIGHTS).items()}  # off the file
    next(iter(tensors.values()))[0, 0] = torch.nan
    save_file(tensors, nan / WEIGHTS, metadata={"format": "pt"})
    with pytest.raises(InfrastructureError, match="is not finite"):
        engine.set_policy("cto", nan, version="cto@1")
    wide = make_adapter(base, tmp_path / "wide", 4, rank=32)
    with pytest.raises(UserError, match=r"rank 32, the engine takes 16; set engine.vllm.max_lora_rank to 32"):
        engine.set_policy("cto", wide, version="cto@1")
    odd = make_adapter(base, tmp_path / "odd", 5)  # sound as a file, but of another shape than the base
    tensors = {key: value.repeat(1, 2) for key, value in load_file(odd / WEIGHTS).items()}
    save_file(tensors, odd / WEIGHTS, metadata={"format": "pt"})
    with pytest.raises(InfrastructureError, match="cannot load adapter"):
        engine.set_policy("cto", odd, version="cto@1")
    assert len(list_adapters(engine)) <= 2
    check_alive(engine)


def test_a_log_probability_that_is_not_finite_is_a_failure(
    engine: VLLMEngine, base: Path, tmp_path: Path
) -> None:
    huge = make_adapter(base, tmp_path / "huge", 6)
    tensors = {key: torch.full_like(value, 1e30) for key, value in load_file(huge / WEIGHTS).items()}
    save_file(tensors, huge / WEIGHTS, metadata={"format": "pt"})
    engine.set_policy("risk", huge, version="risk@0")
    with pytest.raises(InfrastructureError, match="not finite"):
        ask(engine, make_prompts(1)[0], policy="risk")
    check_alive(engine)


def test_a_cancelled_call_leaves_the_batch(endless: VLLMEngine) -> None:
    async def run() -> tuple[float, float]:
        start = time.monotonic()
        await complete(endless, [("cto", (5,) * 20)], tokens=900)
        whole_s = time.monotonic() - start
        calls = asyncio.ensure_future(complete(endless, [("cto", (6,) * 20)] * 50, tokens=900))
        await asyncio.sleep(0.2)
        calls.cancel()
        start = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await calls
        while endless.num_in_flight:
            await asyncio.sleep(0.01)
        return whole_s, time.monotonic() - start

    whole_s, released_s = asyncio.run(asyncio.wait_for(run(), PATIENCE_S))
    assert released_s < whole_s
    check_alive(endless)


def test_calls_that_take_too_long_fail_by_name(endless: VLLMEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endless, "_request_timeout_s", 0.3)
    with pytest.raises(InfrastructureError, match=r"no completion of cto within 0.3 s"):
        ask(endless, (5,) * 20, tokens=1000)
    while endless.num_in_flight:
        time.sleep(0.01)


@pytest.mark.parametrize("name", ["EngineCore", "Worker"])
def test_a_killed_process_fails_the_calls_in_flight_and_is_started_again(
    base: Path, adapter: Path, name: str
) -> None:
    others = {pid for pid, _ in list_children()}  # of engines that other tests share
    engine = VLLMEngine(base, end_id=END, max_restarts=1)
    for role in ROLES:
        engine.set_policy(role, adapter, version=f"{role}@0")
    before = ask(engine, make_prompts(1)[0]).token_ids
    cases = [team_scenario(DataConfig(), "train", index, (1, 2)) for index in range(8)]

    async def play() -> list[str | None]:
        episodes = asyncio.ensure_future(
            play_episodes(
                cases,
                {role: role for role in ROLES},
                engine,
                tiny_chat(),
                Sampling(temperature=1.0, max_completion_tokens=900),
            )
        )
        while not engine.num_in_flight:
            await asyncio.sleep(0.01)
        (killed,) = [pid for pid, title in list_children() if name in title and pid not in others]
        os.kill(killed, signal.SIGKILL)
        return [episode.error for episode in await episodes]

    errors = asyncio.run(asyncio.wait_for(play(), PATIENCE_S))
    assert any(error and "the vLLM engine process died" in error for error in errors), errors
    assert ask(engine, make_prompts(1)[0]).token_ids == before  # a new process, the same adapter
    for pid, title in list_children():
        if "EngineCore" in title and pid not in others:
            os.kill(pid, signal.SIGKILL)
    time.sleep(2.0)
    for _ in range(2):
        with pytest.raises(InfrastructureError, match="died"):
            ask(engine, make_prompts(1)[0])
    engine.close()
    deadline = time.monotonic() + PATIENCE_S
    while {pid for pid, title in list_children() if "VLLM" in title} - others:  # nobody outlives the engine
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_options_that_vllm_does_not_know_are_refused_before_anything_starts(base: Path) -> None:
    with pytest.raises(
        UserError, match=r"unknown engine.vllm key 'max_modl_len'; did you mean 'max_model_len'"
    ):
        VLLMEngine(base, end_id=END, options={"max_modl_len": 5})
    with pytest.raises(UserError, match=r"engine.vllm.logprobs_mode cannot be set"):
        VLLMEngine(base, end_id=END, options={"logprobs_mode": "raw_logprobs"})
    engine = VLLMEngine(base, end_id=END, options={"dtype": "float3"})
    engine_with_text = VLLMEngine(base, end_id=END, options={"max_model_len": 1_000_000})
    for one in (engine, engine_with_text):
        with pytest.raises(UserError, match=r"vLLM refuses engine.vllm"):
            one.start()
        one.close()


def test_files_in_memory_are_gone_after_close(base: Path, adapter: Path) -> None:
    engine = VLLMEngine(base, end_id=END)
    root = engine.store.root
    engine.store.put(adapter)
    assert json.loads(next(root.glob("*/adapter_config.json")).read_text())["peft_type"] == "LORA"
    engine.close()
    assert not root.exists()
    with pytest.raises(RuntimeError, match="was closed"):
        asyncio.run(engine.complete(request()))


def request() -> CompletionRequest:
    return CompletionRequest(policy="cto", session="s", prompt_ids=(5,), sampling=Sampling())


def list_children() -> list[tuple[int, str]]:
    """Process id and title of every descendant of this process."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended
            if fields[0] != "Z":
                parents[int(entry.name)] = int(fields[1])
    found, waiting = [], [os.getpid()]
    while waiting:
        parent = waiting.pop()
        for pid in [child for child, its_parent in parents.items() if its_parent == parent]:
            waiting.append(pid)
            found.append((pid, read_title(pid)))
    return found


def read_title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""
