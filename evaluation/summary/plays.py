"""The play table of a run, a row per sealed play, and what is broken down from it.

Rows are kept as results.jsonl and results.parquet; means, failures, and scores by difficulty and sector as
details.json. All of it is made from stored outcomes alone.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from evaluation.scoring.outcomes import MODES, Mode, OutcomeFile, RoleOutcome, TeamOutcome
from evaluation.stats.intervals import mean_interval
from evaluation.summary.tables import TEAM
from roles.errors import UserError
from roles.team import RECONCILER, SPECIALISTS
from simulator.export.atomic_files import open_atomic, read_document, write_atomic, write_document

DETAILS_FILE, JSONL_FILE, PARQUET_FILE = "details.json", "results.jsonl", "results.parquet"
OUTCOMES_FOLDER = Path("scores") / "outcomes"
CATEGORIES = ("difficulty", "sector")
Outcomes = dict[tuple[str, str, Mode], list[RoleOutcome] | list[TeamOutcome]]  # by (owner, stage, mode)
COLUMNS: tuple[tuple[str, Any], ...] = (
    ("run", pa.string()),
    ("seed", pa.int64()),
    ("owner", pa.string()),  # a role, or "team"
    ("stage", pa.string()),
    ("mode", pa.string()),  # sampled or greedy
    ("key", pa.string()),
    ("difficulty", pa.int64()),
    ("sector", pa.string()),
    ("reward", pa.float64()),
    ("exact", pa.bool_()),  # the optimum itself
    ("feasible", pa.bool_()),
    ("failure", pa.string()),
    ("well_formed", pa.float64()),
    ("escalated", pa.bool_()),
    ("turns", pa.int64()),
    ("tokens", pa.int64()),
    ("tool_calls", pa.int64()),
    ("failed_calls", pa.int64()),
    ("value", pa.float64()),
    ("consensus", pa.float64()),
    ("unresolved", pa.float64()),
    ("wrong_escalation", pa.float64()),
    ("agreement", pa.float64()),
)


def read_outcomes(run_path: Path) -> Outcomes:
    """Every stored outcome of a run, by owner (a role or "team"), stage and mode; none where none is stored.

    Raises:
        UserError: a damaged file.
    """
    found: Outcomes = {}
    for path in sorted((run_path / OUTCOMES_FOLDER).glob("*.jsonl")):
        name, _, suffix = path.stem.rpartition(".")
        stage, _, owner = name.rpartition("-")
        mode = next((one for one in MODES if one == suffix), None)
        if mode is None or not stage:
            raise UserError(f"{path} is not named STAGE-ROLE.sampled.jsonl or STAGE-ROLE.greedy.jsonl")
        if owner == TEAM:
            found[owner, stage, mode] = OutcomeFile(path, TeamOutcome).read()
        else:
            found[owner, stage, mode] = OutcomeFile(path, RoleOutcome).read()
    order = [*SPECIALISTS, RECONCILER]
    known = sorted(found, key=lambda key: (order.index(key[0]) if key[0] in order else len(order), key[0]))
    return {key: found[key] for key in known if found[key]}


def flatten(run: str, seed: int, outcomes: Outcomes) -> list[dict[str, Any]]:
    """One row per play; what an owner's outcomes do not have is None."""
    rows = []
    for (owner, stage, mode), plays in outcomes.items():
        named = {"run": run, "seed": seed, "owner": owner, "stage": stage, "mode": mode}
        for play in plays:
            fields = asdict(play) | named
            if owner == TEAM:
                fields |= {"exact": fields["value"] == 1, "feasible": fields["unresolved"] == 0}
                fields["wrong_escalation"] = fields["escalation"]
            rows.append({name: fields.get(name) for name, _ in COLUMNS})
    return rows


def write_results(folder: Path, rows: Iterable[Mapping[str, Any]]) -> tuple[Path, Path]:
    """Write both files of rows, each all or nothing; the same rows give the same bytes."""
    listed = [dict(row) for row in rows]
    jsonl, parquet = folder / JSONL_FILE, folder / PARQUET_FILE
    write_atomic(jsonl, "".join(json.dumps(row, allow_nan=False) + "\n" for row in listed))
    columns = {name: [row[name] for row in listed] for name, _ in COLUMNS}
    columns["well_formed"] = [float(value) for value in columns["well_formed"]]
    with open_atomic(parquet) as file:
        pq.write_table(pa.table(columns, schema=pa.schema(list(COLUMNS))), file)
    return jsonl, parquet


def build_details(outcomes: Outcomes, *, num_bootstrap: int = 2000) -> dict[str, Any]:
    """owner -> stage -> mode -> process, failures, difficulty, sector, and parts or offers."""
    details: dict[str, Any] = {}
    for (owner, stage, mode), rows in outcomes.items():
        section: dict[str, Any] = {"process": process(rows), "failures": failures(rows)}
        for category in CATEGORIES:
            section[category] = break_down(rows, category, num_bootstrap)
        parts = [outcome.parts for outcome in rows if isinstance(outcome, RoleOutcome)]
        if parts:  # a rejected answer has none and counts 0
            names = dict.fromkeys(name for one in parts for name in one)
            section["parts"] = {name: _mean(one.get(name, 0.0) for one in parts) for name in names}
        else:
            section["offers"] = offers_by_seat([one for one in rows if isinstance(one, TeamOutcome)])
        details.setdefault(owner, {}).setdefault(stage, {})[mode] = section
    return details


def process(outcomes: Sequence[RoleOutcome] | Sequence[TeamOutcome]) -> dict[str, float]:
    """Means per play: turns, tokens, shares well formed, escalated, exact; of roles tool calls too."""
    numbers = {"n": float(len(outcomes))}
    for name in ("turns", "tokens", "well_formed", "escalated"):
        numbers[name] = _mean(getattr(outcome, name) for outcome in outcomes)
    roles = [outcome for outcome in outcomes if isinstance(outcome, RoleOutcome)]
    for name in ("tool_calls", "failed_calls", "truncated", "exact") if roles else ():
        numbers[name] = _mean(getattr(outcome, name) for outcome in roles)
    if not roles:
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
    """Mean reward with its interval by difficulty or sector, in order of the category's values."""
    groups: dict[Any, list[float]] = {}
    for outcome in outcomes:
        groups.setdefault(getattr(outcome, category), []).append(outcome.reward)
    found = {value: mean_interval(groups[value], num_bootstrap=num_bootstrap) for value in sorted(groups)}
    return {
        str(value): {"mean": one.mean, "low": one.low, "high": one.high, "n": float(one.n)}
        for value, one in found.items()
    }


def offers_by_seat(outcomes: Sequence[TeamOutcome]) -> dict[str, dict[str, float]]:
    """Per seat: reports read (share), offers and false claims per report, plans that fund it (share)."""
    table = {}
    for seat in dict.fromkeys(seat for outcome in outcomes for seat in outcome.reports):
        heard = [one for one in outcomes if seat in one.reports]
        decided = [one.funded for one in heard if one.funded or not one.escalated]
        table[seat] = {
            "read": _mean(seat in one.offers for one in heard),
            "offers": _mean(one.offers.get(seat, 0) for one in heard),
            "false_claims": _mean(one.false_claims.get(seat, 0) for one in heard),
            "funded": _mean(seat in funded for funded in decided) if decided else 0.0,
        }
    return table


def _mean(values: Iterable[float]) -> float:
    numbers = [float(value) for value in values]
    return sum(numbers) / len(numbers)


def write_details(run_path: Path, details: Mapping[str, Any]) -> Path:
    """Write details.json into the run folder, all or nothing."""
    return write_document(run_path / DETAILS_FILE, details)


def read_details(run_path: Path) -> dict[str, Any]:
    """Return the details of a run; empty where none are stored."""
    return read_document(run_path / DETAILS_FILE, f"run `emads evaluate {run_path}` again")
