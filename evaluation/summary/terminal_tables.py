"""All tables of one run on a terminal, in reading order."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from evaluation.summary.joint_table import joint_tables
from evaluation.summary.run_table import baseline_table, exact_table, gate_table, role_table, team_table
from evaluation.summary.tables import for_terminal


def summary_tables(summary: Mapping[str, Any]) -> list[Table]:
    """Roles, team, joint training and gates."""
    tables = [make(summary) for make in (role_table, exact_table, baseline_table, team_table)]
    return [*map(for_terminal, [*tables, *joint_tables(summary)]), gate_table(summary["gates"])]
