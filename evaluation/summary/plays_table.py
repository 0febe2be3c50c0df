"""Every sealed play of one or more runs as one flat table: results.jsonl and results.parquet."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from evaluation.summary.details import Outcomes
from simulator.export.atomic_files import open_atomic, write_atomic

JSONL_FILE, PARQUET_FILE = "results.jsonl", "results.parquet"
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


def flatten(run: str, seed: int, outcomes: Outcomes) -> list[dict[str, Any]]:
    """One row per play; what an owner's outcomes do not have is None."""
    rows = []
    for (owner, stage, mode), plays in outcomes.items():
        for play in plays:
            fields = asdict(play)
            if owner == "team":
                fields |= {"exact": fields["value"] == 1, "feasible": fields["unresolved"] == 0}
                fields["wrong_escalation"] = fields["escalation"]
            named = {"run": run, "seed": seed, "owner": owner, "stage": stage, "mode": mode}
            rows.append({name: ({**fields, **named}).get(name) for name, _ in COLUMNS})
    return rows


def write_results(folder: Path, rows: Iterable[Mapping[str, Any]]) -> tuple[Path, Path]:
    """Write both files, each all or nothing; the same rows give the same bytes."""
    listed = [dict(row) for row in rows]
    jsonl, parquet = folder / JSONL_FILE, folder / PARQUET_FILE
    write_atomic(jsonl, "".join(json.dumps(row, allow_nan=False) + "\n" for row in listed))
    columns = {name: [row[name] for row in listed] for name, _ in COLUMNS}
    columns["well_formed"] = [float(value) for value in columns["well_formed"]]
    with open_atomic(parquet) as file:
        pq.write_table(pa.table(columns, schema=pa.schema(list(COLUMNS))), file)
    return jsonl, parquet
