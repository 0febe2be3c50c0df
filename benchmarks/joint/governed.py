"""Gain of joint training on governed episodes: execution, shocks and re-plans on held-out cases.

    emads demo runs/three
    python -m benchmarks.joint.governed --run runs/three --out runs/governed

Arms: `start` (the run's team after --stage), `assess` and `full` (the same after so many joint steps under
that protocol: the same cases, which --stage did not see, credit, report sets and learning rate), `experts`
(scripted, of the best habits). All play governed episodes on sealed cases, in worlds that none
has met, greedy and at temperature 1. Changes are paired by case, with 95 %
bootstrap intervals and Holm-corrected permutation tests over all comparisons. What is done is kept in --out.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from evaluation.scoring.team_players import BEST_HABITS
from evaluation.stats.intervals import holm, paired_interval, paired_permutation_p
from roles.registry import ROLES
from scenarios.team import TeamScenario
from simulator.agents.scripted_policies import oracle_team
from simulator.chat_plain import PlainChat
from simulator.engines.base import Sampling
from simulator.engines.scripted import ScriptedEngine
from simulator.export.atomic_files import encode_json
from simulator.graph.runner import MAX_TURNS
from simulator.graph.seating import Seating
from training.data.demonstrations import team_scenario
from training.joint.governed_play import play_governed_groups
from training.joint.governed_score import GovernedScorer
from training.joint.marl import JointLearner
from training.joint.protocols import choose_step
from training.joint.records import ScoredGroup
from training.joint.score import reward_team
from training.models.base_model import quiet_libraries
from training.models.weights import load_team
from training.runs.run_folder import Run
from training.stages.from_config import choose_game, make_chat

Arm = Literal["start", "assess", "full", "experts"]
ARMS: tuple[Arm, ...] = ("start", "assess", "full", "experts")
WAYS = ("sampled", "greedy")
MEASURES = ("reward", "last plan", "first plan", "re-planned")
COMPARISONS: tuple[tuple[Arm, Arm], ...] = (("full", "start"), ("assess", "start"), ("full", "assess"))
Scores = dict[str, dict[str, list[float]]]  # way -> measure -> one number per case


def make_learner(run: Run, stage: str, **changes: Any) -> JointLearner:
    """The run's team after a stage, ready to learn with these keys of its `marl` section changed."""
    config = run.config.marl.changed(**changes)
    models, tokenizer = load_team(run, stage)
    return JointLearner(
        models,
        config,
        chat=make_chat(tokenizer, run.config),
        reward_weights=run.config.team_reward,
        seed=run.config.seed,
        make_game=choose_game(run.config),
    )


def train(run: Run, learner: JointLearner, options: argparse.Namespace) -> list[dict[str, float]]:
    """Train so many steps; the metrics of each, with its seconds."""
    rows = []
    data, marl = run.config.data, run.config.marl
    seen = marl.max_steps * marl.scenarios_per_step if options.stage == "marl" else 0
    for step in range(options.steps):
        first = data.first_marl_index + seen + step * options.cases
        cases = [
            team_scenario("train", data.seed, first + place, data.difficulties)
            for place in range(options.cases)
        ]
        start = time.monotonic()
        rows.append(learner.step(cases) | {"step_s": time.monotonic() - start})
        print(json.dumps({"step": step + 1} | shown(rows[-1])), flush=True)
    return rows


def shown(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics that are printed while it trains."""
    names = ("team_reward", "first_plan_value", "last_plan_value", "replanned", "signal/reconcile", "step_s")
    return {name: round(metrics[name], 4) for name in names if name in metrics}


def measure(learner: JointLearner, cases: Sequence[TeamScenario], run: Run) -> Scores:
    """Scores of governed episodes on these cases."""
    config = learner.config.model_copy(update={"protocol": "full", "report_sets": 1})
    step = choose_step(
        config,
        chat=learner.chat,
        weights=run.config.team_reward,
        roles=tuple(learner.models),
        make_game=choose_game(run.config),
    )
    engine = learner.make_engine()
    groups = {
        "sampled": step.player.play(engine, cases, "held-out"),
        "greedy": step.player.play_greedily(engine, cases, "held-out"),
    }
    return {way: score(step.scorer.score(of_way), len(cases)) for way, of_way in groups.items()}


def measure_experts(run: Run, cases: Sequence[TeamScenario], options: argparse.Namespace) -> Scores:
    """Scores of scripted experts of the best habits; they have no temperature."""
    chat = PlainChat()
    speakers = oracle_team(cases, report_habit=BEST_HABITS[0], funding_habit=BEST_HABITS[1])
    seating = Seating(
        team={role: role for role in ROLES},
        engine=ScriptedEngine(chat, seeded=speakers),
        chat=chat,
        sampling=Sampling(max_completion_tokens=300),
        stream="experts",
        max_turns=MAX_TURNS,
        roles=ROLES,
    )
    groups = asyncio.run(play_governed_groups(cases, seating, options.rounds, num_sets=1))
    scorer = GovernedScorer(weights=run.config.team_reward, reward=reward_team)
    return {"greedy": score(scorer.score(groups), len(cases))}


def score(groups: Sequence[ScoredGroup], num_cases: int) -> dict[str, list[float]]:
    if len(groups) != num_cases:
        raise SystemExit(f"{num_cases - len(groups)} held-out episodes were lost")
    episodes = [group.report_sets[0].first for group in groups]
    plans = [one.plans.values for one in episodes if one.plans is not None]
    return {
        "reward": [one.verdict.reward for one in episodes],
        "last plan": [values[-1] for values in plans],
        "first plan": [values[0] for values in plans],
        "re-planned": [float(len(values) > 1) for values in plans],
    }


def run_arm(run: Run, arm: Arm, options: argparse.Namespace) -> dict[str, Any]:
    """Train and measure one arm, or what --out has of it."""
    file = options.out / f"{arm}.json"
    if not file.exists():
        data = run.config.data
        cases = [
            team_scenario("test", data.seed, index, data.difficulties) for index in range(options.held_out)
        ]
        file.parent.mkdir(parents=True, exist_ok=True)
        steps: list[dict[str, float]] = []
        if arm == "experts":
            scores = measure_experts(run, cases, options)
        else:
            protocol = "full" if arm == "start" else arm
            learner = make_learner(
                run, options.stage, protocol=protocol, credit__scheme="shared", rounds=options.rounds
            )
            steps = [] if arm == "start" else train(run, learner, options)
            scores = measure(learner, cases, run)
        file.write_bytes(encode_json({"steps": steps, "scores": scores}))
    found: dict[str, Any] = json.loads(file.read_bytes())
    return found


def print_levels(arms: Mapping[str, Scores]) -> None:
    print("| governed | way | " + " | ".join(MEASURES) + " |\n|---|---" + "|---:" * len(MEASURES) + "|")
    for way in WAYS:
        for arm, scores in ((arm, scores) for arm, scores in arms.items() if way in scores):
            means = [f"{statistics.fmean(scores[way][name]):.3f}" for name in MEASURES]
            print(f"| {arm} | {way} | " + " | ".join(means) + " |")


def print_changes(arms: Mapping[str, Scores]) -> None:
    cells = {
        (after, before, way, name): (arms[after][way][name], arms[before][way][name])
        for way in WAYS
        for after, before in COMPARISONS
        if {after, before} <= set(arms)
        for name in MEASURES[:2]
    }
    corrected = holm({str(key): paired_permutation_p(*pair) for key, pair in cells.items()})
    print("\n| paired change | way | of | mean | 95 % interval | p (Holm) |\n|---|---|---|---:|---|---:|")
    for key, pair in cells.items():
        change = paired_interval(*pair)
        after, before, way, name = key
        print(
            f"| {after} - {before} | {way} | {name} | {change.mean:+.3f} | "
            f"[{change.low:+.3f}, {change.high:+.3f}] | {corrected[str(key)]:.4f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--stage", choices=("grpo", "marl"), default="grpo", help="whose weights are taught")
    parser.add_argument("--arm", choices=ARMS, action="append", help="which arms; all of them by default")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--cases", type=int, default=24, help="per step")
    parser.add_argument("--held-out", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    quiet_libraries()
    torch.set_num_threads(options.threads)
    run = Run.open(options.run)
    results = {arm: run_arm(run, arm, options) for arm in options.arm or ARMS}
    for arm, result in results.items():
        seconds = [row["step_s"] for row in result["steps"]]
        if seconds:
            print(f"{arm}: {len(seconds)} steps of {statistics.median(seconds):.1f} s", flush=True)
    arms: dict[str, Scores] = {arm: result["scores"] for arm, result in results.items()}
    print_levels(arms)
    print_changes(arms)


if __name__ == "__main__":
    main()
