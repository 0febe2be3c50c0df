"""Kept results, paired changes and roles of several runs, for measurements over several seeds."""

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluation.stats.intervals import holm, paired_interval, paired_permutation_p
from roles.registry import ROLES
from simulator.chat import Chat
from simulator.chat_messages import MessageChat
from simulator.engines.base import Engine
from simulator.engines.routed import RoutedEngine, route_teams
from simulator.export.atomic_files import encode_json
from training.models.weights import load_team
from training.runs.run_folder import Run
from training.stages.from_config import make_chat, team_engine

WAYS = ("sampled", "greedy")
Scores = dict[str, Any]  # way -> one number per case, and whatever else a measurement keeps


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


def seat_runs(home: Run, others: Mapping[str, Run], stage: str) -> tuple[Engine, MessageChat]:
    """Policy "home:cto" is the home run's CTO, "NAME:cto" that of another run."""
    teams: dict[str, tuple[Engine, Chat]] = {}
    for name, run in {"home": home, **others}.items():
        models, tokenizer = load_team(run, stage)
        engine = team_engine(models, tokenizer, run.config, stage)
        teams[name] = engine, make_chat(tokenizer, run.config)
    return RoutedEngine(route_teams(teams, list(ROLES))), MessageChat()


def seated(name: str) -> dict[str, str]:
    """Role -> policy of the run of this name."""
    return {role: f"{name}:{role}" for role in ROLES}


def show_change(after: Sequence[float], before: Sequence[float]) -> str:
    """Paired change with its interval."""
    change = paired_interval(after, before)
    return f"{change.mean:+.3f} [{change.low:+.3f}, {change.high:+.3f}]"


def flatten(runs: Sequence[Mapping[str, Scores]], name: str, way: str) -> list[float]:
    """The scores of all seeds' cases."""
    return [value for one in runs for value in one[name][way]]


def print_levels(arms: Sequence[Mapping[str, Scores]], names: Sequence[str], title: str) -> None:
    """Means of every seed."""
    print(f"| {title} | way | " + " | ".join(f"seed {n}" for n in range(len(arms))) + " |")
    print("|---|---" + "|---:" * len(arms) + "|")
    for way in WAYS:
        for name in names:
            means = [f"{statistics.fmean(one[name][way]):.3f}" for one in arms]
            print(f"| {name} | {way} | " + " | ".join(means) + " |")


def print_changes(
    teams: Sequence[Mapping[str, Scores]], comparisons: Sequence[tuple[str, str]], title: str
) -> None:
    """Of every seed and of all cases together; stars after Holm's correction over all cells."""
    columns = [(f"seed {number}", [one]) for number, one in enumerate(teams)] + [("all", list(teams))]
    pairs = {
        (after, before, way, column): (flatten(chosen, after, way), flatten(chosen, before, way))
        for way in WAYS
        for after, before in comparisons
        for column, chosen in columns
    }
    corrected = holm({str(key): paired_permutation_p(*pair) for key, pair in pairs.items()})
    print(f"\n| {title} | way | " + " | ".join(name for name, _ in columns) + " |")
    print("|---|---" + "|---:" * len(columns) + "|")
    for way in WAYS:
        for after, before in comparisons:
            keys = [(after, before, way, column) for column, _ in columns]
            texts = [show_change(*pairs[key]) + " *" * (corrected[str(key)] < 0.05) for key in keys]
            print(f"| {after} - {before} | {way} | " + " | ".join(texts) + " |")
    print(f"\n* p < 0.05 after Holm's correction over {len(pairs)} comparisons\n")
