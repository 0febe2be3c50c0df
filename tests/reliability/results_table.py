"""The Markdown table of results: one row per check, replaced by its id; other lines stay."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any


def render_row(name: str, probe: str, pr: int, full: int, results: Sequence[dict[str, Any]]) -> str:
    """The row of a check: how many trials were run and how many came out as promised."""
    good = sum(bool(result["ok"]) for result in results)
    details = sorted({result["group"] for result in results})
    parts = []
    for group in details:
        of_group = [result for result in results if result["group"] == group]
        parts.append(f"{group} {sum(bool(r['ok']) for r in of_group)}/{len(of_group)}")
    shown = f"{good}/{len(results)}" if len(parts) < 2 else f"{good}/{len(results)} ({', '.join(parts)})"
    return f"| {name} | {probe} | {pr or 'all'} | {full or 'all'} | {shown} |"


def update_table(path: Path, name: str, row: str) -> None:
    """Replace the line that starts with the id, or put it after the last line of the table."""
    lines = path.read_text().splitlines()
    places = [number for number, line in enumerate(lines) if line.startswith(f"| {name} |")]
    if places:
        lines[places[0]] = row
    else:
        last = max(number for number, line in enumerate(lines) if line.startswith("| "))
        lines.insert(last + 1, row)
    path.write_text("\n".join(lines) + "\n")
