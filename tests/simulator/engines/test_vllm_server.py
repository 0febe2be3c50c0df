"""The client against real `vllm serve` processes on the loopback: two replicas of the tiny preset."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from vllm_models import (
    END,
    NEEDS_VLLM,
    ROLES,
    complete,
    count_ties,
    load_adapters,
    make_adapter,
    make_base,
    make_prompts,
)

from roles.errors import InfrastructureError, UserError
from simulator.engines.vllm.options import CPU_DEFAULTS, DEFAULTS
from simulator.engines.vllm.server_client import VLLMServerEngine

pytestmark = NEEDS_VLLM
START_S = 600.0  # of one server; two cores may have more to do than this
SWITCHES = (
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING", "VLLM_NO_USAGE_STATS", "VLLM_DO_NOT_TRACK",
    "TORCHDYNAMO_DISABLE", "HF_HUB_OFFLINE",
)  # fmt: skip


def write_command(weights: Path, port: int) -> list[str]:
    """Return the command that starts a server as the client needs it.

    It runs vLLM's server module: the CPU build's own `vllm serve` stops because its package has another name.
    """
    chosen = {**DEFAULTS, **CPU_DEFAULTS, "logprobs_mode": "processed_logprobs", "generation_config": "vllm"}
    del chosen["disable_log_stats"], chosen["use_tqdm_on_load"]
    flags = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1"]
    flags += ["--model", str(weights), "--port", str(port), "--served-model-name", "base"]
    for key, value in chosen.items():
        name = key.replace("_", "-")
        is_switch = isinstance(value, bool)
        flags += [f"--{'' if value else 'no-'}{name}"] if is_switch else [f"--{name}", str(value)]
    return flags


class Server:
    """One `vllm serve` process."""

    def __init__(self, base: Path, log: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = log
        command = write_command(base, self.port)
        self.process = subprocess.Popen(
            command,
            stdout=log.open("w"),
            stderr=subprocess.STDOUT,
            env=os.environ | dict.fromkeys(SWITCHES, "1"),
            start_new_session=True,
        )

    def wait(self) -> None:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
                    if answer.status == 200:
                        return
            except (urllib.error.URLError, OSError):
                time.sleep(0.3)
        raise AssertionError(f"server did not start: {self.log.read_text()[-2000:]}")

    def stop(self, how: int = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, how)
            self.process.wait(60)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def servers(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    logs = tmp_path_factory.mktemp("logs")
    servers: list[Server] = []
    try:
        for place in range(2):  # one after the other: each takes all cores while it starts
            servers.append(Server(base, logs / f"{place}.log"))
            servers[-1].wait()
        yield servers
    finally:
        for server in servers:
            server.stop()


@pytest.fixture(scope="module")
def adapters(base: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("adapters")
    return {role: make_adapter(base, folder / role, seed) for seed, role in enumerate(ROLES)}


def test_two_replicas_answer_as_the_model_does_and_refresh_without_stale_keys(
    servers: list[Server], base: Path, adapters: dict[str, Path], tmp_path: Path
) -> None:
    engine = VLLMServerEngine([server.url for server in servers], end_id=END)
    newer = {role: make_adapter(base, tmp_path / role, 50 + seed) for seed, role in enumerate(ROLES)}
    talks = [(ROLES[i % 5], prompt) for i, prompt in enumerate(make_prompts(20))]
    texts = []
    for version, folders in enumerate((adapters, newer)):
        for role, folder in folders.items():
            engine.set_policy(role, folder, version=f"{role}@{version}")
        completions = asyncio.run(complete(engine, talks))
        model = load_adapters(base, folders)
        ties = 0
        for (role, prompt), completion in zip(talks, completions, strict=True):
            assert completion.policy_version == f"{role}@{version}"
            model.set_adapter(role)
            ties += count_ties(model, prompt, completion.token_ids, greedy(model, prompt, 16), adapter=role)
        assert ties <= 2
        texts.append([completion.token_ids for completion in completions])
    assert texts[0] != texts[1]
    engine.close()


def greedy(model: object, prompt: tuple[int, ...], tokens: int) -> tuple[int, ...]:
    """By plain forward passes."""
    from reliability.joint.scripted_models import next_token_logprobs

    ids = list(prompt)
    while len(ids) < len(prompt) + tokens:
        ids.append(int(next_token_logprobs(model, tuple(ids))[-1].argmax()))
        if ids[-1] == END:
            break
    return tuple(ids[len(prompt) :])


def test_faults_have_names(servers: list[Server], tmp_path: Path) -> None:
    engine = VLLMServerEngine([servers[0].url], end_id=END)
    engine.set_policy("cto", None, version="cto@0")
    for policy, prompt, match in [
        ("cfo", (5, 6), "no policy 'cfo'"),
        ("cto", (5,) * 2000, r"answers 400.*1024"),
        ("cto", (5, 100_000), r"answers 4\d\d|answers 5\d\d"),
    ]:
        with pytest.raises(InfrastructureError, match=match):
            asyncio.run(complete(engine, [(policy, prompt)]))
    with pytest.raises(InfrastructureError, match="none"):
        engine.set_policy("cto", tmp_path / "none", version="cto@1")
    with pytest.raises(UserError, match="full weights"):
        engine.set_policy("cto", object(), version="cto@1")
    assert asyncio.run(complete(engine, [("cto", (5, 6))]))[0].policy_version == "cto@0"
    engine.close()


def test_a_server_that_is_not_there_fails_in_bounded_time() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    engine = VLLMServerEngine([url], end_id=END)
    engine._model = "base"
    engine.set_policy("cto", None, version="cto@0")
    start = time.monotonic()
    with pytest.raises(InfrastructureError, match="no completion after 3 attempts"):
        asyncio.run(complete(engine, [("cto", (5, 6))]))
    assert time.monotonic() - start < 30
    engine.close()


def test_a_killed_replica_costs_nothing_but_time(servers: list[Server], adapters: dict[str, Path]) -> None:
    engine = VLLMServerEngine([server.url for server in servers], end_id=None)
    for role, folder in adapters.items():
        engine.set_policy(role, folder, version="0")
    talks = [(ROLES[i % 5], prompt) for i, prompt in enumerate(make_prompts(30, seed=8))]
    before = asyncio.run(complete(engine, talks, tokens=32))

    async def play() -> list[tuple[int, ...]]:
        calls = asyncio.ensure_future(complete(engine, talks, tokens=32))
        await asyncio.sleep(0.1)
        servers[1].stop(signal.SIGKILL)
        return [completion.token_ids for completion in await calls]

    after = asyncio.run(asyncio.wait_for(play(), 120))
    same = sum(one == other.token_ids for one, other in zip(after, before, strict=True))
    assert same >= len(talks) - 2  # but for ties
    engine.close()
