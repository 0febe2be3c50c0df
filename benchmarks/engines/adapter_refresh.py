"""vLLM alone: seconds to load new adapters, and prompt tokens computed by prompt layout."""

import argparse
import asyncio
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from benchmarks.engines.models import RANK, SHAPES, load_team, write_base
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


def run_prefix(args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Prompt tokens computed for joint episodes, with the roles' text first and with the case first.

    Every seat reads its mandate, the case (--prompt tokens that all seats share) and facts of its own,
    reports and votes in one transcript. With the case first, the mandates of all five roles stand before it
    and after the facts only which seat is asked; no option writes prompts so. All roles
    play on the base: different adapters share no keys.
    """
    base = write_base(args.shape, folder / "base")
    vocab = SHAPES[args.shape][0]
    generator = torch.Generator().manual_seed(0)

    def ids(length: int) -> tuple[int, ...]:
        return tuple(torch.randint(12, vocab, (length,), generator=generator).tolist())

    mandates = {role: ids(120) for role in ROLES}
    house = tuple(token for mandate in mandates.values() for token in mandate)
    seats = {role: ids(6) for role in ROLES[:4]}  # "You are Cost."
    cases = [(ids(args.prompt), {role: ids(60) for role in seats}) for _ in range(args.episodes)]
    found: list[dict[str, Any]] = []
    answers: dict[str, list[tuple[int, ...]]] = {}

    async def play(engine: VLLMEngine, layout: str, repeats: int) -> list[tuple[int, ...]]:
        async def seat(role: str, prompt: tuple[int, ...]) -> tuple[int, ...]:
            said: tuple[int, ...] = ()
            for length in (args.tokens, 6):  # the report, then the vote
                completion = await engine.complete(
                    CompletionRequest(
                        policy=role,
                        session="s",
                        prompt_ids=prompt,
                        sampling=Sampling(temperature=0.0, max_completion_tokens=length),
                    )
                )
                said += completion.token_ids
                prompt = (*prompt, *completion.token_ids, 20, 21, 22, 23, 24, 25)
            return said

        said: list[tuple[int, ...]] = []
        for case, facts in cases:  # one case after the other: a group's repeats run side by side
            prompts = {
                role: (*house, *case, *own, *seats[role])
                if layout == "case first"
                else (*mandates[role], *case, *own)
                for role, own in facts.items()
            }
            for role, prompt in prompts.items():  # the first play of each prompt fills the cache
                said.append(await seat(role, prompt))
            again = [seat(role, prompt) for _ in range(repeats - 1) for role, prompt in prompts.items()]
            said += await asyncio.gather(*again)
        return said

    for caching in (False, True):
        engine = open_engine(base, None, seats=64, enable_prefix_caching=caching)
        for layout in ("role first", "case first"):
            for repeats in (1, args.few):
                engine.reset_prefix_cache()
                before = engine.usage.computed_prompt_tokens
                said = asyncio.run(play(engine, layout, repeats))
                computed = engine.usage.computed_prompt_tokens - before
                same = answers.setdefault(f"{layout}/{repeats}", said)
                equal = sum(one == other for one, other in zip(said, same, strict=True))
                found.append(
                    {
                        "layout": layout,
                        "caching": caching,
                        "repeats": repeats,
                        "computed": computed,
                        "equal": equal,
                        "transcripts": len(said),
                    }
                )
                print(
                    f"caching {caching!s:5} {layout} x{repeats}: {computed} prompt tokens computed,"
                    f" {equal} of {len(said)} transcripts equal to those without caching",
                    flush=True,
                )
        engine.close()
    return found
