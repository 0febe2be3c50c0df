"""The summary of a run: every stage of every role and of the team with intervals, paired changes and gates.

Stored as summary.json in the run folder; the tables, the report and the gates read nothing else.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from evaluation.scoring.scores import FEEDBACK_STAGES, RoleScores, TeamScores
from evaluation.stats.effects import (
    cliffs_delta,
    closed_share,
    cohens_dz,
    detectable_change,
    mcnemar_p,
    pass_all,
)
from evaluation.stats.intervals import checked, holm, mean_interval, paired_interval, paired_permutation_p
from evaluation.summary.gates import check_gates
from roles.errors import UserError
from simulator.export.atomic_files import read_document, write_document

SUMMARY_FILE = "summary.json"
_KEYS = {"roles", "team", "gates", "seed", "wall_s", "versions"}

# (after, before, greedy twin too); a comparison is left out where either stage was not run
ROLE_COMPARISONS = (
    ("sft", "untrained", False),
    ("grpo", "sft", True),
    ("sft_more", "sft", True),
    ("grpo", "sft_more", True),
    ("sft_own", "sft", True),
    ("grpo", "sft_own", True),
    *((stage, "grpo", True) for stage in FEEDBACK_STAGES),
    ("marl", "grpo", True),
    ("marl", "heuristic", False),
)
TEAM_COMPARISONS = (
    ("grpo", "sft", False),
    ("marl", "grpo", True),
    ("marl", "sft_instead", True),
    ("marl", "grpo_instead", True),
    ("marl", "sft_best_habit", True),
    ("marl", "single_grpo", True),
    ("marl_governed", "grpo_governed", True),
    ("marl", "oracle_common", False),
    ("marl", "oracle_best", False),
)


def build_summary(
    role_scores: Iterable[RoleScores],
    team_scores: Iterable[TeamScores],
    *,
    seed: int,
    wall_s: float,
    versions: Mapping[str, str],
    weights_changed: Mapping[str, Mapping[str, bool]],
    signal: Mapping[str, Mapping[str, float]],
    num_bootstrap: int = 2000,
    joint_steps: Sequence[Mapping[str, float]] = (),
    temperature: float = 1.0,
) -> dict[str, Any]:
    """Return the summary of one seed, its gates included.

    `weights_changed` is stage -> role -> whether the adapter differs from the one before that stage;
    `signal` is stage -> role -> share of groups (grpo) or rows (marl) with nonzero advantage.
    `p` of a paired change (permutation) and `p_exact` (McNemar on exact answers) are Holm-adjusted over the
    roles, or over the team's comparisons; `dz` and `cliffs_delta` are its effect sizes, `detectable` is the
    smallest change that so many scenarios show. `joint_steps`: what joint training logged, step by step.
    `temperature` is that of the sampled plays.

    Raises:
        ValueError: a role's or the team's stage given twice, or stages of unequal length to compare.
    """
    by_role: dict[str, dict[str, RoleScores]] = {}
    for record in role_scores:
        stages = by_role.setdefault(record.role, {})
        if record.stage in stages:
            raise ValueError(f"role {record.role}: stage {record.stage!r} given twice")
        stages[record.stage] = record
    team: dict[str, TeamScores] = {}
    for team_record in team_scores:
        if team_record.stage in team:
            raise ValueError(f"team: stage {team_record.stage!r} given twice")
        team[team_record.stage] = team_record
    changes = {role: _list_changes(one, ROLE_COMPARISONS, num_bootstrap) for role, one in by_role.items()}
    adjust_over_roles(changes, ("p", "p_exact"))
    team_changes = _list_changes(team, TEAM_COMPARISONS, num_bootstrap)
    adjust(team_changes, ("p",))
    summary: dict[str, Any] = {
        "roles": {
            role: {stage: _describe_role(record, num_bootstrap) for stage, record in stages.items()}
            | {"paired": changes[role]}
            for role, stages in by_role.items()
        },
        "team": {stage: _describe_team(record, num_bootstrap) for stage, record in team.items()}
        | {"paired": team_changes},
        "joint": build_joint_section(team, joint_steps, num_bootstrap),
        "seed": seed,
        "temperature": temperature,
        "wall_s": wall_s,
        "versions": dict(versions),
        "weights_changed": {stage: dict(roles) for stage, roles in weights_changed.items()},
        "signal": {stage: dict(roles) for stage, roles in signal.items()},
    }
    summary["gates"] = [gate.as_dict() for gate in check_gates(summary)]
    return summary


def combine_seeds(summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One summary of several runs: the first seed's keys at top level, all of them under "seeds".

    Raises:
        ValueError: no summary.
    """
    if not summaries:
        raise ValueError("no summary to combine")
    return {**summaries[0], "seeds": [dict(summary) for summary in summaries]}


def write_summary(run_path: Path, summary: Mapping[str, Any]) -> Path:
    """Write summary.json into the run folder, all or nothing."""
    return write_document(run_path / SUMMARY_FILE, summary)


def read_summary(run_path: Path) -> dict[str, Any]:
    """Return the summary of a run folder.

    Raises:
        UserError: missing or not a summary; names the file and the remedy.
    """
    path = run_path / SUMMARY_FILE
    if not path.is_file():
        raise UserError(f"no {path}; make it with `emads evaluate {run_path}` or `emads demo {run_path}`")
    remedy = f"run `emads evaluate {run_path}` again"
    summary = read_document(path, remedy)
    if not summary.keys() >= _KEYS:
        raise UserError(f"{path} is not a run summary; {remedy}")
    return summary


def _describe_role(record: RoleScores, num_bootstrap: int) -> dict[str, Any]:
    return _describe_reward(record, num_bootstrap) | {
        "exact": _mean(record.sampled_exact),
        "exact_greedy": _mean(record.greedy_exact) if record.greedy else None,
        "feasible": _mean(record.sampled_feasible),
        "tool_failures": record.num_tool_failures / len(record.sampled),
        "mean_tokens": record.mean_tokens,
    }


def _describe_team(record: TeamScores, num_bootstrap: int) -> dict[str, Any]:
    parts = ("value", "consensus", "unresolved", "escalation")
    return _describe_reward(record, num_bootstrap) | {
        **{part: _mean(getattr(record, part)) for part in parts},
        "agreement": _mean(record.agreement) if record.agreement else None,
        "agreement_when_wrong": record.agreement_when_wrong,
    }


def _describe_reward(record: RoleScores | TeamScores, num_bootstrap: int) -> dict[str, Any]:
    sampled = mean_interval(record.sampled, num_bootstrap=num_bootstrap)
    greedy = mean_interval(record.greedy, num_bootstrap=num_bootstrap) if record.greedy else None
    return {
        **asdict(sampled),
        "greedy": greedy.mean if greedy else None,
        "greedy_low": greedy.low if greedy else None,
        "greedy_high": greedy.high if greedy else None,
    }


def _list_changes(
    stages: Mapping[str, RoleScores] | Mapping[str, TeamScores],
    comparisons: Iterable[tuple[str, str, bool]],
    num_bootstrap: int,
) -> dict[str, dict[str, Any]]:
    """Every comparison of two stages that there are, p not yet adjusted; `p_exact` for roles."""
    changes: dict[str, dict[str, Any]] = {}
    for after, before, has_twin in comparisons:
        if after not in stages or before not in stages:
            continue
        later, earlier = stages[after], stages[before]
        for way in ("sampled", "greedy") if has_twin and later.greedy and earlier.greedy else ("sampled",):
            change = _measure_change(getattr(later, way), getattr(earlier, way), num_bootstrap)
            if isinstance(later, RoleScores):
                exact = (getattr(one, f"{way}_exact") for one in (later, earlier))
                change["p_exact"] = mcnemar_p(*exact)
            changes[f"{after}-{before}{'_greedy' if way == 'greedy' else ''}"] = change
    return changes


def _measure_change(after: Sequence[float], before: Sequence[float], num_bootstrap: int) -> dict[str, Any]:
    interval = paired_interval(after, before, num_bootstrap=num_bootstrap)
    return {
        "mean": interval.mean,
        "low": interval.low,
        "high": interval.high,
        "p": paired_permutation_p(after, before),
        "dz": cohens_dz(after, before),
        "cliffs_delta": cliffs_delta(after, before),
        "detectable": detectable_change(after, before),
    }


def adjust(changes: Mapping[str, dict[str, Any]], tests: Iterable[str]) -> None:
    """Replace each p of these tests by its Holm adjustment over all these changes."""
    for test in tests:
        for name, p in holm({name: change[test] for name, change in changes.items()}).items():
            changes[name][test] = p


def adjust_over_roles(changes: Mapping[str, Mapping[str, dict[str, Any]]], tests: Sequence[str]) -> None:
    """Adjust each comparison over the roles that have it."""
    for name in {name for of_role in changes.values() for name in of_role}:
        adjust({role: of_role[name] for role, of_role in changes.items() if name in of_role}, tests)


def _mean(values: Sequence[float]) -> float:
    return float(checked(values, "values").mean())


BEFORE, AFTER, CEILING = "grpo", "marl", "oracle_searched"
SUCCESS = 0.9  # V of a try that counts as solved in pass^k
# teams whose hidden profiles are compared with those after joint training
HIDDEN_AGAINST = ("grpo", "single_grpo", "single", "oracle_best")
Step = Mapping[str, float]  # logged metrics of one joint step


def build_joint_section(
    team: Mapping[str, TeamScores], steps: Sequence[Step], num_bootstrap: int
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
    best = team[CEILING].sampled
    found = {}
    for way in ("sampled", "greedy"):
        earlier, later = getattr(team[BEFORE], way), getattr(team[AFTER], way)
        share = closed_share(earlier, later, best, num_bootstrap=num_bootstrap) if earlier and later else None
        if share is not None:
            means = map(statistics.fmean, (earlier, later, best))
            found[way] = asdict(share) | dict(zip(("before", "after", "ceiling"), means, strict=True))
    return found


def _measure_hidden(team: Mapping[str, TeamScores], num_bootstrap: int) -> dict[str, Any]:
    """The cases in which neither the public facts nor any seat alone names the best option."""
    known = {stage: one for stage, one in team.items() if one.hidden and one.best_option}
    flags = next((one.hidden for one in known.values()), ())
    places = [place for place, flag in enumerate(flags) if flag]
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
    adjust(changes, ("p", "p_solved"))
    return {
        "n": len(places),
        "share": len(places) / len(flags),
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


def describe_validation(steps: Sequence[Step]) -> dict[str, Any]:
    """Best and last team reward of the validations, and what the last one lies below the best."""
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


def _mean_mass(steps: Sequence[Step]) -> dict[str, float]:
    """Role -> mean share of the squared gradient norms."""
    found: dict[str, list[float]] = {}
    for row in steps:
        for name, value in row.items():
            prefix, _, role = name.partition("/")
            if prefix == "gradient_mass":
                found.setdefault(role, []).append(value)
    return {role: statistics.fmean(values) for role, values in found.items()}
