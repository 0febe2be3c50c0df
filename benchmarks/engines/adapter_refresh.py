"""vLLM alone: seconds to load new adapters."""

import argparse
import asyncio
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from benchmarks.engines.models import RANK, load_team, write_base
from benchmarks.engines.open_engines import open_engine, show
from benchmarks.engines.workloads import ROLES
from simulator.engines.base import CompletionRequest, Sampling
from simulator.engines.vllm.engine import VLLMEngine


def write_merged(team: Any, role: str, base: Path, folder: Path) -> Path:
    """A role's adapter merged into full weights, as a model folder; the team is as before."""
    folder.mkdir(exist_ok=True)
    shutil.copyfile(base / "config.json", folder / "config.json")
    team.set_adapter(role)
    team.merge_adapter([role])
    state = {
        key.removeprefix("base_model.model.").replace(".base_layer", ""): value
        for key, value in team.state_dict().items()
        if "lora_" not in key and "lm_head" not in key
    }
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    team.unmerge_adapter()
    return folder


def run_refresh(args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Five roles' new weights: adapters handed over, or merged into full weights and pushed."""
    base = write_base(args.shape, folder / "base")
    team = load_team(base)
    prompt = tuple(range(12, 60))
    ours = open_engine(base, team, seats=64)
    merged = VLLMEngine(None, end_id=None, options={"enable_lora": False})
    version = 0

    def check(engine: VLLMEngine, policy: str) -> int:
        """Both ways end in an engine that answers by the new weights."""
        request = CompletionRequest(
            policy=policy,
            session="s",
            prompt_ids=prompt,
            sampling=Sampling(temperature=0.0, max_completion_tokens=1),
        )
        return len(asyncio.run(engine.complete(request)).token_ids)

    def hand_over() -> None:
        nonlocal version
        version += 1
        for role in ROLES:
            ours.set_policy(role, team, version=f"{role}@{version}", adapter=role)

    def merge_and_push() -> None:
        for role in ROLES:
            merged.set_policy("one", write_merged(team, role, base, folder / "merged"), version=role)

    seconds: dict[str, list[float]] = {"adapters": [], "merged weights": []}
    for repeat in range(args.repeats + 1):
        for name, refresh in (("adapters", hand_over), ("merged weights", merge_and_push)):
            start = time.perf_counter()
            refresh()
            elapsed = time.perf_counter() - start
            made = [check(ours, role) for role in ROLES] if refresh is hand_over else [check(merged, "one")]
            assert all(made)  # both ways end in engines that answer
            if repeat:
                seconds[name].append(elapsed)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    ours.close()
    merged.close()
    return [show(f"refresh of five roles, {args.shape}, rank {RANK}", medians, None)]
