"""The table that an audit prints, in Markdown, and its breaches as lines."""

from collections.abc import Sequence

from evaluation.audit.records import Row

COLUMNS = ("probe", "family", "counts", "worst figure", "result")
MOST_SHOWN = 5  # breaches of a row that are shown


def render_heading() -> str:
    """Return the head of the table, in Markdown."""
    return f"{render_cells(COLUMNS)}\n{render_cells(['---'] * len(COLUMNS))}"


def render_row(row: Row) -> str:
    """One line of the table."""
    result = "pass" if not row.breaches else f"BREACH ({len(row.breaches)})"
    return render_cells((row.probe, row.family, row.counts, row.worst, result))


def render_cells(cells: Sequence[str]) -> str:
    """Cells between bars."""
    return f"| {' | '.join(cells)} |"


def render_breaches(rows: Sequence[Row]) -> list[str]:
    """Return the first breaches of every row, a line each, on one line even where they quote other lines."""
    lines = []
    for row in rows:
        shown = [" ".join(breach.split()) for breach in row.breaches[:MOST_SHOWN]]
        lines += [f"{row.probe} {row.family}: {breach}" for breach in shown]
        if len(row.breaches) > MOST_SHOWN:
            lines.append(f"{row.probe} {row.family}: and {len(row.breaches) - MOST_SHOWN} more")
    return lines
