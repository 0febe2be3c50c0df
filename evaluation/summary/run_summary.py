"""The summary of a run: every stage of every role and of the team with intervals, paired changes and gates.

Stored as summary.json in the run folder; the tables, the report and the gates read nothing else.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from evaluation.scoring.scores import FEEDBACK_STAGES, RoleScores, TeamScores
from evaluation.stats.effects import cliffs_delta, cohens_dz, detectable_change, mcnemar_p
from evaluation.stats.intervals import checked, holm, mean_interval, paired_interval, paired_permutation_p
from evaluation.summary.gates import check_gates
from evaluation.summary.joint_section import build_joint_section
from roles.errors import UserError
from simulator.export.atomic_files import read_document, write_document

SUMMARY_FILE = "summary.json"
_KEYS = {"roles", "team", "gates", "seed", "wall_s", "versions"}

S = TypeVar("S", RoleScores, TeamScores)

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
        _add(by_role.setdefault(record.role, {}), record.stage, record, f"role {record.role}")
    team: dict[str, TeamScores] = {}
    for team_record in team_scores:
        _add(team, team_record.stage, team_record, "team")
    summary: dict[str, Any] = {
        "roles": _role_section(by_role, num_bootstrap),
        "team": {stage: _team_stage(record, num_bootstrap) for stage, record in team.items()}
        | {"paired": _adjusted_over_comparisons(_changes(team, TEAM_COMPARISONS, num_bootstrap))},
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


def _add(stages: dict[str, S], stage: str, record: S, owner: str) -> None:
    if stage in stages:
        raise ValueError(f"{owner}: stage {stage!r} given twice")
    stages[stage] = record


def _role_section(by_role: Mapping[str, Mapping[str, RoleScores]], num_bootstrap: int) -> dict[str, Any]:
    changes = {role: _changes(stages, ROLE_COMPARISONS, num_bootstrap) for role, stages in by_role.items()}
    _adjust_over_roles(changes)
    return {
        role: {stage: _role_stage(record, num_bootstrap) for stage, record in stages.items()}
        | {"paired": changes[role]}
        for role, stages in by_role.items()
    }


def _role_stage(record: RoleScores, num_bootstrap: int) -> dict[str, Any]:
    return _reward(record, num_bootstrap) | {
        "exact": _mean(record.sampled_exact),
        "exact_greedy": _mean(record.greedy_exact) if record.greedy else None,
        "feasible": _mean(record.sampled_feasible),
        "tool_failures": record.num_tool_failures / len(record.sampled),
        "mean_tokens": record.mean_tokens,
    }


def _team_stage(record: TeamScores, num_bootstrap: int) -> dict[str, Any]:
    return _reward(record, num_bootstrap) | {
        "value": _mean(record.value),
        "consensus": _mean(record.consensus),
        "unresolved": _mean(record.unresolved),
        "escalation": _mean(record.escalation),
        "agreement": _mean(record.agreement) if record.agreement else None,
        "agreement_when_wrong": record.agreement_when_wrong,
    }


def _reward(record: RoleScores | TeamScores, num_bootstrap: int) -> dict[str, Any]:
    sampled = mean_interval(record.sampled, num_bootstrap=num_bootstrap)
    greedy = mean_interval(record.greedy, num_bootstrap=num_bootstrap) if record.greedy else None
    return {
        "mean": sampled.mean,
        "low": sampled.low,
        "high": sampled.high,
        "n": sampled.n,
        "greedy": greedy.mean if greedy else None,
        "greedy_low": greedy.low if greedy else None,
        "greedy_high": greedy.high if greedy else None,
    }


def _changes(
    stages: Mapping[str, RoleScores] | Mapping[str, TeamScores],
    comparisons: Iterable[tuple[str, str, bool]],
    num_bootstrap: int,
) -> dict[str, dict[str, Any]]:
    changes: dict[str, dict[str, Any]] = {}
    for after, before, has_twin in comparisons:
        if after not in stages or before not in stages:
            continue
        later, earlier = stages[after], stages[before]
        name = f"{after}-{before}"
        changes[name] = _change(later.sampled, earlier.sampled, num_bootstrap)
        changes[name] |= _exact_change(later, earlier, greedy=False)
        if has_twin and later.greedy and earlier.greedy:
            changes[f"{name}_greedy"] = _change(later.greedy, earlier.greedy, num_bootstrap)
            changes[f"{name}_greedy"] |= _exact_change(later, earlier, greedy=True)
    return changes


def _change(after: Sequence[float], before: Sequence[float], num_bootstrap: int) -> dict[str, Any]:
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


def _exact_change(
    after: RoleScores | TeamScores, before: RoleScores | TeamScores, *, greedy: bool
) -> dict[str, float]:
    """McNemar's p of a role's exact answers; a team's record has no such column."""
    if not isinstance(after, RoleScores) or not isinstance(before, RoleScores):
        return {}
    if greedy:
        return {"p_exact": mcnemar_p(after.greedy_exact, before.greedy_exact)}
    return {"p_exact": mcnemar_p(after.sampled_exact, before.sampled_exact)}


def _adjust_over_roles(changes: Mapping[str, dict[str, dict[str, Any]]]) -> None:
    """Replace each p by its Holm adjustment over the roles that have the same comparison."""
    for name in {name for of_role in changes.values() for name in of_role}:
        for test in ("p", "p_exact"):
            raw = {role: of_role[name][test] for role, of_role in changes.items() if name in of_role}
            for role, p in holm(raw).items():
                changes[role][name][test] = p


def _adjusted_over_comparisons(changes: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    adjusted = holm({name: change["p"] for name, change in changes.items()})
    return {name: change | {"p": adjusted[name]} for name, change in changes.items()}


def _mean(values: Sequence[float]) -> float:
    return float(checked(values, "values").mean())
