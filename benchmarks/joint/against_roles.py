"""Gain of joint training over the roles before it, over more GRPO of each role, and across seeds.

    emads demo runs/three --seeds 3
    python -m benchmarks.joint.against_roles --run runs/three --run runs/three/seed-1 --out runs/joint

Arms per seed, all on the run's sealed team cases, greedy and at temperature 1: `alone` (the roles' GRPO
weights, teamed), `more GRPO` (each role goes on with GRPO for a fifth of joint training's seconds), `joint`.
Seconds are those of the least disturbed run, for GRPO's steps as for joint training. `alone`, `joint` and the
roles' own scores are those that the runs' evaluation stored. Swap: one role of this seed's joint team is
taken from the next seed's; every seed has its own tokenizer, so that it reads and writes as text. Changes are
paired by case, with 95 % bootstrap intervals and Holm-corrected permutation tests over all comparisons. What
is done is kept in --out.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.joint.paired_seeds import (
    WAYS,
    Scores,
    flatten,
    print_changes,
    print_levels,
    remember,
    seat_runs,
    seated,
    show_change,
)
from evaluation.probes.probe_setup import ProbeSetup, with_role
from evaluation.scoring.outcomes import TEMPERATURES
from evaluation.scoring.scores import read_scores
from evaluation.scoring.sealed_plays import score_team
from roles.registry import ROLES
from simulator.export.atomic_files import encode_json
from training.data.demonstrations import role_scenario
from training.models.base_model import load_checkpoint, quiet_libraries
from training.models.weights import load_weights
from training.roles.grpo import run_grpo
from training.runs.run_folder import Run
from training.stages.evaluation import scores_path
from training.stages.from_config import choose_game, make_chat, team_engine, test_cases

MORE_INDEX = 3_000_000  # of the first scenario of further GRPO: none is met again
ARMS = ("alone", "more GRPO", "joint")


def count_more(runs: Sequence[Run], role: str) -> int:
    """Steps of further GRPO that cost a fifth of joint training."""
    seconds = min(
        float(run.read_payload(f"grpo/{role}")["train_s"]) / run.config.grpo.max_steps for run in runs
    )
    joint = min(float(run.read_payload("marl")["train_s"]) for run in runs)
    return max(1, round(joint / len(ROLES) / seconds))


def train_more(run: Run, role: str, steps: int, folder: Path) -> Path:
    """The role after so many further steps of GRPO; kept in `folder`."""
    target = folder / role
    if target.exists():
        return target
    config, start = run.config, time.monotonic()
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
            chat=make_chat(tokenizer, config),
            output_dir=Path(scratch),
            seed=config.seed + 1,
            on_step=lambda step, metrics: None,
        )
    unfinished = target.with_suffix(".tmp")
    model.save_pretrained(unfinished)
    tokenizer.save_pretrained(unfinished)
    (unfinished / "train_s.json").write_bytes(encode_json(time.monotonic() - start))
    unfinished.rename(target)
    return target


def score(run: Run, models: Mapping[str, Any], tokenizer: Any, name: str, out: Path) -> Scores:
    """Team rewards of these models on the run's sealed cases."""
    config = run.config
    found = score_team(
        "marl",
        test_cases(config),
        engine=team_engine(models, tokenizer, config, name),
        chat=make_chat(tokenizer, config),
        weights=config.team_reward,
        max_completion_tokens=config.marl.max_completion_tokens,
        rounds=config.marl.rounds,
        folder=out / "outcomes" / name,
        make_game=choose_game(config),
    )
    return {"sampled": list(found.sampled), "greedy": list(found.greedy)}


def stored_scores(run: Run, stage: str, owner: str) -> Scores:
    """The scores of a role, or of "team", as the run's evaluation left them."""
    (found,) = read_scores(scores_path(run, f"evaluate/{stage}/{owner}"))
    return {"sampled": list(found.sampled), "greedy": list(found.greedy)}


def measure_arms(run: Run, steps: Mapping[str, int], out: Path) -> dict[str, Scores]:
    """The three arms of one seed, and every role's own scores before and after joint training."""

    def score_more() -> Scores:
        loaded = {
            role: load_checkpoint(train_more(run, role, steps[role], out / "more_grpo")) for role in ROLES
        }
        models = {role: model for role, (model, _) in loaded.items()}
        return score(run, models, next(iter(loaded.values()))[1], "more GRPO", out)

    arms = {"more GRPO": remember(out / "more GRPO.json", score_more)}
    for name, stage in (("alone", "grpo"), ("joint", "marl")):
        arms[name] = stored_scores(run, stage, "team")
        arms |= {f"{name}/{role}": stored_scores(run, stage, role) for role in ROLES}
    return arms


def measure_swap(run: Run, other: Run, role: str, out: Path) -> Scores:
    """The joint team with this role taken from another seed's joint team."""

    def compute() -> Scores:
        engine, chat = seat_runs(run, {"other": other}, "marl")
        found = {}
        for way, temperature in TEMPERATURES.items():
            setup = ProbeSetup(
                scenarios=test_cases(run.config),
                engine=engine,
                chat=chat,
                weights=run.config.team_reward,
                max_completion_tokens=run.config.marl.max_completion_tokens,
                temperature=temperature,
                rounds=run.config.marl.rounds,
            )
            team = with_role(seated("home"), role, f"other:{role}")
            found[way] = setup.rewards(setup.play(team, f"swap/{role}/{way}"))
        return found

    return remember(out / f"swap-{role}-as-text.json", compute)


def print_own(arms: Sequence[dict[str, Scores]]) -> None:
    """Every role's own verified score before and after joint training, over all seeds."""
    print("| own score | way | alone | joint | joint - alone |\n|---|---|---:|---:|---|")
    for way in WAYS:
        for role in ROLES:
            scores = {name: flatten(arms, f"{name}/{role}", way) for name in ("alone", "joint")}
            means = " | ".join(f"{statistics.fmean(values):.3f}" for values in scores.values())
            print(f"| {role} | {way} | {means} | {show_change(scores['joint'], scores['alone'])} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path, action="append", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--swap", choices=ROLES, action="append", help="which roles; all of them by default")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    quiet_libraries()
    torch.set_num_threads(options.threads)
    runs = [Run.open(path) for path in options.run]
    steps = {role: count_more(runs, role) for role in ROLES}
    arms = [measure_arms(run, steps, options.out / f"seed-{number}") for number, run in enumerate(runs)]
    comparisons = [("joint", "alone"), ("joint", "more GRPO"), ("more GRPO", "alone")]
    if len(runs) > 1:
        swapped = options.swap or list(ROLES)
        comparisons += [(f"swap {role}", "joint") for role in swapped]
        for number, (run, teams) in enumerate(zip(runs, arms, strict=True)):
            other, out = runs[(number + 1) % len(runs)], options.out / f"seed-{number}"
            teams |= {f"swap {role}": measure_swap(run, other, role, out) for role in swapped}
    print(f"Further GRPO: {', '.join(f'{role} {count}' for role, count in steps.items())} steps;", end=" ")
    spent = [sum_seconds(options.out / f"seed-{number}") for number in range(len(runs))]
    joint = [run.read_payload("marl")["train_s"] for run in runs]
    print(
        "; ".join(f"{more:.0f} s against {own:.0f} s" for more, own in zip(spent, joint, strict=True)), "\n"
    )
    print_levels(arms, ARMS, "mean team reward")
    print_changes(arms, comparisons, "change of team reward")
    print_own(arms)


def sum_seconds(out: Path) -> float:
    """Seconds of further GRPO of all roles of a seed."""
    return sum(float(json.loads(file.read_bytes())) for file in out.glob("more_grpo/*/train_s.json"))


if __name__ == "__main__":
    main()
