"""Scores broken down: by difficulty, sector and wording; steps, tokens, tool failures, format, faults.

Computed from stored outcomes alone; kept as details.json beside summary.json, and shown as tables.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluation.scoring.outcomes import Mode, OutcomeFile, RoleOutcome, TeamOutcome
from evaluation.scoring.scores import TRAINED_STAGES
from evaluation.stats.intervals import mean_interval
from evaluation.summary.run_table import STAGE_TITLES, TEAM_TITLES, interval_cell, role_title
from evaluation.summary.tables import PlainTable
from roles.errors import UserError
from roles.team import RECONCILER, SPECIALISTS
from simulator.export.atomic_files import read_document, write_document

DETAILS_FILE = "details.json"
OUTCOMES_FOLDER = Path("scores") / "outcomes"
CATEGORIES = ("difficulty", "sector")
TEAM = "team"
Outcomes = dict[tuple[str, str, Mode], list[RoleOutcome] | list[TeamOutcome]]  # by (owner, stage, mode)


def read_outcomes(run_path: Path) -> Outcomes:
    """Every stored outcome of a run, by owner (a role or "team"), stage and mode; none where none is stored.

    Raises:
        UserError: a damaged file.
    """
    found: Outcomes = {}
    for path in sorted((run_path / OUTCOMES_FOLDER).glob("*.jsonl")):
        name, _, mode = path.stem.rpartition(".")
        stage, _, owner = name.rpartition("-")
        if mode not in ("sampled", "greedy") or not stage:
            raise UserError(f"{path} is not named STAGE-ROLE.sampled.jsonl or STAGE-ROLE.greedy.jsonl")
        key: tuple[str, str, Mode] = (owner, stage, "sampled" if mode == "sampled" else "greedy")
        if owner == TEAM:
            found[key] = OutcomeFile(path, TeamOutcome).read()
        else:
            found[key] = OutcomeFile(path, RoleOutcome).read()
    order = [*SPECIALISTS, RECONCILER]
    known = sorted(found, key=lambda key: (order.index(key[0]) if key[0] in order else len(order), key[0]))
    return {key: found[key] for key in known if found[key]}


def build_details(outcomes: Outcomes, *, num_bootstrap: int = 2000) -> dict[str, Any]:
    """owner -> stage -> mode -> process, failures, difficulty, sector, and parts or offers."""
    details: dict[str, Any] = {}
    for (owner, stage, mode), rows in outcomes.items():
        section: dict[str, Any] = {"process": process(rows), "failures": failures(rows)}
        for category in CATEGORIES:
            section[category] = break_down(rows, category, num_bootstrap)
        parts = [outcome.parts for outcome in rows if isinstance(outcome, RoleOutcome)]
        if parts:
            section["parts"] = _mean_parts(parts)
        else:
            section["offers"] = offers_by_seat([one for one in rows if isinstance(one, TeamOutcome)])
        details.setdefault(owner, {}).setdefault(stage, {})[mode] = section
    return details


def process(outcomes: Sequence[RoleOutcome] | Sequence[TeamOutcome]) -> dict[str, float]:
    """Means per play: turns, tokens, share well formed and escalated; of roles tool calls and limits too."""
    numbers = {
        "n": float(len(outcomes)),
        "turns": _mean(outcome.turns for outcome in outcomes),
        "tokens": _mean(outcome.tokens for outcome in outcomes),
        "well_formed": _mean(outcome.well_formed for outcome in outcomes),
        "escalated": _mean(outcome.escalated for outcome in outcomes),
    }
    roles = [outcome for outcome in outcomes if isinstance(outcome, RoleOutcome)]
    if roles:
        numbers["tool_calls"] = _mean(outcome.tool_calls for outcome in roles)
        numbers["failed_calls"] = _mean(outcome.failed_calls for outcome in roles)
        numbers["truncated"] = _mean(outcome.truncated for outcome in roles)
        numbers["exact"] = _mean(outcome.exact for outcome in roles)
    else:
        numbers["exact"] = _mean(one.value == 1 for one in outcomes if isinstance(one, TeamOutcome))
    return numbers


def failures(outcomes: Sequence[RoleOutcome] | Sequence[TeamOutcome]) -> dict[str, int]:
    """Count the plays that each kind of failure ended, the most frequent first; exact plays are left out."""
    kinds: Counter[str] = Counter()
    for outcome in outcomes:
        if isinstance(outcome, RoleOutcome):
            kind = "cut off by a limit" if outcome.truncated else outcome.failure
        else:
            kind = _team_failure(outcome)
        if kind is not None:
            kinds[kind] += 1
    return dict(kinds.most_common())


def _team_failure(outcome: TeamOutcome) -> str | None:
    if outcome.well_formed < 1:
        return "a message that cannot be read"
    if outcome.escalation:
        return "needless escalation" if outcome.escalated else "missed escalation"
    if outcome.unresolved:
        return "breaks a hard limit"
    if outcome.value < 1:
        return "a plan that can be run, but not the best"
    return None if outcome.consensus == 1 else "best plan, wrong votes"


def break_down(
    outcomes: Sequence[RoleOutcome] | Sequence[TeamOutcome], category: str, num_bootstrap: int
) -> dict[str, dict[str, float]]:
    """Mean reward with its interval by difficulty, sector or form, in order of the category's values."""
    groups: dict[Any, list[float]] = {}
    for outcome in outcomes:
        groups.setdefault(getattr(outcome, category), []).append(outcome.reward)
    rows = {}
    for value in sorted(groups):
        interval = mean_interval(groups[value], num_bootstrap=num_bootstrap)
        rows[str(value)] = {
            "mean": interval.mean,
            "low": interval.low,
            "high": interval.high,
            "n": float(interval.n),
        }
    return rows


def offers_by_seat(outcomes: Sequence[TeamOutcome]) -> dict[str, dict[str, float]]:
    """Per seat: reports read (share), offers and false claims per report, plans that fund it (share)."""
    seats = dict.fromkeys(seat for outcome in outcomes for seat in outcome.reports)
    table = {}
    for seat in seats:
        heard = [one for one in outcomes if seat in one.reports]
        decided = [one.funded for one in heard if one.funded or not one.escalated]
        table[seat] = {
            "read": _mean(seat in one.offers for one in heard),
            "offers": _mean(one.offers.get(seat, 0) for one in heard),
            "false_claims": _mean(one.false_claims.get(seat, 0) for one in heard),
            "funded": _mean(seat in funded for funded in decided) if decided else 0.0,
        }
    return table


def write_details(run_path: Path, details: Mapping[str, Any]) -> Path:
    """Write details.json into the run folder, all or nothing."""
    return write_document(run_path / DETAILS_FILE, details)


def read_details(run_path: Path) -> dict[str, Any]:
    """Return the details of a run; empty where none are stored."""
    return read_document(run_path / DETAILS_FILE, f"run `emads evaluate {run_path}` again")


def _mean_parts(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean of each named part over all plays; a rejected answer has none and counts 0."""
    names = dict.fromkeys(name for one in parts for name in one)
    return {name: _mean(one.get(name, 0.0) for one in parts) for name in names}


def _mean(values: Iterable[float]) -> float:
    numbers = [float(value) for value in values]
    return sum(numbers) / len(numbers)


PROCESS = (
    ("turns", "turns", "{:.1f}"),
    ("tokens", "tokens", "{:.0f}"),
    ("tool_calls", "tool calls", "{:.1f}"),
    ("failed_calls", "failed", "{:.2f}"),
    ("well_formed", "well formed", "{:.3f}"),
    ("truncated", "cut off", "{:.3f}"),
    ("escalated", "escalated", "{:.3f}"),
)


def owner_title(owner: str) -> str:
    """Return a role's title; "Team" for the team."""
    return "Team" if owner == "team" else role_title(owner)


def stage_title(stage: str) -> str:
    """Return a stage as people say it."""
    return STAGE_TITLES.get(stage) or TEAM_TITLES.get(stage, stage)


def ordered_stages(section: Mapping[str, Any]) -> list[str]:
    """Stages in training order, others after them."""
    known = [stage for stage in TRAINED_STAGES if stage in section]
    return known + [stage for stage in section if stage not in known]


def detail_tables(details: Mapping[str, Any]) -> list[PlainTable]:
    """Process and difficulty tables; none for a run without details."""
    return [process_table(details), _category_table(details, "difficulty")] if details else []


def process_table(details: Mapping[str, Any]) -> PlainTable:
    """Means per play, by owner and stage."""
    rows = []
    for owner, section in details.items():
        for stage in ordered_stages(section):
            sampled = section[stage]["sampled"]
            numbers = sampled["process"]
            cells = [form.format(numbers[key]) if key in numbers else "-" for key, _, form in PROCESS]
            faults = ", ".join(f"{kind} {count}" for kind, count in list(sampled["failures"].items())[:3])
            rows.append((owner_title(owner), stage_title(stage), *cells, f"{numbers['n']:.0f}", faults))
    return PlainTable(
        title="Sampled plays: means per play",
        titles=("who", "stage", *(title for _, title, _ in PROCESS), "n", "most frequent faults"),
        rows=tuple(rows),
        caption="well formed, cut off and escalated are shares",
        num_names=2,
    )


def _category_table(details: Mapping[str, Any], category: str) -> PlainTable:
    sampled = {
        (owner, stage): section[stage]["sampled"][category]
        for owner, section in details.items()
        for stage in ordered_stages(section)
    }
    values = sorted({value for row in sampled.values() for value in row}, key=lambda one: (len(one), one))
    rows = (
        (
            owner_title(owner),
            stage_title(stage),
            *(interval_cell(row[value]) if value in row else "-" for value in values),
        )
        for (owner, stage), row in sampled.items()
    )
    return PlainTable(
        title=f"Reward by {category}",
        titles=("who", "stage", *values),
        rows=tuple(rows),
        caption="mean [95 % interval]",
        num_names=2,
    )
