"""Compares the device with the CPU: attention, gradients, samples against the learner."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from benchmarks.gpu.records import Record
from benchmarks.gpu.sizes import Scale, build_base, build_team, make_rows
from roles.registry import ROLES
from simulator.engines.base import CompletionRequest, Sampling
from simulator.engines.embedded.engine import TransformersEngine
from training.config.rl_config import MarlConfig
from training.learner.fsdp import join_ranks, shard_model, whole
from training.learner.learner import backward_team
from training.learner.row_attention import RowLayout, Segment, row_attention
from training.learner.rows import TrainingRow
from training.models.shapes import Shape

SMALL = Shape(hidden=256, layers=3, heads=8, kv_heads=2, head_size=32, inner=512, vocab=4096, is_tied=True)


def check_device(scale: Scale, record: Record) -> None:
    """A record for every comparison; errors are relative, of bfloat16 between 1e-3 and 1e-2."""
    for check in (
        check_attention,
        check_gradients,
        check_mismatch,
        check_groups,
        check_sharded,
        check_offloaded,
    ):
        try:
            record(check.__name__, **check(scale))
        except Exception as error:  # one that fails must not hide the others
            record(check.__name__, error=f"{type(error).__name__}: {error}"[:600])


def check_attention(scale: Scale) -> dict[str, float]:
    """The one kernel over all segments against a product per segment in float32: values and gradients."""
    segments = [
        Segment(0, 40),
        Segment(40, 57, ((0, 40),)),
        Segment(57, 90, ((0, 40),)),
        Segment(90, 130),
    ]
    generator = torch.Generator().manual_seed(0)
    shapes = ((8, 130, 64), (2, 130, 64), (2, 130, 64))
    inputs = [torch.randn(1, *shape, generator=generator) for shape in shapes]
    weight = torch.randn(1, 130, 8, 64, generator=generator)
    exact = _attend([one.clone() for one in inputs], weight, segments, "cpu", torch.float32)
    found = _attend([one.clone() for one in inputs], weight, segments, scale.device, scale.dtype)
    return {
        name: _error(a, b) for name, a, b in zip(("out", "query", "key", "value"), found, exact, strict=True)
    }


def _attend(
    inputs: list[Tensor], weight: Tensor, segments: list[Segment], device: str, dtype: torch.dtype
) -> list[Tensor]:
    query, key, value = (one.to(device, dtype).requires_grad_() for one in inputs)
    layout = RowLayout.of(segments, device)
    out, _ = row_attention(torch.nn.Identity(), query, key, value, None, layout=layout)
    (out.float() * weight.to(device)).sum().backward()  # type: ignore[no-untyped-call]
    return [one.detach().float().cpu() for one in (out, query.grad, key.grad, value.grad) if one is not None]


def check_gradients(scale: Scale) -> dict[str, float]:
    """Adapters' gradients of a team step against the CPU's in float32, with and without checkpoints."""
    rows = make_rows(SMALL, groups=1, prompt=24, own=(4, 20))
    exact = _gradients(Scale(device="cpu", dtype=torch.float32, is_toy=True), rows, "padded", False)
    return {
        f"{layout}{'_checkpointed' * checkpointing}": _error(
            _gradients(scale, rows, layout, checkpointing), exact
        )
        for layout in ("padded", "shared_prompt")
        for checkpointing in (False, True)
    }


def _gradients(scale: Scale, rows: dict[str, list[TrainingRow]], layout: str, checkpointing: bool) -> Tensor:
    cpu = Scale(device="cpu", dtype=torch.float32, is_toy=True)
    model = build_team(SMALL, scale, checkpointing=checkpointing)
    model.load_state_dict(build_team(SMALL, cpu, spread=0.02).state_dict())  # the same numbers on both
    model.train()
    config = MarlConfig().changed(memory__row_layout=layout, memory__logit_rows=64, loss__importance="token")
    backward_team(model, rows, config)
    found = [p.grad.float().cpu().flatten() for _, p in model.named_parameters() if p.grad is not None]
    return torch.cat(found)


def check_mismatch(scale: Scale) -> dict[str, float]:
    """The learner's log-probabilities against those that the engine sampled with, same weights."""
    model = build_team(SMALL, scale, spread=0.02)
    engine = TransformersEngine(end_id=None, seed=0)
    for role in ROLES:
        engine.set_policy(role, model, version=f"{role}@0")

    async def ask(role: str, number: int) -> TrainingRow:
        prompt = tuple(4 + (17 * number + place) % 4000 for place in range(20 + number))
        sampling = Sampling(temperature=1.0, max_completion_tokens=24)
        request = CompletionRequest(
            policy=role, session=f"{role}/{number}", prompt_ids=prompt, sampling=sampling
        )
        done = await engine.complete(request)
        return TrainingRow(
            role=role,
            token_ids=prompt + done.token_ids,
            loss_mask=(*[0] * len(prompt), *[1] * len(done.token_ids)),
            sampling_logprobs=(*[0.0] * len(prompt), *done.logprobs),
            advantage=1.0 if number % 2 else -1.0,
        )

    async def ask_all() -> list[TrainingRow]:
        return await asyncio.gather(*(ask(role, number) for role in ROLES for number in range(4)))

    rows = asyncio.run(ask_all())
    model.train()
    config = MarlConfig().changed(memory__row_layout="shared_prompt", loss__importance="token")
    stats = backward_team(model, {role: [r for r in rows if r.role == role] for role in ROLES}, config)
    gaps = [one.mismatch for one in stats.values()]
    return {
        "mean": sum(gap.mean for gap in gaps) / len(gaps),
        "largest": max(gap.largest for gap in gaps),
        "kl": sum(gap.kl for gap in gaps) / len(gaps),
    }


def check_groups(scale: Scale) -> dict[str, Any]:
    """The process group of `join_ranks` on one rank: sums on the CPU and on the device, and objects."""
    with _one_rank(29577):
        on_host, on_device = torch.ones(3, dtype=torch.float64), torch.ones(3, device=scale.device)
        dist.all_reduce(on_host)
        dist.all_reduce(on_device)
        gathered: list[Any] = [None]
        dist.all_gather_object(gathered, {"rank": 0})
        dist.barrier()
        return {
            "backend": str(dist.get_backend_config()),
            "sums": float(on_host.sum() + on_device.sum().cpu()),
        }


def check_sharded(scale: Scale) -> dict[str, float]:
    """Gradients of all weights of a model sharded by FSDP2 (over one rank) against the CPU's in float32."""
    return {"gradient": _sharded_error(scale, 29578, cpu_offload=False)}


def check_offloaded(scale: Scale) -> dict[str, float]:
    """The same where weights and optimizer rest on the host."""
    return {"gradient": _sharded_error(scale, 29579, cpu_offload=True)}


def _sharded_error(scale: Scale, port: int, *, cpu_offload: bool) -> float:
    rows = {"cto": make_rows(SMALL, groups=1, prompt=24, own=(4, 20))["cto"]}
    config = MarlConfig().changed(memory__row_layout="shared_prompt", memory__logit_rows=64)
    cpu = Scale(device="cpu", dtype=torch.float32, is_toy=True)
    exact = build_base(SMALL, cpu)
    backward_team(exact, rows, config)
    with _one_rank(port):
        model = build_base(SMALL, cpu).to(scale.device)
        shard_model(model, bf16=scale.device == "cuda", cpu_offload=cpu_offload)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-9)
        backward_team(model, rows, config)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
        optimizer.step()
        pairs = zip(model.parameters(), exact.parameters(), strict=True)
        grads = [(whole(one.grad).float().cpu(), other.grad) for one, other in pairs]
    found, known = (torch.cat([pair[side].flatten() for pair in grads]) for side in (0, 1))
    return _error(found, known)


@contextmanager
def _one_rank(port: int) -> Iterator[None]:
    """The process group of `join_ranks` with this process alone in it."""
    place = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    os.environ.update(place | {"MASTER_PORT": str(port)})
    join_ranks(timeout_s=60)
    try:
        yield
    finally:
        dist.destroy_process_group()


def _error(found: Tensor, exact: Tensor) -> float:
    return float((found - exact).norm() / exact.norm())
