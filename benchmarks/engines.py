"""vLLM engine benchmarks: the same calls (prompts, lengths, adapters) played in several ways.

    python -m benchmarks.engines joint --shape tiny --episodes 32
    python -m benchmarks.engines tools | refresh | prefix | scaling [--shape 135m] [--out FILE.json]

Work equality is asserted before a ratio is printed. Repeats alternate between the ways, so that what disturbs
one disturbs all; medians of the repeats are shown. Completions have fixed lengths (no end token). A shape has
random weights: speed does not depend on them.
"""

import argparse
import asyncio
import json
import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from benchmarks.engine_models import RANK, SHAPES, load_team, scratch, write_base
from benchmarks.engine_work import (
    ROLES,
    Call,
    Episode,
    ask,
    expected_tokens,
    joint_episodes,
    play_by_role,
    play_in_order,
    play_in_waves,
    play_together,
    play_with_barriers,
    tool_transcripts,
)
from simulator.engines.base import CompletionRequest, Sampling
from simulator.engines.vllm import VLLMEngine

Way = Callable[[], int]  # plays the work, returns the tokens made


def open_engine(
    base: Path, team: Any | None, *, seats: int, roles: Sequence[str] = ROLES, **options: Any
) -> VLLMEngine:
    """An engine that serves every role by its adapter (None: all by the base), started."""
    chosen = {"max_num_seqs": seats, "max_loras": max(8, len(roles)), "max_lora_rank": RANK, **options}
    if team is None:
        chosen["enable_lora"] = False
    engine = VLLMEngine(base, end_id=None, options=chosen)
    for role in roles:
        engine.set_policy(role, team, version=f"{role}@0", adapter=None if team is None else role)
    engine.start()
    return engine


def compare(ways: Mapping[str, Way], tokens: int, repeats: int) -> dict[str, float]:
    """Median seconds of each way; each is played once before it is timed."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(repeats + 1):
        for name, way in ways.items():
            start = time.perf_counter()
            made = way()
            elapsed = time.perf_counter() - start
            assert made == tokens, f"{name} made {made} tokens, not {tokens}"
            if repeat:
                seconds[name].append(elapsed)
    return {name: statistics.median(values) for name, values in seconds.items()}


def show(title: str, medians: Mapping[str, float], tokens: int | None) -> dict[str, Any]:
    """Print one line per way; the first is ours. `tokens`: made by every way (None: nothing is made)."""
    print(f"\n{title}" + (f", {tokens} tokens made by every way" if tokens else ""))
    ours = next(iter(medians.values()))
    for name, value in medians.items():
        rate = f"{tokens / value:9.0f} tokens/s " if tokens else ""
        print(f"  {name:32s} {value:8.2f} s {rate}{value / ours:7.2f} x")
    return {"title": title, "tokens": tokens, "seconds": dict(medians)}


def generate_in_order(team: Any, *, with_adapters: bool) -> Callable[[Call], Any]:
    """`transformers.generate`, one call at a time, each with its role's adapter or on the base alone."""
    if not with_adapters:
        team = team.unload()

    async def answer(call: Call) -> int:
        if with_adapters:
            team.set_adapter(call.role)
        ids = torch.tensor([call.prompt_ids])
        with torch.no_grad():
            output = team.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                top_k=0,
                min_new_tokens=call.num_tokens,
                max_new_tokens=call.num_tokens,
            )
        return int(output.shape[1] - ids.shape[1])

    return answer


def run_joint(args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Joint episodes: all at once, one role at a time, with turn barriers, and call by call."""
    base = write_base(args.shape, folder / "base")
    team = load_team(base)
    served = None if args.base else team
    weights = "no adapters" if args.base else "five adapters"
    vocab = SHAPES[args.shape][0]
    work = joint_episodes(args.episodes, vocab=vocab, prompt=args.prompt, mean_tokens=args.tokens)
    few, seats = work[: args.few], args.seats or args.episodes
    engine = open_engine(base, served, seats=max(64, 4 * args.episodes))
    answer = ask(engine)

    def fresh(play: Callable[[], Any]) -> Way:
        def way() -> int:
            engine.reset_prefix_cache()  # each way computes its own prompts
            return int(asyncio.run(play()))

        return way

    found = [
        show(
            f"{args.episodes} joint episodes, {seats} at once, {args.shape}, {weights}",
            compare(
                {
                    "ours": fresh(lambda: play_together(work, answer, seats=seats)),
                    "one role at a time": fresh(
                        lambda: play_in_waves(work, seats, lambda wave: play_by_role(wave, answer))
                    ),
                    "turn barriers": fresh(
                        lambda: play_in_waves(work, seats, lambda wave: play_with_barriers(wave, answer))
                    ),
                },
                expected_tokens(work),
                args.repeats,
            ),
            expected_tokens(work),
        )
    ]
    plain = generate_in_order(team, with_adapters=not args.base)
    found.append(
        show(
            f"{args.few} joint episodes, {args.shape}, {weights}",
            compare(
                {
                    "ours": fresh(lambda: play_together(few, answer)),
                    "sequential transformers.generate": lambda: asyncio.run(play_in_order(few, plain)),
                },
                expected_tokens(few),
                args.repeats,
            ),
            expected_tokens(few),
        )
    )
    engine.close()
    return found


def run_tools(args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Transcripts of several turns with a tool of 50 ms after each but the last."""
    base = write_base(args.shape, folder / "base")
    work = tool_transcripts(
        args.episodes,
        vocab=SHAPES[args.shape][0],
        prompt=args.prompt,
        mean_tokens=args.tokens,
        turns=args.turns,
    )
    team = None if args.base else load_team(base)
    engine = open_engine(base, team, seats=max(64, args.episodes))
    answer = ask(engine)

    def fresh(play: Callable[[], Any]) -> Way:
        def way() -> int:
            engine.reset_prefix_cache()
            return int(asyncio.run(play()))

        return way

    medians = compare(
        {
            "ours": fresh(lambda: play_together(work, answer, tool_s=0.05)),
            "turn barriers, tools at once": fresh(lambda: play_with_barriers(work, answer, tool_s=0.05)),
            "turn barriers, tools in order": fresh(
                lambda: play_with_barriers(work, answer, tool_s=0.05, serial_tools=True)
            ),
        },
        expected_tokens(work),
        args.repeats,
    )
    engine.close()
    weights = "no adapters" if args.base else "five adapters"
    title = f"{args.episodes} transcripts of {args.turns} turns, 50 ms tool, {args.shape}, {weights}"
    return [show(title, medians, expected_tokens(work))]


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


def run_scaling(args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Tokens per second against calls in flight and against roles."""
    base = write_base(args.shape, folder / "base")
    vocab = SHAPES[args.shape][0]
    found = []
    names = tuple(f"role{i}" for i in range(8))
    team = load_team(base, names)

    def measure(engine: VLLMEngine, roles: Sequence[str], in_flight: int) -> float:
        """Median tokens per second of completions that begin and end together."""
        rates = []
        for repeat in range(args.repeats + 1):
            generator = torch.Generator().manual_seed(repeat)
            calls = [
                Call(
                    role=roles[i % len(roles)],
                    session=f"{repeat}/{i}",
                    prompt_ids=tuple(torch.randint(12, vocab, (args.prompt,), generator=generator).tolist()),
                    num_tokens=args.tokens,
                )
                for i in range(in_flight)
            ]
            work: list[Episode] = [((call,),) for call in calls]
            start = time.perf_counter()
            made = asyncio.run(play_together(work, ask(engine)))
            if repeat:
                rates.append(made / (time.perf_counter() - start))
            assert made == args.tokens * in_flight
        return statistics.median(rates)

    for label, adapters in (("base", None), ("adapters", team)):
        engine = open_engine(base, adapters, seats=max(args.in_flight), roles=names)
        for in_flight in args.in_flight:
            rate = measure(engine, names[:5], in_flight)
            found.append({"axis": "in_flight", "label": label, "x": in_flight, "rate": rate})
            print(f"{label:9s} {in_flight:4d} in flight {rate:9.0f} tokens/s", flush=True)
        if adapters is not None:
            for num_roles in (1, 2, 4, 5, 8):
                rate = measure(engine, names[:num_roles], 64)
                found.append({"axis": "roles", "label": label, "x": num_roles, "rate": rate})
                print(f"{label:9s} {num_roles:4d} roles     {rate:9.0f} tokens/s", flush=True)
        engine.close()
    return found


def run_prefix(args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Prompt tokens computed for joint episodes, with the roles' text first and with the case first.

    Every seat reads its mandate, the case (--prompt tokens that all seats share) and facts of its own,
    reports and votes in one transcript. All roles play on the base: different adapters share no keys.
    """
    base = write_base(args.shape, folder / "base")
    vocab = SHAPES[args.shape][0]
    generator = torch.Generator().manual_seed(0)

    def ids(length: int) -> tuple[int, ...]:
        return tuple(torch.randint(12, vocab, (length,), generator=generator).tolist())

    mandates = {role: ids(120) for role in ROLES[:4]}
    cases = [(ids(args.prompt), {role: ids(60) for role in mandates}) for _ in range(args.episodes)]
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
                role: (*case, *mandates[role], *own)
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


PARTS = {
    "joint": run_joint,
    "tools": run_tools,
    "refresh": run_refresh,
    "prefix": run_prefix,
    "scaling": run_scaling,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--shape", choices=SHAPES, default="tiny")
    parser.add_argument("--episodes", type=int, default=32)
    parser.add_argument("--seats", type=int, help="episodes at once (default: all)")
    parser.add_argument("--few", type=int, default=8, help="episodes that are also played call by call")
    parser.add_argument("--prompt", type=int, default=96, help="tokens")
    parser.add_argument("--tokens", type=int, default=24, help="mean tokens of a completion")
    parser.add_argument("--base", action="store_true", help="all roles on the base, no adapters")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument(
        "--in-flight", type=lambda text: [int(x) for x in text.split(",")], default=[1, 4, 16, 64]
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, help="JSON file that results are appended to")
    args = parser.parse_args()
    folder = scratch()
    try:
        found = PARTS[args.part](args, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if args.out is not None:
        with args.out.open("a", encoding="utf-8") as file:
            for record in found:
                file.write(json.dumps({"part": args.part, "shape": args.shape, **record}) + "\n")


if __name__ == "__main__":
    main()
