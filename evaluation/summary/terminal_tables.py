"""All tables of one run on a terminal, in reading order."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from evaluation.summary.joint_table import for_terminal, joint_tables
from evaluation.summary.run_table import baseline_table, exact_table, gate_table, role_table, team_table


def summary_tables(summary: Mapping[str, Any]) -> list[Table]:
    """Roles, team, joint training and gates."""
    tables = [make(summary) for make in (role_table, exact_table, baseline_table, team_table)]
    tables += [for_terminal(table) for table in joint_tables(summary)]
    return [*tables, gate_table(summary["gates"])]
