"""The learner against TRL's GRPO step on the identical ragged batch, and five roles in one pass against five.

    python -m benchmarks.learner                  # SmolLM2-135M shapes, random weights, CPU, float32
    python -m benchmarks.learner --size tiny      # a model of seconds, to see that it works

Every side is a process of its own, so that memory is its own. Tokens per second count the tokens of the rows,
prompts included, once per row on either side, over the process's CPU seconds on one thread, which other work
on the machine hardly moves. Memory is how far the peak grows over what stood before. TRL's time leaves out
its rollout and scoring: forward, loss and backward only, on either side. Two ranks are timed by the clock.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from roles.registry import ROLES
from training.adapters import role_parameters
from training.config import MarlConfig
from training.distributed import join_ranks, leave_ranks
from training.estimators import centre
from training.learner import backward_role, backward_team
from training.rows import TrainingRow

SIZES = {  # hidden, layers, heads, key-value heads, intermediate, vocabulary; prompts; completions
    "smollm2": ((576, 30, 9, 3, 1536, 49_152), (256,), (12, 64)),
    "tiny": ((64, 2, 4, 2, 128, 2_000), (96,), (4, 24)),
}
GROUP_SIZE = 8
LEARNING = MarlConfig(max_completion_tokens=128, micro_batch_tokens=1_000_000)
OURS: dict[str, dict[str, Any]] = {
    "ours, packed": {"row_layout": "packed", "logit_rows": 256},
    "ours, shared prompt": {"row_layout": "shared_prompt", "logit_rows": 256},
}


def build_model(size: str) -> Any:
    """Random weights, the same in every process."""
    hidden, layers, heads, kv_heads, intermediate, vocabulary = SIZES[size][0]
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=hidden,
            intermediate_size=intermediate,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            tie_word_embeddings=True,
            pad_token_id=0,
        )
    )


def make_rows(size: str) -> list[TrainingRow]:
    """Groups of one prompt and ragged completions each, on policy as far as the learner is concerned."""
    _, prompts, (shortest, longest) = SIZES[size]
    generator = torch.Generator().manual_seed(1)
    vocabulary = SIZES[size][0][-1]
    rows = []
    for length in prompts:
        prompt = torch.randint(4, vocabulary, (length,), generator=generator).tolist()
        advantages = centre(torch.rand(GROUP_SIZE, generator=generator).tolist())
        for place, advantage in enumerate(advantages):
            own = shortest + (longest - shortest) * place // (GROUP_SIZE - 1)
            ids = (*prompt, *torch.randint(4, vocabulary, (own,), generator=generator).tolist())
            mask = (*[0] * length, *[1] * own)
            rows.append(
                TrainingRow(
                    role="cto",
                    token_ids=ids,
                    loss_mask=mask,
                    sampling_logprobs=(0.0,) * len(ids),
                    advantage=advantage,
                )
            )
    return rows


def read_memory(field: str) -> int:
    """VmRSS or VmHWM of this process, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise OSError(f"no {field} in /proc/self/status")


def measure(step: Callable[[], Any], repeats: int) -> dict[str, Any]:
    """Growth of the peak over the first step, median seconds of the later ones."""
    before = read_memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    step()
    growth = read_memory("VmHWM") - before
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        step()
        seconds.append(time.process_time() - start)
    return {"seconds": statistics.median(seconds), "growth": growth}


def run_ours(size: str, name: str, repeats: int, folder: Path) -> dict[str, Any]:
    """Forward, loss and backward of the learner; gradients are left in `folder`."""
    model, rows = build_model(size), make_rows(size)
    config = LEARNING.model_copy(update={**OURS[name], "importance": "token"})  # weight 1: as TRL on policy

    def step() -> None:
        model.zero_grad()
        backward_role(model, rows, config)

    rows = with_own_logprobs(model, rows)
    found = measure(step, repeats)
    save_gradients(model, folder / "ours.pt")
    return found


def with_own_logprobs(model: Any, rows: list[TrainingRow]) -> list[TrainingRow]:
    """Rows whose sampling logprobs are the model's own."""
    made = []
    for row in rows:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([row.token_ids]), logits_to_keep=row.num_own + 1).logits[
                0, :-1
            ]
        own = torch.log_softmax(logits.float(), -1).gather(
            1, torch.tensor(row.token_ids[row.num_prompt :])[:, None]
        )
        values = (*[0.0] * row.num_prompt, *own[:, 0].tolist())
        made.append(replace(row, sampling_logprobs=values))
    return made


def save_gradients(model: Any, path: Path) -> None:
    torch.save({name: p.grad for name, p in model.named_parameters() if p.grad is not None}, path)


def run_trl(size: str, rows_per_forward: int, repeats: int, folder: Path) -> dict[str, Any]:
    """TRL's own trainer on the same rows; so many of them per forward pass."""
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    from tiny_models import tiny_tokenizer

    model, rows = build_model(size), make_rows(size)
    rewards = [row.advantage for row in rows]  # their group means are 0
    times: list[float] = []
    growth: list[int] = []

    class Timed(GRPOTrainer):
        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            if not times or times[-1] > 0:
                times.append(-time.process_time())
                if not growth:
                    growth.append(-read_memory("VmRSS"))
                    Path("/proc/self/clear_refs").write_text("5")
            return super().compute_loss(*args, **kwargs)

    class Watch(TrainerCallback):
        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            times[-1] += time.process_time()
            if len(growth) == 1:
                growth[0] += read_memory("VmHWM")
                growth.append(0)
            if state.global_step == 0:
                save_gradients(kwargs["model"], folder / "trl.pt")

    def rollout(prompts: list[str], trainer: Any) -> dict[str, list[Any]]:
        return {
            "prompt_ids": [list(row.token_ids[: row.num_prompt]) for row in rows],
            "completion_ids": [list(row.token_ids[row.num_prompt :]) for row in rows],
            "logprobs": [[0.0] * row.num_own for row in rows],
            "verdict": rewards,
        }

    def verdict_reward(completions: list[Any], verdict: list[float], **kwargs: Any) -> list[float | None]:
        return list(verdict)

    trainer = Timed(
        model=model,
        reward_funcs=[verdict_reward],
        args=GRPOConfig(
            output_dir=str(folder),
            max_steps=1 + repeats,
            per_device_train_batch_size=rows_per_forward,
            gradient_accumulation_steps=len(rows) // rows_per_forward,
            num_generations=GROUP_SIZE,
            max_completion_length=128,
            learning_rate=1e-12,
            beta=0.0,
            loss_type="dapo",
            scale_rewards="none",
            max_grad_norm=0.0,
            gradient_checkpointing=False,
            shuffle_dataset=False,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            bf16=False,
            dataloader_pin_memory=False,
        ),
        train_dataset=Dataset.from_dict({"prompt": [str(n) for n in range(len(rows) // GROUP_SIZE)]}),
        processing_class=tiny_tokenizer(),
        rollout_func=rollout,
        callbacks=[Watch()],
    )
    trainer.train()
    return {"seconds": statistics.median(times[1:]), "growth": growth[0]}


def run_roles(size: str, way: str, repeats: int) -> dict[str, Any]:
    """Five LoRA adapters on one base: one pass over all roles' rows, or a pass for each role."""
    from peft import LoraConfig, get_peft_model

    lora = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    names = list(ROLES)
    model: Any = get_peft_model(build_model(size), lora, adapter_name=names[0])
    for role in names[1:]:
        model.add_adapter(role, lora)
    rows = {role: short_rows(size, role, number) for number, role in enumerate(names)}
    layout = "padded" if way == "five passes, padded" else "shared_prompt"
    config = LEARNING.model_copy(update={"row_layout": layout, "logit_rows": 256, "importance": "token"})

    def step() -> None:
        model.zero_grad()
        if way == "one pass":
            backward_team(model, rows, config)
        else:
            for of_role in rows.values():
                backward_role(model, of_role, config)

    found = measure(step, repeats)
    found["tokens"] = sum(len(row.token_ids) for of_role in rows.values() for row in of_role)
    return found


def short_rows(size: str, role: str, number: int) -> list[TrainingRow]:
    """What a team step is made of: a short brief, four short reports on it."""
    generator = torch.Generator().manual_seed(number)
    vocabulary = SIZES[size][0][-1]
    prompt = torch.randint(4, vocabulary, (24,), generator=generator).tolist()
    rows = []
    for place in range(4):
        ids = (*prompt, *torch.randint(4, vocabulary, (6 + 2 * place,), generator=generator).tolist())
        mask = (*[0] * 24, *[1] * (len(ids) - 24))
        rows.append(
            TrainingRow(
                role=role,
                token_ids=ids,
                loss_mask=mask,
                sampling_logprobs=(-10.0,) * len(ids),
                advantage=0.5 - place / 3,
            )
        )
    return rows


def run_ranks(size: str, repeats: int) -> dict[str, Any]:
    """Seconds of a team step of four groups per role, divided over the ranks that torchrun started."""
    from peft import LoraConfig, get_peft_model

    ranks = join_ranks()
    lora = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    names = list(ROLES)
    model: Any = get_peft_model(build_model(size), lora, adapter_name=names[0])
    for role in names[1:]:
        model.add_adapter(role, lora)
    groups = {
        role: [short_rows(size, role, 10 * number + group) for group in range(4)]
        for number, role in enumerate(names)
    }
    rows = {
        role: [row for group in ranks.shard(of_role)[0] for row in group] for role, of_role in groups.items()
    }
    config = LEARNING.model_copy(
        update={"row_layout": "shared_prompt", "logit_rows": 256, "importance": "token"}
    )
    seconds = []
    for _ in range(1 + repeats):
        model.zero_grad()
        ranks.wait()
        start = time.perf_counter()
        backward_team(model, rows, config)
        for role in names:
            ranks.add_gradients(role_parameters(model, role), has_gradient=True)
        seconds.append(time.perf_counter() - start)
    found = {"seconds": statistics.median(seconds[1:]), "rank": ranks.rank}
    leave_ranks(ranks)
    return found


def run_sync(size: str) -> dict[str, Any]:
    """Milliseconds to bring a step's weights into a second copy: an adapter of rank 16, or all."""
    from peft import LoraConfig, get_peft_model

    from training.adapters import named_role_parameters
    from training.marl import load_role_weights

    lora = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    found = {}
    for name, make in (
        ("adapter", lambda: get_peft_model(build_model(size), lora, adapter_name="cto")),
        ("all weights", lambda: build_model(size)),
    ):
        model, actor = make(), make()
        seconds = []
        for _ in range(5):
            start = time.perf_counter()
            weights = {key: p.detach() for key, p in named_role_parameters(model, "cto")}
            load_role_weights(actor, "cto", weights)
            seconds.append(time.perf_counter() - start)
        found[name] = 1e3 * statistics.median(seconds)
    return found


def largest_gap(folder: Path) -> tuple[float, float]:
    """(largest difference of a gradient from TRL's, largest gradient)."""
    ours, theirs = (torch.load(folder / name, weights_only=True) for name in ("ours.pt", "trl.pt"))
    gaps = [float((ours[name] - gradient).abs().max()) for name, gradient in theirs.items()]
    return max(gaps), max(float(gradient.abs().max()) for gradient in theirs.values())


def run_side(arguments: list[str], threads: int, ranks: int = 1) -> dict[str, Any]:
    """One side in a process of its own, or in several."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    done = subprocess.run(
        [sys.executable, *(launcher if ranks > 1 else []), "-m", "benchmarks.learner", *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": str(threads)},
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def compare(size: str, repeats: int, threads: int, per_forward: Sequence[int]) -> None:
    """All sides one after the other, as a table; both ratios are to the first of TRL."""
    rows = make_rows(size)
    tokens = sum(len(row.token_ids) for row in rows)
    print(f"{len(rows)} rows, {tokens} tokens, {size}, float32, {threads} threads\n")
    print("| step | tokens/s | times TRL's | peak growth (MiB) | TRL's over it | largest gradient gap |")
    print("|---|---:|---:|---:|---:|---:|")
    common = ["--size", size, "--repeats", str(repeats)]
    with tempfile.TemporaryDirectory(prefix="emads-") as scratch:
        found = {}
        for count in per_forward:
            side = ["--side", "trl", "--rows", str(count), "--folder", scratch]
            found[f"TRL, {count} rows per forward"] = run_side([*common, *side], threads)
        base = found[f"TRL, {per_forward[0]} rows per forward"]
        for name in OURS:
            found[name] = run_side([*common, "--side", name, "--folder", scratch], threads)
            found[name]["gap"], largest = largest_gap(Path(scratch))
    for name, one in found.items():
        gap = f"{one['gap']:.1e} of {largest:.1e}" if "gap" in one else ""
        print(
            f"| {name} | {tokens / one['seconds']:.0f} | {base['seconds'] / one['seconds']:.2f} |"
            f" {one['growth'] / 2**20:.0f} | {base['growth'] / one['growth']:.2f} | {gap} |"
        )


def compare_roles(size: str, repeats: int, threads: int) -> None:
    """Five roles' adapters in one pass against five passes; what their sync costs."""
    common = ["--size", size, "--repeats", str(repeats)]
    ways = ("five passes, padded", "five passes", "one pass")
    found = {way: run_side([*common, "--side", f"roles:{way}"], threads) for way in ways}
    print(f"\n| five roles, {size} | tokens/s | against padded passes | peak growth (MiB) |")
    print("|---|---:|---:|---:|")
    for way, one in found.items():
        speed, ratio = one["tokens"] / one["seconds"], found[ways[0]]["seconds"] / one["seconds"]
        print(f"| {way} | {speed:.0f} | {ratio:.2f} | {one['growth'] / 2**20:.0f} |")
    sync = run_side([*common, "--side", "sync"], threads)
    print("\nSync into a second copy: " + ", ".join(f"{name} {ms:.1f} ms" for name, ms in sync.items()))


def compare_ranks(size: str, repeats: int, threads: int) -> None:
    """One process against two, each on one thread."""
    common = ["--size", size, "--repeats", str(repeats), "--side", "ranks"]
    one, two = (run_side(common, threads, ranks)["seconds"] for ranks in (1, 2))
    print(f"\nTeam step, {size}: {one:.2f} s on one rank, {two:.2f} s on two: {one / two:.2f} times as fast")


PARTS = ("trl", "roles", "ranks")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=SIZES, default="smollm2")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--trl-rows", type=int, action="append", help="rows per forward pass of TRL")
    parser.add_argument("--side", help="(internal) one side only, as JSON")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    if options.side is None:
        parts, sizes = options.part or PARTS, (options.size, options.repeats, options.threads)
        if "trl" in parts:
            compare(*sizes, options.trl_rows or [GROUP_SIZE, GROUP_SIZE // 4])
        if "roles" in parts:
            compare_roles(*sizes)
        if "ranks" in parts:
            compare_ranks(*sizes)
    elif options.side == "trl":
        print(json.dumps(run_trl(options.size, options.rows, options.repeats, options.folder)))
    elif options.side == "sync":
        print(json.dumps(run_sync(options.size)))
    elif options.side == "ranks":
        print(json.dumps(run_ranks(options.size, options.repeats)))
    elif options.side.startswith("roles:"):
        print(json.dumps(run_roles(options.size, options.side.removeprefix("roles:"), options.repeats)))
    else:
        print(json.dumps(run_ours(options.size, options.side, options.repeats, options.folder)))


if __name__ == "__main__":
    main()
