"""What joint training adds: against the roles as they were, against more GRPO of each role, and across seeds.

    emads demo --run runs/three --seeds 3
    python -m benchmarks.joint --run runs/three --run runs/three/seed-1 --out runs/joint

Arms per seed, all on the run's sealed team cases, greedy and at temperature 1: `alone` (the roles' GRPO
weights, teamed), `more GRPO` (each role goes on with GRPO for a fifth of joint training's seconds), `joint`.
Swap: one role of this seed's joint team is taken from the next seed's. Changes are paired by case, with 95 %
bootstrap intervals and Holm-corrected permutation tests over all comparisons. What is done is kept in --out.
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from evaluation.assess import score_role, score_team
from evaluation.statistics import holm, paired_interval, paired_permutation_p
from roles.registry import ROLES
from simulator.engines.transformers import TransformersEngine
from training import stages
from training.base import load_checkpoint, quiet_libraries
from training.data import role_scenario
from training.grpo import run_grpo
from training.runs import Run
from training.storage import encode_json
from training.weights import load_team, load_weights

MORE_INDEX = 3_000_000  # of the first scenario of further GRPO: none is met again
Scores = dict[str, Any]


def remember(file: Path, compute: Callable[[], Scores]) -> Scores:
    """The result in `file`, computed only where it is not there yet."""
    if not file.exists():
        result = compute()
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_suffix(".tmp")
        temporary.write_bytes(encode_json(result))
        temporary.rename(file)
    found: Scores = json.loads(file.read_bytes())
    return found


def train_more(run: Run, role: str, folder: Path) -> Path:
    """The role after GRPO went on for a fifth of joint training's seconds; kept in `folder`."""
    target = folder / role
    if target.exists():
        return target
    config = run.config
    seconds_per_step = run.read_payload(f"grpo/{role}")["train_s"] / max(1, config.grpo.max_steps)
    steps = max(1, round(run.read_payload("marl")["train_s"] / len(ROLES) / seconds_per_step))
    model, tokenizer = load_weights(run, "grpo", role)
    scenarios = [
        role_scenario(role, "train", config.data.seed, MORE_INDEX + index, config.data.difficulties)
        for index in range(steps * config.grpo.prompts_per_step)
    ]
    with tempfile.TemporaryDirectory(prefix="emads-") as scratch:
        run_grpo(
            model,
            tokenizer,
            scenarios,
            config.grpo.model_copy(update={"max_steps": steps}),
            role=role,
            chat=stages.make_chat(tokenizer, config),
            output_dir=Path(scratch),
            seed=config.seed + 1,
            on_step=lambda step, metrics: None,
        )
    unfinished = target.with_suffix(".tmp")
    model.save_pretrained(unfinished)
    tokenizer.save_pretrained(unfinished)
    unfinished.rename(target)
    return target


def score(run: Run, models: Mapping[str, Any], tokenizer: Any, name: str) -> Scores:
    """Team rewards of these models on the run's sealed cases."""
    config = run.config
    found = score_team(
        "marl",
        stages.test_cases(config),
        engine=stages.team_engine(models, tokenizer, config, name),
        chat=stages.make_chat(tokenizer, config),
        weights=stages.reward_weights(config),
        max_completion_tokens=config.marl.max_completion_tokens,
        rounds=config.marl.rounds,
    )
    return {"sampled": list(found.sampled), "greedy": list(found.greedy)}


def own_score(run: Run, model: Any, tokenizer: Any, role: str) -> Scores:
    """Mean verified score of a role on its own sealed scenarios."""
    config = run.config
    chat = stages.make_chat(tokenizer, config)
    engine = TransformersEngine(end_id=chat.end_id, seed=config.seed)
    engine.set_policy(role, model, version=role)
    scenarios = [
        role_scenario(role, "test", config.data.seed, index, config.data.difficulties)
        for index in range(config.evaluation.num_role_scenarios)
    ]
    found = score_role(
        role,
        "grpo",
        scenarios,
        engine=engine,
        chat=chat,
        max_turns=config.grpo.max_turns,
        max_completion_tokens=config.grpo.max_completion_tokens,
        max_failed_calls=config.grpo.max_failed_calls,
    )
    return {"sampled": statistics.fmean(found.sampled), "greedy": statistics.fmean(found.greedy)}


def measure_arms(run: Run, out: Path) -> dict[str, Scores]:
    """The three arms of one seed, and every role's own score in each."""
    arms: dict[str, Scores] = {}
    for name, stage in (("alone", "grpo"), ("joint", "marl")):
        arms[name] = remember(out / f"{name}.json", lambda s=stage, n=name: score(run, *load_team(run, s), n))  # type: ignore[misc]
    folders = {role: train_more(run, role, out / "more_grpo") for role in ROLES}

    def score_more() -> Scores:
        loaded = {role: load_checkpoint(folder) for role, folder in folders.items()}
        models = {role: model for role, (model, _) in loaded.items()}
        return score(run, models, next(iter(loaded.values()))[1], "more")

    arms["more GRPO"] = remember(out / "more GRPO.json", score_more)
    for role in ROLES:
        sources = {
            "alone": lambda r=role: load_weights(run, "grpo", r),
            "more GRPO": lambda r=role: load_checkpoint(folders[r]),
            "joint": lambda r=role: load_weights(run, "marl", r),
        }
        for name, load in sources.items():
            arms[f"{name}/{role}"] = remember(
                out / f"own-{name}-{role}.json",
                lambda load=load, r=role: own_score(run, *load(), r),  # type: ignore[misc]
            )
    return arms


def measure_swap(run: Run, other: Run, role: str, out: Path) -> Scores:
    """The joint team with this role taken from another seed's joint team."""

    def compute() -> Scores:
        models, tokenizer = load_team(run, "marl")
        models[role], _ = load_weights(other, "marl", role)
        return score(run, models, tokenizer, f"swap-{role}")

    return remember(out / f"swap-{role}.json", compute)


def show_change(after: Scores, before: Scores, way: str) -> tuple[str, float]:
    """Paired change with its interval, and its p-value."""
    change = paired_interval(after[way], before[way])
    p = paired_permutation_p(after[way], before[way])
    return f"{change.mean:+.3f} [{change.low:+.3f}, {change.high:+.3f}]", p


def print_tables(arms: Sequence[dict[str, Scores]], swaps: Sequence[dict[str, Scores]]) -> None:
    comparisons = [("joint", "alone"), ("joint", "more GRPO"), ("more GRPO", "alone")]
    cells: dict[str, tuple[str, float]] = {}
    for way in ("sampled", "greedy"):
        for number, one in enumerate(arms):
            for after, before in comparisons:
                cells[f"{after} - {before}|{way}|{number}"] = show_change(one[after], one[before], way)
            for role, swapped in swaps[number].items() if swaps else ():
                cells[f"swap {role} - joint|{way}|{number}"] = show_change(swapped, one["joint"], way)
    corrected = holm({name: p for name, (_, p) in cells.items()})
    header = " | ".join(f"seed {number}" for number in range(len(arms)))
    print(f"| team reward | way | {header} |\n|---|---" + "|---:" * len(arms) + "|")
    for row in dict.fromkeys(name.rsplit("|", 1)[0] for name in cells):
        texts = [
            cells[f"{row}|{n}"][0] + (" *" if corrected[f"{row}|{n}"] < 0.05 else "")
            for n in range(len(arms))
        ]
        print(f"| {row.replace('|', ' | ')} | " + " | ".join(texts) + " |")
    print(f"\n* p < 0.05 after Holm's correction over {len(cells)} comparisons\n")
    print("| own score at temperature 1 | alone | more GRPO | joint |\n|---|---:|---:|---:|")
    for role in ROLES:
        values = [
            statistics.fmean(one[f"{name}/{role}"]["sampled"] for one in arms)
            for name in ("alone", "more GRPO", "joint")
        ]
        print(f"| {role} | " + " | ".join(f"{value:.3f}" for value in values) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path, action="append", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    quiet_libraries()
    torch.set_num_threads(options.threads)
    runs = [Run.open(path) for path in options.run]
    arms = [measure_arms(run, options.out / f"seed-{number}") for number, run in enumerate(runs)]
    swaps = []
    if len(runs) > 1:
        for number, run in enumerate(runs):
            other, out = runs[(number + 1) % len(runs)], options.out / f"seed-{number}"
            swaps.append({role: measure_swap(run, other, role, out) for role in ROLES})
    print_tables(arms, swaps)


if __name__ == "__main__":
    main()
