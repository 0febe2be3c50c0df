"""The learner at 1.5B and 3B shapes on one GPU, random weights: tokens/s, share of the matrix peak, memory.

    python -m benchmarks.gpu.learner --preset qwen2.5-1.5b

Base in bfloat16, five LoRA adapters in float32. `padded` is how TRL lays rows out: every row with a prompt of
its own, a pass per role. The peak is measured on this device by a bfloat16 product of 8192 x 8192 matrices.
"""

import argparse
import statistics
import time
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import Qwen2Config, Qwen2ForCausalLM

from roles.registry import ROLES
from training.config.marl_config import MarlConfig
from training.learner.learner import backward_role, backward_team
from training.learner.rows import TrainingRow
from training.planning.shapes import SHAPES

GROUP_SIZE, PROMPT, OWN = 8, 512, (32, 192)


def build_model(preset: str) -> Any:
    shape = SHAPES[preset]
    torch.manual_seed(0)
    with torch.device("cuda"):
        base = Qwen2ForCausalLM(
            Qwen2Config(
                vocab_size=shape.vocab,
                hidden_size=shape.hidden,
                intermediate_size=shape.inner,
                num_hidden_layers=shape.layers,
                num_attention_heads=shape.heads,
                num_key_value_heads=shape.kv_heads,
                tie_word_embeddings=shape.is_tied,
                dtype=torch.bfloat16,
            )
        )
        lora = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
        names = list(ROLES)
        model: Any = get_peft_model(base, lora, adapter_name=names[0])
        for role in names[1:]:
            model.add_adapter(role, lora)
    return model


def make_rows(vocabulary: int, groups: int) -> dict[str, list[TrainingRow]]:
    """So many groups per role, each of one long prompt and ragged completions."""
    generator = torch.Generator().manual_seed(0)
    rows: dict[str, list[TrainingRow]] = {role: [] for role in ROLES}
    for role in ROLES:
        for _ in range(groups):
            prompt = torch.randint(4, vocabulary, (PROMPT,), generator=generator).tolist()
            for place in range(GROUP_SIZE):
                own = OWN[0] + (OWN[1] - OWN[0]) * place // (GROUP_SIZE - 1)
                ids = (*prompt, *torch.randint(4, vocabulary, (own,), generator=generator).tolist())
                rows[role].append(
                    TrainingRow(
                        role=role,
                        token_ids=ids,
                        loss_mask=(*[0] * PROMPT, *[1] * own),
                        sampling_logprobs=(-10.0,) * len(ids),
                        advantage=0.5 - place / (GROUP_SIZE - 1),
                    )
                )
    return rows


def measure_peak() -> float:
    """Multiply-adds per second, times two, of a large bfloat16 product."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        a @ b
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(20):
        a @ b
    torch.cuda.synchronize()
    return 20 * 2 * 8192**3 / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", choices=list(SHAPES), default="qwen2.5-1.5b")
    parser.add_argument("--groups", type=int, default=2)
    parser.add_argument("--micro-batch-tokens", type=int, default=32_768)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("no CUDA device here; on a CPU: python -m benchmarks.learner.step")
    model, peak = build_model(options.preset), measure_peak()
    rows = make_rows(SHAPES[options.preset].vocab, options.groups)
    tokens = sum(len(row.token_ids) for of_role in rows.values() for row in of_role)
    weights = SHAPES[options.preset].num_working
    print(f"{options.preset}, {tokens} tokens, measured peak {peak / 1e12:.0f} TFLOP/s")
    print("| layout | tokens/s | computed | of peak | peak memory (GiB) |\n|---|---:|---:|---:|---:|")
    for layout in ("padded", "packed", "shared_prompt"):
        config = MarlConfig().changed(
            memory__row_layout=layout,
            memory__logit_rows=0 if layout == "padded" else 2048,
            memory__micro_batch_tokens=options.micro_batch_tokens,
            loss__importance="token",
        )

        def step(config: MarlConfig = config, padded: bool = layout == "padded") -> None:
            model.zero_grad()
            if padded:
                for of_role in rows.values():
                    backward_role(model, of_role, config)
            else:
                backward_team(model, rows, config)
            torch.cuda.synchronize()

        step()
        torch.cuda.reset_peak_memory_stats()
        seconds = []
        for _ in range(options.repeats):
            start = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - start)
        took = statistics.median(seconds)
        shared = len(rows) * options.groups * (GROUP_SIZE - 1) * PROMPT
        computed = tokens - (shared if layout == "shared_prompt" else 0)
        share = 4 * weights * computed / took / peak  # LoRA: forward, and gradients of activations only
        memory = torch.cuda.max_memory_allocated() / 2**30
        print(f"| {layout} | {tokens / took:.0f} | {computed / took:.0f} | {share:.0%} | {memory:.1f} |")


if __name__ == "__main__":
    main()
