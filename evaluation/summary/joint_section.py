"""Facts of joint training beyond its scores: the gap it closes, hidden profiles, peak and last.

All from stored scores and logged metrics; a part whose stages or metrics a run lacks is left out.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from evaluation.scoring.scores import TeamScores
from evaluation.stats.effects import closed_share, detectable_change, mcnemar_p, pass_all
from evaluation.stats.intervals import holm, paired_interval, paired_permutation_p

BEFORE, AFTER, CEILING = "grpo", "marl", "oracle_searched"
SUCCESS = 0.9  # V of a try that counts as solved in pass^k
# teams whose hidden profiles are compared with those after joint training
HIDDEN_AGAINST = ("grpo", "single_grpo", "single", "oracle_best")
Row = Mapping[str, float]  # logged metrics of one joint step


def build_joint_section(
    team: Mapping[str, TeamScores], steps: Sequence[Row], num_bootstrap: int
) -> dict[str, Any]:
    """gap, hidden, passes, validation and gradient_mass, each where the run has what it needs."""
    parts = {
        "gap": _measure_gap(team, num_bootstrap),
        "hidden": _measure_hidden(team, num_bootstrap),
        "passes": {stage: passes for stage, one in team.items() if (passes := _measure_passes(one))},
        "validation": describe_validation(steps),
        "gradient_mass": _mean_mass(steps),
    }
    return {name: part for name, part in parts.items() if part}


def _measure_gap(team: Mapping[str, TeamScores], num_bootstrap: int) -> dict[str, Any]:
    """Share of the gap between the GRPO team and the searched policy that joint training closes."""
    if not {BEFORE, AFTER, CEILING} <= team.keys():
        return {}
    before, after, best = team[BEFORE], team[AFTER], team[CEILING].sampled
    pairs = {"sampled": (before.sampled, after.sampled), "greedy": (before.greedy, after.greedy)}
    found = {}
    for way, (earlier, later) in pairs.items():
        share = closed_share(earlier, later, best, num_bootstrap=num_bootstrap) if earlier and later else None
        if share is not None:
            found[way] = asdict(share) | {
                "before": statistics.fmean(earlier),
                "after": statistics.fmean(later),
                "ceiling": statistics.fmean(best),
            }
    return found


def _measure_hidden(team: Mapping[str, TeamScores], num_bootstrap: int) -> dict[str, Any]:
    """The cases in which neither the public facts nor any seat alone names the best option."""
    known = {stage: one for stage, one in team.items() if one.hidden and one.best_option}
    if not known:
        return {}
    places = [place for place, flag in enumerate(next(iter(known.values())).hidden) if flag]
    if not places:
        return {}
    solved = {stage: [one.best_option[place] for place in places] for stage, one in known.items()}
    value = {stage: [one.value[place] for place in places] for stage, one in known.items()}
    changes = {}
    for other in HIDDEN_AGAINST:
        if {AFTER, other} <= known.keys():
            interval = paired_interval(value[AFTER], value[other], num_bootstrap=num_bootstrap)
            changes[f"{AFTER}-{other}"] = asdict(interval) | {
                "p": paired_permutation_p(value[AFTER], value[other]),
                "detectable": detectable_change(value[AFTER], value[other]),
                "solved": statistics.fmean(solved[AFTER]) - statistics.fmean(solved[other]),
                "p_solved": mcnemar_p(solved[AFTER], solved[other]),
            }
    for test in ("p", "p_solved"):
        for name, p in holm({name: change[test] for name, change in changes.items()}).items():
            changes[name][test] = p
    return {
        "n": len(places),
        "share": len(places) / len(next(iter(known.values())).hidden),
        "stages": {
            stage: {"solved": statistics.fmean(solved[stage]), "value": statistics.fmean(value[stage])}
            for stage in known
        },
        "paired": changes,
    }


def _measure_passes(scores: TeamScores) -> dict[str, Any]:
    """Chance that all of k tries at a case have V >= SUCCESS, for k from 1 on."""
    if not scores.repeated_value:
        return {}
    tries = list(zip(scores.value, *scores.repeated_value, strict=False))  # of the cases played again
    successes = [[value >= SUCCESS for value in of_case] for of_case in tries]
    num_tries = 1 + len(scores.repeated_value)
    return {
        "n": len(successes),
        "chances": [pass_all(successes, k) for k in range(1, num_tries + 1)],
        "mean_value": statistics.fmean(value for of_case in tries for value in of_case),
    }


def describe_validation(steps: Sequence[Row]) -> dict[str, Any]:
    """Best and last team reward of the greedy validations, and what the last one lies below the best."""
    seen = [row for row in steps if "validation_reward" in row]
    if not seen:
        return {}
    rewards = [row["validation_reward"] for row in seen]
    last = seen[-1]
    return {
        "steps": [int(row["step"]) for row in seen],
        "rewards": rewards,
        "peak": max(rewards),
        "peak_step": int(seen[rewards.index(max(rewards))]["step"]),
        "last": rewards[-1],
        "last_step": int(last["step"]),
        "fall": last.get("validation_fall", max(rewards) - rewards[-1]),
        "fall_error": last.get("validation_fall_error"),
    }


def _mean_mass(steps: Sequence[Row]) -> dict[str, float]:
    """Role -> mean share of the squared gradient norms."""
    found: dict[str, list[float]] = {}
    for row in steps:
        for name, value in row.items():
            prefix, _, role = name.partition("/")
            if prefix == "gradient_mass":
                found.setdefault(role, []).append(value)
    return {role: statistics.fmean(values) for role, values in found.items()}
