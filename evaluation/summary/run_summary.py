"""The summary of a run: stages of roles and team with intervals, paired changes, gates, details of the plays.

Stored as summary.json in the run folder; the tables, the report and the gates read nothing else.
"""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from operator import le
from pathlib import Path
from typing import Any

from evaluation.scoring.baselines import BASELINES
from evaluation.scoring.outcomes import (
    FEEDBACK_STAGES,
    MODES,
    TEAM,
    Mode,
    RoleOutcome,
    StagePlays,
    TeamOutcome,
)
from evaluation.stats.intervals import (
    checked,
    closed_share,
    detectable_change,
    holm,
    mcnemar_p,
    mean_interval,
    paired_interval,
    paired_permutation_p,
    pass_all,
)
from evaluation.summary.gates import check_gates
from roles.errors import UserError
from simulator.export.atomic_files import read_document, write_document

SUMMARY_FILE = "summary.json"
FORMAT = 1  # of the summary; changed whenever a table needs what older summaries lack

# (after, before); a comparison is left out where either stage was not run
ROLE_COMPARISONS = (
    ("sft", "untrained"),
    ("grpo", "sft"),
    ("sft_more", "sft"),
    ("grpo", "sft_more"),
    ("sft_own", "sft"),
    ("grpo", "sft_own"),
    *((stage, "grpo") for stage in FEEDBACK_STAGES),
    ("marl", "grpo"),
    ("marl", "heuristic"),
)
TEAM_COMPARISONS = (
    ("grpo", "sft"),
    ("marl", "grpo"),
    ("marl", "sft_instead"),
    ("marl", "grpo_instead"),
    ("marl", "sft_best_habit"),
    ("marl", "single_grpo"),
    ("marl_governed", "grpo_governed"),
    ("marl", "two_fields"),
    ("marl", "oracle_common"),
    ("marl", "oracle_best"),
    ("marl", "oracle_rising"),
)


def build_summary(
    plays: Iterable[StagePlays],
    *,
    seed: int,
    wall_s: float,
    versions: Mapping[str, str],
    weights_changed: Mapping[str, Mapping[str, bool]],
    signal: Mapping[str, Mapping[str, float]],
    joint_steps: Sequence[Mapping[str, float]] = (),
    temperature: float = 1.0,
) -> dict[str, Any]:
    """Return the summary of one seed, its gates included.

    `weights_changed` is stage -> role -> whether the adapter differs from the one before that stage;
    `signal` is stage -> role -> share of groups (grpo) or rows (marl) with nonzero advantage.
    `p` of a paired change (permutation) and `p_exact` (McNemar on exact answers) are Holm-adjusted over the
    roles, or over the team's comparisons; `detectable` is the smallest change that so many scenarios show.
    `joint_steps`: what joint training logged, step by step. `temperature` is that of the sampled plays.

    Raises:
        ValueError: an owner's stage given twice, or stages of unequal length to compare.
    """
    plays = list(plays)
    table: dict[str, dict[str, StagePlays]] = {}
    for one in plays:
        if one.stage in table.setdefault(one.owner, {}):
            raise ValueError(f"{one.owner}: stage {one.stage!r} given twice")
        table[one.owner][one.stage] = one
    team = table.pop(TEAM, {})
    changes = {role: _list_changes(stages, ROLE_COMPARISONS) for role, stages in table.items()}
    adjust_over_roles(changes, ("p", "p_exact"))
    team_changes = _list_changes(team, TEAM_COMPARISONS)
    adjust(team_changes, ("p",))
    summary: dict[str, Any] = {
        "format": FORMAT,
        "roles": {
            role: {stage: _describe_role(one) for stage, one in stages.items()} | {"paired": changes[role]}
            for role, stages in table.items()
        },
        "team": {stage: _describe_team(one) for stage, one in team.items()} | {"paired": team_changes},
        "joint": build_joint_section(team, joint_steps),
        "details": build_details(plays),
        "seed": seed,
        "temperature": temperature,
        "wall_s": wall_s,
        "versions": dict(versions),
        "weights_changed": {stage: dict(roles) for stage, roles in weights_changed.items()},
        "signal": {stage: dict(roles) for stage, roles in signal.items()},
    }
    summary["gates"] = [asdict(gate) for gate in check_gates(summary)]
    return summary


def combine_seeds(summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One summary of several runs: the first seed's keys at top level, all of them under "seeds".

    What a report shows of one run alone, details and cases, is left out there.

    Raises:
        ValueError: no summary.
    """
    if not summaries:
        raise ValueError("no summary to combine")
    alone = {"details", "cases", "seeds"}
    seeds = [{key: value for key, value in one.items() if key not in alone} for one in summaries]
    return {**summaries[0], "seeds": seeds}


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
    if summary.get("format") != FORMAT:
        raise UserError(f"{path} is not a run summary of this version of emads; {remedy}")
    return summary


def _describe_role(plays: StagePlays) -> dict[str, Any]:
    return _describe_reward(plays) | {
        "exact": _mean(plays.column("exact")),
        "exact_greedy": _mean(plays.column("exact", "greedy")) if plays.greedy else None,
        "feasible": _mean(plays.column("feasible")),
        "tool_failures": _mean(plays.column("failed_calls")),
        "mean_tokens": _mean(plays.column("tokens")),
    }


def _describe_team(plays: StagePlays) -> dict[str, Any]:
    agreement, value = plays.column("agreement"), plays.column("value")
    of_worthless = [share for share, worth in zip(agreement, value, strict=True) if worth == 0]
    parts = ("value", "consensus", "unresolved", "escalation", "agreement")
    return _describe_reward(plays) | {
        **{part: _mean(plays.column(part)) for part in parts},
        "agreement_when_wrong": _mean(of_worthless) if of_worthless else None,
    }


def _describe_reward(plays: StagePlays) -> dict[str, Any]:
    rewards = plays.column("reward", "greedy")
    greedy = asdict(mean_interval(rewards)) if rewards else dict.fromkeys(("mean", "low", "high"))
    return asdict(mean_interval(plays.column("reward"))) | {
        "greedy": greedy["mean"],
        "greedy_low": greedy["low"],
        "greedy_high": greedy["high"],
    }


def _list_changes(
    stages: Mapping[str, StagePlays], comparisons: Iterable[tuple[str, str]]
) -> dict[str, dict[str, Any]]:
    """Every comparison of two stages that there are, p not yet adjusted; `p_exact` for roles."""
    changes: dict[str, dict[str, Any]] = {}
    for after, before in comparisons:
        if after not in stages or before not in stages:
            continue
        later, earlier = stages[after], stages[before]
        for mode in shared_modes([later, earlier]):
            change = _measure_change(*(column_in(one, "reward", mode) for one in (later, earlier)))
            if later.owner != TEAM:
                change["p_exact"] = mcnemar_p(*(column_in(one, "exact", mode) for one in (later, earlier)))
            changes[name_change(after, before, mode)] = change
    return changes


def shared_modes(plays: Sequence[StagePlays]) -> Sequence[Mode]:
    """Return the ways in which all of these play; a player without a model plays alike in both."""
    is_greedy = any(one.greedy for one in plays)
    return MODES if is_greedy and all(one.greedy or one.stage in BASELINES for one in plays) else MODES[:1]


def column_in(plays: StagePlays, name: str, mode: Mode) -> list[Any]:
    """Return a field of every play in one of the `shared_modes`."""
    return plays.column(name, "sampled" if plays.stage in BASELINES else mode)


def name_change(after: str, before: str, mode: Mode) -> str:
    """Return the key of a comparison: "grpo-sft", "grpo-sft_greedy"."""
    return f"{after}-{before}{'_greedy' if mode == 'greedy' else ''}"


def _measure_change(after: Sequence[float], before: Sequence[float]) -> dict[str, Any]:
    return asdict(paired_interval(after, before)) | {
        "p": paired_permutation_p(after, before),
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


def build_joint_section(team: Mapping[str, StagePlays], steps: Sequence[Step]) -> dict[str, Any]:
    """gap, hidden, passes, validation and gradient_mass, each where the run has what it needs."""
    parts = {
        "gap": _measure_gap(team),
        "hidden": _measure_hidden(team),
        "passes": {stage: passes for stage, one in team.items() if (passes := _measure_passes(one))},
        "validation": describe_validation(steps),
        "gradient_mass": _mean_mass(steps),
    }
    return {name: part for name, part in parts.items() if part}


def _measure_gap(team: Mapping[str, StagePlays]) -> dict[str, Any]:
    """Share of the gap between the GRPO team and the searched policy that joint training closes."""
    if not {BEFORE, AFTER, CEILING} <= team.keys():
        return {}
    best = team[CEILING].column("reward")
    found: dict[str, Any] = {}
    for mode in MODES:
        earlier, later = (team[stage].column("reward", mode) for stage in (BEFORE, AFTER))
        share = closed_share(earlier, later, best) if earlier and later else None
        if share is not None:
            means = map(statistics.fmean, (earlier, later, best))
            found[mode] = asdict(share) | dict(zip(("before", "after", "ceiling"), means, strict=True))
    return found


def _measure_hidden(team: Mapping[str, StagePlays]) -> dict[str, Any]:
    """The cases in which neither the public facts nor any seat alone names the best option."""
    flags = next((one.column("hidden") for one in team.values()), [])
    if not any(flags):
        return {}

    def pick(stage: str, name: str) -> list[Any]:
        return [value for value, flag in zip(team[stage].column(name), flags, strict=True) if flag]

    solved, value = ({stage: pick(stage, name) for stage in team} for name in ("best_option", "value"))
    changes = {}
    for other in HIDDEN_AGAINST:
        if {AFTER, other} <= team.keys():
            changes[f"{AFTER}-{other}"] = _measure_change(value[AFTER], value[other]) | {
                "solved": statistics.fmean(solved[AFTER]) - statistics.fmean(solved[other]),
                "p_solved": mcnemar_p(solved[AFTER], solved[other]),
            }
    adjust(changes, ("p", "p_solved"))
    return {
        "n": sum(flags),
        "share": sum(flags) / len(flags),
        "stages": {
            stage: {"solved": statistics.fmean(solved[stage]), "value": statistics.fmean(value[stage])}
            for stage in team
        },
        "paired": changes,
    }


def _measure_passes(plays: StagePlays) -> dict[str, Any]:
    """Chance that all of k tries at a case have V >= SUCCESS, for k from 1 on."""
    if not plays.repeats:
        return {}
    further = ([play.value for play in one] for one in plays.repeats)
    tries = list(zip(plays.column("value"), *further, strict=False))  # of the cases played again
    successes = [[value >= SUCCESS for value in of_case] for of_case in tries]
    return {
        "n": len(successes),
        "chances": [pass_all(successes, k) for k in range(1, len(plays.repeats) + 2)],
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


CATEGORIES = ("difficulty", "sector")
Plays = Sequence[RoleOutcome] | Sequence[TeamOutcome]


def build_details(plays: Iterable[StagePlays]) -> dict[str, Any]:
    """owner -> stage -> mode -> process, failures, difficulty, sector, and a team's offers; no baselines."""
    details: dict[str, Any] = {}
    for one in plays:
        for mode in MODES if one.stage not in BASELINES else ():
            rows: Any = one.sampled if mode == "sampled" else one.greedy
            if not rows:
                continue
            section: dict[str, Any] = {"process": process(rows), "failures": failures(rows)}
            for category in CATEGORIES:
                section[category] = break_down(rows, category)
            if isinstance(rows[0], TeamOutcome):
                section["offers"] = offers_by_seat(rows)
            details.setdefault(one.owner, {}).setdefault(one.stage, {})[mode] = section
    return details


def process(outcomes: Plays) -> dict[str, float]:
    """Means per play: reward, turns, tokens, shares well formed, escalated, exact; of roles tool calls too.

    Of a team also the mean tokens in sequence and the largest context of any play.
    """

    def means(*names: str) -> dict[str, float]:
        return {name: _plain_mean(getattr(outcome, name) for outcome in outcomes) for name in names}

    numbers = {"n": float(len(outcomes)), **means("reward", "turns", "tokens", "well_formed", "escalated")}
    teams = [outcome for outcome in outcomes if isinstance(outcome, TeamOutcome)]
    if not teams:
        return numbers | means("tool_calls", "failed_calls", "truncated", "exact")
    exact = _plain_mean(one.value == 1 for one in teams)
    return numbers | {"exact": exact, **means("sequential"), "context": float(max(t.context for t in teams))}


def failures(outcomes: Plays) -> dict[str, int]:
    """Count the plays that each kind of failure ended, the most frequent first; exact plays are left out."""
    kinds = Counter(kind for outcome in outcomes if (kind := _find_failure(outcome)) is not None)
    return dict(kinds.most_common())


def _find_failure(outcome: RoleOutcome | TeamOutcome) -> str | None:
    if isinstance(outcome, RoleOutcome):
        return "cut off by a limit" if outcome.truncated else outcome.failure
    if outcome.well_formed < 1:
        return "a message that cannot be read"
    if outcome.escalation:
        return "needless escalation" if outcome.escalated else "missed escalation"
    if outcome.unresolved:
        return "breaks a hard limit"
    if outcome.value < 1:
        return "a plan that can be run, but not the best"
    return None if outcome.consensus == 1 else "best plan, wrong votes"


def break_down(outcomes: Plays, category: str) -> dict[str, dict[str, float]]:
    """Mean reward with its interval by difficulty or sector, in order of the category's values."""
    groups: dict[Any, list[float]] = {}
    for outcome in outcomes:
        groups.setdefault(getattr(outcome, category), []).append(outcome.reward)
    found = ((str(value), mean_interval(groups[value])) for value in sorted(groups))
    return {value: asdict(one) | {"n": float(one.n)} for value, one in found}


def offers_by_seat(outcomes: Sequence[TeamOutcome]) -> dict[str, dict[str, float]]:
    """Per seat: reports read (share), offers and false claims per report, plans that fund it (share)."""
    table = {}
    for seat in dict.fromkeys(seat for outcome in outcomes for seat in outcome.reports):
        heard = [one for one in outcomes if seat in one.reports]
        decided = [one.funded for one in heard if one.funded or not one.escalated]
        table[seat] = {
            "read": _plain_mean(seat in one.offers for one in heard),
            "offers": _plain_mean(one.offers.get(seat, 0) for one in heard),
            "false_claims": _plain_mean(one.false_claims.get(seat, 0) for one in heard),
            "funded": _plain_mean(seat in funded for funded in decided) if decided else 0.0,
        }
    return table


def is_on_front(one: Mapping[str, float], others: Iterable[Mapping[str, float]]) -> bool:
    """Return whether no other team earns as much with as small a context and as few tokens of both kinds.

    Each is what `process` returns; teams that are equal in all four are both on the front.
    """

    def rank(team: Mapping[str, float]) -> tuple[float, ...]:
        return -team["reward"], team["context"], team["sequential"], team["tokens"]

    own = rank(one)
    return not any(other != own and all(map(le, other, own)) for other in map(rank, others))


def _plain_mean(values: Iterable[float]) -> float:
    numbers = [float(value) for value in values]
    return sum(numbers) / len(numbers)
