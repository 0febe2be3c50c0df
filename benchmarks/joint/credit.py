"""Credit schemes on real rollouts of trained teams: error of their advantages and learning curves.

    python -m benchmarks.joint.credit --run runs/a --run runs/b --out runs/credit  # both tables
    python -m benchmarks.joint.credit --run runs/a --run runs/b --out runs/credit --part consensus

Each run folder is one seed with its roles' GRPO weights. Correlation: of a specialist's advantage with what
its report was truly worth, found by having this very ReconcileGPT decide on every exchange of one report
within its group (`--decisions` times each). `own episode`: against the group's other reports among the same
partners; `all partners`: the same, averaged over everybody's partners. Curves and consensus: joint training
from the same weights on the same cases and as many rollouts, greedy reward on validation cases; seconds are
those of the steps. What is done is kept in --out.
"""

import argparse
import asyncio
import io
import json
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from evaluation.comparison.ablations import MARKDOWN_FILE
from evaluation.scoring.sealed_plays import play_team
from evaluation.stats.intervals import holm, paired_interval, paired_permutation_p
from scenarios.team import TeamScenario
from simulator.export.atomic_files import encode_json
from simulator.reward import TeamRewardWeights, score_episode
from training.data.demonstrations import team_scenario
from training.joint.credit import SCHEMES
from training.joint.credit.estimators import ScoreGroup, dr_grpo
from training.joint.marl import JointLearner
from training.joint.play import AssessPlayer
from training.joint.records import EpisodeGroup, ScoredGroup
from training.joint.score import AssessScorer, reward_team, share_of_agreement
from training.models.base_model import quiet_libraries
from training.models.weights import load_team
from training.runs.run_folder import Run
from training.stages.from_config import choose_game, make_chat

WAYS = ("episode", "shared", "difference", "shapley", "cross_valued", "cross_rescored", "hierarchical")
TITLES = {  # of the pages
    "credit": "### Credit schemes\n\nHow true are a scheme's advantages, and how fast does it teach?",
    "consensus": "### Agreement cannot be bought\n\nThe same teams and steps, rewarded by the team reward"
    " (`team`) or for the share of seats\nthat favour the decided option (`agreement_only`): greedy play on"
    " validation cases.",
}
TAUGHT = tuple(SCHEMES)


def open_learner(path: Path, repeat: int = 0, **changes: Any) -> tuple[JointLearner, Run]:
    """A joint learner at the run's GRPO weights, with these keys of its `marl` section changed.

    Every `repeat` samples other rollouts.
    """
    quiet_libraries()
    torch.set_num_threads(1)
    run = Run.open(path)
    models, tokenizer = load_team(run, "grpo")
    config = run.config.marl.changed(**changes)
    learner = JointLearner(
        models,
        config,
        chat=make_chat(tokenizer, run.config),
        reward_weights=run.config.team_reward,
        seed=run.config.seed + 1_000 * repeat,
        make_game=choose_game(run.config),
    )
    return learner, run


def draw(run: Run, split: Any, first: int, count: int) -> list[TeamScenario]:
    data = run.config.data
    return [team_scenario(split, data.seed, first + index, data.difficulties) for index in range(count)]


def measure_truth(path: Path, num_scenarios: int, num_decisions: int) -> dict[str, Any]:
    """Correlation of every scheme's advantages with the true marginal values of one team."""
    learner, run = open_learner(path, credit__scheme="shared")
    cases = draw(run, "train", run.config.data.first_marl_index, num_scenarios)
    groups = learner.play(cases)
    weights = run.config.team_reward
    exact = decide_again(learner, weights, groups, "cross_rescored", "truth", num_decisions)
    num_credit = learner.config.decisions_per_set
    found: dict[str, Any] = {}
    for name in WAYS:
        given, own, overall = [], [], []
        credited = decide_again(learner, weights, groups, name, "credit", num_credit)
        for group, true in zip(credited, exact, strict=True):
            places = range(len(group.report_sets))
            for role in group.scenario.seats:
                scores = SCHEMES[name]().specialist_scores(role, group.report_sets)
                given += dr_grpo([ScoreGroup(scores=tuple(scores))])[0]
                table = [one.counterfactual_rewards[role] for one in true.report_sets]
                gains = [
                    [table[a][b] - statistics.fmean(table[other][b] for other in places) for b in places]
                    for a in places
                ]
                own += [gains[a][a] for a in places]
                overall += [statistics.fmean(gains[a]) for a in places]
        found[name] = {"own": correlate(given, own), "all": correlate(given, overall), "n": len(given)}
    return {"groups": len(groups), "ways": found}


def decide_again(
    learner: JointLearner,
    weights: TeamRewardWeights,
    groups: Sequence[EpisodeGroup],
    scheme: str,
    stream: str,
    num_decisions: int,
) -> list[ScoredGroup]:
    """The groups scored with the counterfactuals of this scheme, `num_decisions` on each set of reports."""
    player = AssessPlayer(
        config=learner.config.changed(decisions_per_set=num_decisions),
        chat=learner.chat,
        roles=tuple(learner.models),
        counterfactuals=SCHEMES[scheme]().counterfactuals,
        make_game=learner.make_game,
    )
    played = asyncio.run(player.add_counterfactuals(learner.make_engine(), groups, stream))
    values = SCHEMES[scheme]().value_offers
    return AssessScorer(weights=weights, reward=reward_team, value_offers=values).score(played)


def correlate(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Pearson's correlation; None where a side does not vary."""
    try:
        return statistics.correlation(one, other)
    except statistics.StatisticsError:
        return None


def teach(
    path: Path, repeat: int, changes: dict[str, Any], steps: int, every: int, num_cases: int
) -> list[dict[str, Any]]:
    """Joint training with these settings; seconds, and reward, value and agreement of the greedy team."""
    learner, run = open_learner(path, repeat, **changes)
    held_out = draw(run, "validation", 0, num_cases)
    points: list[dict[str, Any]] = []
    train_s = 0.0
    for step in range(steps + 1):
        if step % every == 0:
            points.append(
                {"step": step, "train_s": train_s} | assess(learner, run.config.team_reward, held_out)
            )
        if step < steps:
            first = run.config.data.first_marl_index + step * learner.config.scenarios_per_step
            cases, start = draw(run, "train", first, learner.config.scenarios_per_step), time.monotonic()
            learner.step(cases)
            train_s += time.monotonic() - start
    return points


def assess(
    learner: JointLearner, weights: TeamRewardWeights, cases: Sequence[TeamScenario]
) -> dict[str, list[float]]:
    """Reward, value and agreement of the greedy episode of each case."""
    episodes = play_team(
        list(cases),
        engine=learner.make_engine(),
        chat=learner.chat,
        temperature=0.0,
        max_completion_tokens=learner.config.max_completion_tokens,
        stream="validation",
        rounds=learner.config.rounds,
        make_game=learner.make_game,
    )
    verdicts = [score_episode(case, one, weights) for case, one in zip(cases, episodes, strict=True)]
    return {
        "reward": [verdict.reward for verdict in verdicts],
        "value": [verdict.value for verdict in verdicts],
        "agreement": [share_of_agreement(case, one) for case, one in zip(cases, episodes, strict=True)],
    }


def print_truth(results: Sequence[dict[str, Any]]) -> None:
    print("\n| advantage of | own episode | all partners | by seed (own episode) |")
    print("|---|---:|---:|---|")
    for name in WAYS:
        own = [one["ways"][name]["own"] or 0.0 for one in results]
        overall = [one["ways"][name]["all"] or 0.0 for one in results]
        seeds = ", ".join(f"{value:.2f}" for value in own)
        print(f"| {name} | {statistics.fmean(own):.2f} | {statistics.fmean(overall):.2f} | {seeds} |")
    print(f"\n{results[0]['groups']} scenarios per seed, {results[0]['ways']['shared']['n']} advantages")


def remember(file: Path, compute: Callable[[], Any]) -> Any:
    """The result in `file`, computed only where it is not there yet."""
    if not file.exists():
        result = compute()
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_suffix(".tmp")
        temporary.write_bytes(encode_json(result))
        temporary.rename(file)
    return json.loads(file.read_bytes())


Curves = dict[str, list[list[dict[str, Any]]]]  # of every name, by seed and repeat


def print_curves(curves: Curves, key: str) -> None:
    """Means over seeds and cases along the way."""
    steps = [point["step"] for point in next(iter(curves.values()))[0]]
    print(f"\n| {key} after step | " + " | ".join(map(str, steps)) + " | last, by run | seconds |")
    print("|---|" + "---:|" * len(steps) + "---|---:|")
    for name, runs in curves.items():
        means = [statistics.fmean(flatten(runs, key, place)) for place in range(len(steps))]
        seeds = ", ".join(f"{statistics.fmean(run[-1][key]):.3f}" for run in runs)
        seconds = statistics.fmean(run[-1]["train_s"] for run in runs)
        print(f"| {name} | " + " | ".join(f"{mean:.3f}" for mean in means) + f" | {seeds} | {seconds:.0f} |")


def flatten(runs: Sequence[list[dict[str, Any]]], key: str, place: int) -> list[float]:
    """The values of all seeds' cases at one point of the curve."""
    return [value for run in runs for value in run[place][key]]


def print_changes(pairs: dict[str, tuple[list[float], list[float]]]) -> None:
    """Paired by case over all seeds, with 95 % intervals and p-values after Holm's correction."""
    corrected = holm({name: paired_permutation_p(*pair) for name, pair in pairs.items()})
    print("\n| paired change at the end | mean | 95 % interval | p (Holm) |\n|---|---:|---|---:|")
    for name, (after, before) in pairs.items():
        change = paired_interval(after, before)
        interval = f"[{change.low:+.3f}, {change.high:+.3f}]"
        print(f"| {name} | {change.mean:+.3f} | {interval} | {corrected[name]:.4f} |")


def show_schemes(curves: Curves) -> None:
    """Reward along the way of every scheme, and how they end against `shared`."""
    print_curves(curves, "reward")
    last = {name: flatten(runs, "reward", -1) for name, runs in curves.items()}
    start = flatten(curves["shared"], "reward", 0)
    against = {f"{name} - shared": (last[name], last["shared"]) for name in curves if name != "shared"}
    print_changes({"shared - start": (last["shared"], start)} | against)


def show_consensus(curves: Curves) -> None:
    """Agreement, value and reward along the way of both rewards, and how they end against the start."""
    keys = ("agreement", "value", "reward")
    for key in keys:
        print_curves(curves, key)
    print_changes(
        {
            f"{key}, {name} - start": (flatten(runs, key, -1), flatten(runs, key, 0))
            for key in keys
            for name, runs in curves.items()
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path, action="append", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--part", choices=("credit", "consensus"), default="credit")
    parser.add_argument("--scenarios", type=int, default=40)
    parser.add_argument("--decisions", type=int, default=16)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--every", type=int, default=8)
    parser.add_argument("--per-step", type=int, default=16)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--page", type=Path, help="folder of a page for `emads report --ablations`")
    parser.add_argument(
        "--repeats", type=int, default=1, help="trainings of each team, rollouts sampled anew"
    )
    parser.add_argument("--scheme", choices=TAUGHT, action="append", help="repeatable, with shared; all")
    options = parser.parse_args()
    pool = ProcessPoolExecutor(  # a process per job: what the largest one took goes back to the machine
        options.workers, mp_context=get_context("spawn"), max_tasks_per_child=1
    )
    taught = partial(teach, steps=options.steps, every=options.every, num_cases=options.cases)
    common = {"scenarios_per_step": options.per_step, "rate_schedule": "constant", "learning_rate": 2e-4}
    if options.part == "credit":
        ways = {name: {"credit__scheme": name} | common for name in options.scheme or TAUGHT}
    else:
        ways = {
            name: {"reward": name, "credit__scheme": "shared"} | common for name in ("team", "agreement_only")
        }
    jobs: dict[tuple[str, int, int], Any] = {}
    for number, path in enumerate(options.run):
        if options.part == "credit":
            jobs["truth", number, 0] = partial(measure_truth, path, options.scenarios, options.decisions)
        for name, changes in ways.items():
            for repeat in range(options.repeats):
                jobs[name, number, repeat] = partial(taught, path, repeat, changes)
    files = {
        key: options.out / options.part / ("-".join(map(str, key if key[2] else key[:2])) + ".json")
        for key in jobs
    }
    waiting = {key: pool.submit(job) for key, job in jobs.items() if not files[key].exists()}
    results: dict[tuple[str, int, int], Any] = {}
    for key in jobs:
        results[key] = remember(files[key], waiting[key].result if key in waiting else dict)
    seeds = range(len(options.run))
    curves: Curves = {
        name: [results[name, number, repeat] for number in seeds for repeat in range(options.repeats)]
        for name in ways
    }
    with redirect_stdout(io.StringIO()) as tables:
        if options.part == "credit":
            print_truth([results["truth", number, 0] for number in seeds])
            show_schemes(curves)
        else:
            show_consensus(curves)
    print(tables.getvalue())
    if options.page is not None:
        options.page.mkdir(parents=True, exist_ok=True)
        (options.page / MARKDOWN_FILE).write_text(f"{TITLES[options.part]}\n{tables.getvalue()}")


if __name__ == "__main__":
    main()
