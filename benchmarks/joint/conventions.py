"""Joint training with two equally good conventions: the one a team settles on, and the cost of a swap.

    python -m benchmarks.joint.conventions --seeds 4 --out runs/conventions
    python -m benchmarks.joint.conventions --seeds 4 --out runs/conventions --train 3  # seed 3 alone

Every seed trains a tiny team of its own (base, SFT on seats, no GRPO, joint training) on cases of
`data.conventions: symmetric`, where (stakes, priority) and (calm, reserve) are mirror images. Then, on the
seed's sealed cases: the practice that each role names in its first word before and after joint training, the
value V of the decisions, and V with one role taken from every other seed's team. The others' specialists
report on the same cases, and ReconcileGPT decides again on the mixed reports. Changes are paired by case,
with 95 % bootstrap intervals and Holm-corrected permutation tests over all cells. What is done is kept in
--out.
"""

import argparse
import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

from benchmarks.joint.paired_seeds import (
    WAYS,
    Scores,
    print_changes,
    print_levels,
    remember,
    seat_runs,
    seated,
    show_change,
)
from evaluation.probes.probe_setup import ProbeSetup
from evaluation.scoring.outcomes import TEMPERATURES
from evaluation.stats.intervals import holm, paired_permutation_p
from roles.registry import ROLES
from roles.team import RECONCILER, SPECIALISTS
from scenarios.team import SYMMETRIC
from simulator.records import Episode
from training.config.loading import load_config
from training.config.run_config import RunConfig
from training.models.base_model import quiet_libraries
from training.runs.run_folder import Run
from training.stages.base import train_base
from training.stages.from_config import test_cases
from training.stages.grpo import train_grpo
from training.stages.marl import train_marl
from training.stages.sft import train_sft

REPORTS, DECISIONS = tuple(SYMMETRIC.reports), tuple(SYMMETRIC.decisions)  # mirror images by place
REPORT, DECISION = SYMMETRIC.best  # the pair that shares are given of; the other pair has the rest
STAGES = {"alone": "grpo", "joint": "marl"}  # 0 steps of GRPO: the weights of SFT
Cells = Mapping[tuple[str, int, int, str], tuple[list[float], list[float]]]  # way, home, donor, role


def make_config(seed: int, options: argparse.Namespace) -> RunConfig:
    """The demo's model and joint training; seats' demonstrations only, and no GRPO."""
    return load_config(
        None,
        [
            f"name=conventions-{seed}",
            f"seed={seed}",
            f"data.seed={seed}",
            "data.conventions=symmetric",
            "data.seat_share=1.0",
            f"sft.max_steps={options.sft_steps}",
            "grpo.max_steps=0",
            f"marl.max_steps={options.joint_steps}",
            "marl.learning_rate=2e-4",
            "marl.credit.scheme=hierarchical",
            f"evaluation.num_team_scenarios={options.cases}",
            *options.set,
        ],
    )


def train_seed(run: Run) -> None:
    """All stages that are not done yet."""
    train_base(run.path)
    for role in ROLES:
        train_sft(run.path, role)
        train_grpo(run.path, role)
    train_marl(run.path)


def open_probe_setup(home: Run, others: Mapping[str, Run], stage: str, way: Any) -> ProbeSetup:
    """The home run's sealed cases, and everybody's policies."""
    engine, chat = seat_runs(home, others, stage)
    return ProbeSetup(
        scenarios=test_cases(home.config),
        engine=engine,
        chat=chat,
        weights=home.config.team_reward,
        max_completion_tokens=home.config.marl.max_completion_tokens,
        temperature=TEMPERATURES[way],
    )


def measure_team(run: Run, stage: str) -> Scores:
    """Way -> team rewards, values and shares of the first pair's practices by role."""
    found: Scores = {}
    for way in WAYS:
        setup = open_probe_setup(run, {}, stage, way)
        episodes = setup.play(seated("home"), f"shares/{way}")
        decisions = setup.decide(seated("home"), [episode.reports for episode in episodes], f"swap/{way}")
        found[way] = {
            "reward": setup.rewards(episodes),
            "value": setup.values(decisions),
            "shares": count_practices(episodes),
        }
    return found


def count_practices(episodes: Sequence[Episode]) -> dict[str, float]:
    """Role -> share of its texts that begin with `stakes` (ReconcileGPT's: with `priority`)."""
    shares = {}
    for role in ROLES:
        texts = [one.decision if role == RECONCILER else one.reports[role] for one in episodes]
        word = DECISION if role == RECONCILER else REPORT
        shares[role] = statistics.fmean(text.split(" ", 1)[0] == word for text in texts)
    return shares


def measure_swaps(home: Run, others: Mapping[str, Run]) -> Scores:
    """Way -> values of the home team, and of the home team with one role of another: "1/cto" -> values."""
    found: Scores = {}
    for way in WAYS:
        setup = open_probe_setup(home, others, "marl", way)
        reports = {
            name: [episode.reports for episode in setup.play(seated(name), f"shares/{way}")]
            for name in ("home", *others)
        }
        home_team, label = seated("home"), f"swap/{way}"
        found[way] = {"joint": setup.values(setup.decide(home_team, reports["home"], label))}
        for name in others:
            for role in SPECIALISTS:
                mixed = [
                    {**own, role: other[role]}
                    for own, other in zip(reports["home"], reports[name], strict=True)
                ]
                found[way][f"{name}/{role}"] = setup.values(setup.decide(home_team, mixed, label))
            chaired = {**home_team, RECONCILER: f"{name}:{RECONCILER}"}
            values = setup.values(setup.decide(chaired, reports["home"], label))
            found[way][f"{name}/{RECONCILER}"] = values
    return found


def name_convention(shares: Mapping[str, float]) -> str:
    """What most reports and most decisions of a team begin with."""
    is_first = statistics.fmean(shares[role] for role in SPECIALISTS) >= 0.5, shares[RECONCILER] >= 0.5
    return f"{REPORTS[not is_first[0]]}, {DECISIONS[not is_first[1]]}"


def print_shares(teams: Sequence[Mapping[str, Scores]], conventions: Sequence[str]) -> None:
    """Every role's share before and after joint training, sampled."""
    print("\n| practice | " + " | ".join(f"seed {number}" for number in range(len(teams))) + " |")
    print("|---" * (len(teams) + 1) + "|")
    for role in ROLES:
        shares = [[one[stage]["sampled"]["shares"][role] for stage in STAGES] for one in teams]
        word = DECISION if role == RECONCILER else REPORT
        print(f"| {role}: {word} | " + " | ".join(f"{a:.2f} to {b:.2f}" for a, b in shares) + " |")
    print("| settled on | " + " | ".join(conventions) + " |\n")


def print_swaps(cells: Cells, conventions: Sequence[str]) -> None:
    """Every swap of one role, and all swaps between teams of equal and of other conventions."""
    corrected = holm({str(key): paired_permutation_p(*pair) for key, pair in cells.items()})
    for way in WAYS:
        print(f"\n| {way}: team, role of | " + " | ".join(ROLES) + " |")
        print("|---" * (len(ROLES) + 1) + "|")
        places = dict.fromkeys((home, donor) for _, home, donor, _ in cells)
        for home, donor in places:
            keys = [(way, home, donor, role) for role in ROLES]
            texts = [show_change(*cells[key]) + " *" * (corrected[str(key)] < 0.05) for key in keys]
            title = f"{home} ({conventions[home]}), {donor} ({conventions[donor]})"
            print(f"| {title} | " + " | ".join(texts) + " |")
        for title, is_equal in (("other convention, all", False), ("same convention, all", True)):
            chosen = [(h, d) for h, d in places if (conventions[h] == conventions[d]) == is_equal]
            if chosen:
                texts = [show_change(*pool(cells, way, chosen, role)) for role in ROLES]
                print(f"| {title} | " + " | ".join(texts) + " |")
    print(f"\n* p < 0.05 after Holm's correction over {len(cells)} comparisons")


def pool(
    cells: Cells, way: str, chosen: Sequence[tuple[int, int]], role: str
) -> tuple[list[float], list[float]]:
    """Values with and without the swap, one per home case: the mean over its donors."""
    after: list[float] = []
    before: list[float] = []
    for home in dict.fromkeys(home for home, _ in chosen):
        pairs = [cells[way, home, donor, role] for one, donor in chosen if one == home]
        after += [statistics.fmean(values) for values in zip(*(swapped for swapped, _ in pairs), strict=True)]
        before += pairs[0][1]
    return after, before


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument(
        "--train", type=int, action="append", help="train only this seed, measure nothing else"
    )
    parser.add_argument("--sft-steps", type=int, default=250)
    parser.add_argument("--joint-steps", type=int, default=60)
    parser.add_argument("--cases", type=int, default=400)
    parser.add_argument("--set", action="append", default=[], help="any other key of the runs, as a.b=c")
    options = parser.parse_args()
    quiet_libraries()
    torch.set_num_threads(1)
    numbers = options.train or range(options.seeds)
    runs = {seed: Run.create(options.out / f"seed-{seed}", make_config(seed, options)) for seed in numbers}
    teams = [measure_stages(seed, run, options.out / "results") for seed, run in runs.items()]
    if not options.train:
        report(teams, collect_swaps(runs, options.out / "results"))


def measure_stages(seed: int, run: Run, kept: Path) -> dict[str, Scores]:
    """The seed's team before and after joint training, trained where it is not yet."""
    train_seed(run)
    return {
        name: remember(kept / f"{name}-{seed}.json", partial(measure_team, run, stage))
        for name, stage in STAGES.items()
    }


def collect_swaps(runs: Mapping[int, Run], kept: Path) -> Cells:
    """Every team with each role of every other team."""
    cells: dict[tuple[str, int, int, str], tuple[list[float], list[float]]] = {}
    for home, run in runs.items():
        others = {str(seed): other for seed, other in runs.items() if seed != home}
        found = remember(kept / f"swaps-{home}.json", partial(measure_swaps, run, others))
        for way, name, role in product(WAYS, others, ROLES):
            cells[way, home, int(name), role] = (found[way][f"{name}/{role}"], found[way]["joint"])
    return cells


def report(teams: Sequence[Mapping[str, Scores]], cells: Cells) -> None:
    """Every table."""
    values = [{name: {way: one[name][way]["value"] for way in WAYS} for name in STAGES} for one in teams]
    print_levels(values, list(STAGES), "mean value V")
    print_changes(values, [("joint", "alone")], "change of V")
    conventions = [name_convention(one["joint"]["sampled"]["shares"]) for one in teams]
    print_shares(teams, conventions)
    print_swaps(cells, conventions)


if __name__ == "__main__":
    main()
